/* What the tests of file formats share: lies in memory, folders to walk, a disk that is full. */
#ifndef WF_TESTS_FILES_H
#define WF_TESTS_FILES_H

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* The whole file, exactly as long as it is, so that a sanitizer sees a read past its end. */
static inline unsigned char *slurp(const char *path, size_t *size)
{
    *size = 0;
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        return NULL;
    *size = (size_t)ftell(file);
    unsigned char *data = malloc(*size ? *size : 1);
    rewind(file);
    const bool ok = data && fread(data, 1, *size, file) == *size;
    (void)fclose(file);
    return ok ? data : NULL;
}

/* Files in `folder` whose name ends in `end`. */
static inline int count_files(const char *folder, const char *end)
{
    int count = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *at; dir && (at = readdir(dir));) {
        const size_t length = strlen(at->d_name);
        count += length >= strlen(end) && strcmp(at->d_name + length - strlen(end), end) == 0;
    }
    if (dir)
        (void)closedir(dir);
    return count;
}

/* From now on no file of this process grows past `bytes`: writing fails as on a full disk. */
static inline void limit_files(unsigned long bytes)
{
    struct rlimit limit;
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes ? bytes : limit.rlim_max;
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    (void)signal(SIGXFSZ, bytes ? SIG_IGN : SIG_DFL);
}

#endif
