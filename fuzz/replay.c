/* The main() of a fuzz target where there is no libFuzzer: runs every file given, and every
 * file under a folder given, through the target once. Always runs the empty input first.
 *
 *     build/fuzz/fuzz_npy fuzz/corpus/npy some_other_file
 */
#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)place;
    if (kind != FTW_F)
        return 0;
    const size_t size = (size_t)info->st_size;
    FILE *file = fopen(path, "rb");
    /* Exactly as long as the input, so that a sanitizer sees a read past its end. */
    uint8_t *data = malloc(size ? size : 1);
    const bool read = file && data && fread(data, 1, size, file) == size;
    if (file)
        (void)fclose(file);
    if (read) {
        fprintf(stderr, "%s: %zu bytes\n", path, size);
        LLVMFuzzerTestOneInput(data, size);
    } else {
        fprintf(stderr, "replay: cannot read '%s': %s\n", path, strerror(errno));
    }
    free(data);
    return read ? 0 : 1;
}

int main(int argc, char **argv)
{
    const uint8_t nothing = 0;
    LLVMFuzzerTestOneInput(&nothing, 0);
    for (int i = 1; i < argc; i++) {
        struct stat info;
        if (stat(argv[i], &info) != 0) {
            fprintf(stderr, "replay: no '%s', passed over\n", argv[i]);
            continue;
        }
        if (nftw(argv[i], replay_file, 16, 0) != 0)
            return 1;
    }
    return 0;
}
