/* Files that are cut short, damaged, lying or bombs: one message that names the file and the fix, in
 * 100 ms and 64 MB. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "files.h"
#include "image/raster_format.h"

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

#define FOLDER WF_TEST_SOURCE_DIR "/tests/fixtures/image/"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MS_MAX = 1000, KB_MAX = 1 << 30 }; /* a sanitizer's own memory and time are not ours */
#else
enum { MS_MAX = 100, KB_MAX = 64 << 10 };
#endif

/* --- what became of a file --- */
struct outcome {
    bool opened, read;
    double ms;
    long kb; /* that memory grew */
    char text[1024];
};

/* Opens it, and reads its first and its last corner. */
static void try_file(const char *name, const void *bytes, size_t size, struct outcome *o)
{
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_parse(name, bytes, size, &err);
    o->opened = o->read = r;
    for (int turn = 0; o->read && turn < 2; turn++) {
        const struct wf_raster_info *info = wf_raster_info(r);
        struct wf_region at = { 0 };
        const int64_t extent[] = {
            [WF_D] = info->depth, [WF_H] = info->height, [WF_W] = info->width
        };
        for (int axis = WF_D; axis <= WF_W; axis++) {
            at.lo[axis] = turn ? wf_max(0, extent[axis] - 16) : 0;
            at.hi[axis] = wf_min(extent[axis], at.lo[axis] + 16);
        }
        const int channels = (int)wf_min(info->channels, 4);
        float *room = malloc(16 * 16 * 16 * 4 * sizeof *room);
        o->read = wf_raster_read_window(r, &at, 0, channels, WF_F32, room, &err);
        free(room);
    }
    wf_raster_close(r);
    (void)snprintf(o->text, sizeof o->text, "%s", err.text);
}

/* In a process of its own, whose memory is only this. */
static struct outcome measure(const char *name, const void *bytes, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct outcome o = { 0 };
        struct rusage before, after;
        struct timespec from, to;
        (void)getrusage(RUSAGE_SELF, &before);
        /* The process's own time: what else the machine does is not the reader's. */
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        try_file(name, bytes, size, &o);
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
        (void)getrusage(RUSAGE_SELF, &after);
        o.ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
        o.kb = after.ru_maxrss - before.ru_maxrss;
        _exit(write(ends[1], &o, sizeof o) == sizeof o ? 0 : 1);
    }
    (void)close(ends[1]);
    struct outcome o = { 0 };
    assert_int_equal(read(ends[0], &o, sizeof o), sizeof o);
    (void)close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return o;
}

static void check_cost(const char *name, const struct outcome *o)
{
    if (o->ms > MS_MAX || o->kb > KB_MAX)
        fail_msg("'%s': %.0f ms and %ld kB to find out", name, o->ms, o->kb);
}

static void check_lie(const char *name, const void *bytes, size_t size, const char *words)
{
    const struct outcome o = measure(name, bytes, size);
    if (o.read || !strstr(o.text, words) || !strstr(o.text, name))
        fail_msg("'%s': \"%s\" does not say \"%s\"", name, o.text, words);
    check_cost(name, &o);
}

/* --- bytes --- */
struct bytes {
    unsigned char at[200000];
    size_t count;
};

static void add(struct bytes *b, const void *data, size_t size)
{
    assert_true(b->count + size <= sizeof b->at);
    memcpy(b->at + b->count, data, size);
    b->count += size;
}

#ifdef WF_HAVE_ZLIB
static void big32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

static void add_chunk(struct bytes *b, const char *tag, const void *data, size_t size)
{
    unsigned char number[4];
    big32(number, (uint32_t)size);
    add(b, number, 4);
    const size_t from = b->count;
    add(b, tag, 4);
    add(b, data, size);
    big32(number, (uint32_t)crc32(0, b->at + from, (uInt)(b->count - from)));
    add(b, number, 4);
}

/* A PNG of the given header with `filler` bytes where its pixels should be. */
static struct bytes *make_png(uint32_t w, uint32_t h, int bits, int kind, int interlace,
                              size_t filler)
{
    struct bytes *b = calloc(1, sizeof *b);
    assert_non_null(b);
    unsigned char head[13] = {
        [8] = (unsigned char)bits, [9] = (unsigned char)kind, [12] = (unsigned char)interlace
    };
    big32(head, w);
    big32(head + 4, h);
    add(b, "\x89PNG\r\n\x1a\n", 8);
    add_chunk(b, "IHDR", head, 13);
    unsigned char *zeros = calloc(1, filler + 1);
    add_chunk(b, "IDAT", zeros, filler);
    add_chunk(b, "IEND", zeros, 0);
    free(zeros);
    return b;
}

static void png__lies_are_refused(void **state)
{
    static const struct {
        uint32_t w, h;
        int bits, kind, interlace;
        size_t filler;
        const char *words;
    } lies[] = {
        { 30000, 30000, 16, 6, 0, 100, "30000 x 30000 pixels cannot be packed into" },
        { 2147483647, 1, 8, 0, 0, 100,
          "rows of 2147483647 bytes, at most 8388608 are read: write it as a tiled" },
        { 8000, 8000, 8, 0, 1, 100000,
          "interlaced image of 64000000 bytes has to be decoded as a whole" },
        { 0, 10, 8, 0, 0, 10, "damaged PNG header" },
        { 10, 10, 3, 0, 0, 10, "damaged PNG header" },
        { 10, 10, 8, 2, 0, 10, "damaged pixels" },
        { 10, 10, 8, 2, 1, 10, "damaged pixels" },
        { 10, 10, 8, 3, 0, 10, "damaged PNG header" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct bytes *b = make_png(lies[i].w, lies[i].h, lies[i].bits, lies[i].kind,
                                   lies[i].interlace, lies[i].filler);
#ifdef WF_HAVE_PNG
        check_lie("lie.png", b->at, b->count, lies[i].words);
#else
        check_lie("lie.png", b->at, b->count, "install 'libpng-dev' and build again");
#endif
        free(b);
    }
}
#endif

/* --- TIFF --- */
struct entry {
    uint16_t tag, type; /* 3: short, 4: long */
    uint32_t count, value;
};

/* A little-endian TIFF whose directory holds `entries`, followed by zeros up to `size`. */
static struct bytes *make_tiff(const struct entry *entries, uint16_t count, size_t size)
{
    struct bytes *b = calloc(1, sizeof *b);
    assert_non_null(b);
    add(b, "II\x2a\0\x08\0\0\0", 8);
    add(b, &count, 2);
    add(b, entries, count * sizeof *entries);
    add(b, &(uint32_t){ 0 }, 4);
    if (b->count < size)
        b->count = size;
    return b;
}

#define TILED(w, h, bits, compression, tile_w, tile_h, offset, bytes)                              \
    {                                                                                              \
        { 256, 4, 1, (w) }, { 257, 4, 1, (h) }, { 258, 3, 1, (bits) },                             \
            { 259, 3, 1, (compression) }, { 262, 3, 1, 1 }, { 277, 3, 1, 1 },                      \
            { 322, 4, 1, (tile_w) }, { 323, 4, 1, (tile_h) }, { 324, 4, 1, (offset) },             \
        {                                                                                          \
            325, 4, 1, (bytes)                                                                     \
        }                                                                                          \
    }
#define STRIPS(w, h, bits, compression, rows, offset, bytes)                                       \
    {                                                                                              \
        { 256, 4, 1, (w) }, { 257, 4, 1, (h) }, { 258, 3, 1, (bits) },                             \
            { 259, 3, 1, (compression) }, { 262, 3, 1, 1 }, { 273, 4, 1, (offset) },               \
            { 277, 3, 1, 1 }, { 278, 4, 1, (rows) },                                               \
        {                                                                                          \
            279, 4, 1, (bytes)                                                                     \
        }                                                                                          \
    }

static void tiff__lies_are_refused(void **state)
{
    static const struct {
        struct entry entries[10];
        uint16_t count;
        const char *words;
    } lies[] = {
        { TILED(65536, 65536, 8, 8, 65536, 65536, 200, 100), 10,
          "tiles of 65536 x 65536 are too large" },
        { TILED(8192, 8192, 8, 8, 8192, 8192, 200, 100), 10, "would unpack 100 bytes to 67108864" },
        { TILED(8192, 8192, 1, 8, 8192, 8192, 200, 100), 10, "would unpack 100 bytes to 67108864" },
        { TILED(16, 16, 8, 1, 16, 16, 200, 100000), 10,
          "tile 0 lies at bytes 200 to 100200, the file has" },
        { TILED(16, 16, 8, 1, 16, 16, 4000000000u, 256), 10, "tile 0 lies at bytes 4000000000" },

        { TILED(16, 16, 8, 8, 16, 16, 200, 256), 10, "tile 0 is damaged" },
        { TILED(16, 16, 8, 5, 16, 16, 200, 256), 10, "tile 0 is damaged" },
        { TILED(16, 16, 8, 7, 16, 16, 200, 256), 10, "damaged" },
        { TILED(16, 16, 8, 34712, 16, 16, 200, 256), 10,
          "TIFF compression 34712 is not read here: write it with" },
        { TILED(16, 16, 12, 1, 16, 16, 200, 256), 10, "1 samples of 12 bits" },
        { TILED(0, 16, 8, 1, 16, 16, 200, 256), 10, "a damaged TIFF header" },
        { TILED(16, 16, 8, 1, 0, 16, 200, 256), 10, "damaged" },
        { STRIPS(2147483647, 1, 8, 8, 1, 200, 100), 9,
          "rows of 2147483647 bytes, at most 8388608 are read" },
        { STRIPS(16, 4000000000u, 8, 8, 4000000000u, 200, 100), 9, "a damaged TIFF header" },
        { STRIPS(16, 1000000000, 8, 8, 1000000000, 200, 100), 9, "row 0 is damaged" },
        { STRIPS(16, 64, 8, 1, 64, 200, 1024), 9, "the file has" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct bytes *b = make_tiff(lies[i].entries, lies[i].count, 600);
#ifdef WF_HAVE_TIFF
        check_lie("lie.tif", b->at, b->count, lies[i].words);
#else
        check_lie("lie.tif", b->at, b->count, "install 'libtiff-dev' and build again");
#endif
        free(b);
    }
}

/* --- NIfTI --- */
static void make_nifti(unsigned char head[352], int rank, const int16_t extents[3], int type,
                       float offset)
{
    memset(head, 0, 352);
    const int16_t dims[] = { (int16_t)rank, extents[0], extents[1], extents[2], 1, 1, 1, 1 };
    memcpy(head, &(int32_t){ 348 }, 4);
    memcpy(head + 40, dims, sizeof dims);
    memcpy(head + 70, &(int16_t){ (int16_t)type }, 2);
    memcpy(head + 108, &offset, 4);
    memcpy(head + 344, "n+1", 4);
}

static void nifti__lies_are_refused(void **state)
{
    static const struct {
        int rank;
        int16_t extents[3];
        int type;
        float offset;
        const char *words;
    } lies[] = {
        { 3,
          { 32767, 32767, 32767 },
          16,
          352,
          "32767 x 32767 x 32767 voxels with 1 channels do not fit a file of" },
        { 3, { 2, 2, 2 }, 4, 353, "it is cut short, copy it again" },
        { 0, { 2, 2, 2 }, 4, 352, "0 axes, NIfTI has 1 to 7" },
        { 3, { 2, -2, 2 }, 4, 352, "axis 2 has extent -2" },
        { 3, { 2, 2, 2 }, 32, 352, "NIfTI data type 32 is not read: save it as int16" },
        { 3, { 2, 2, 2 }, 4, 100, "the pixels start at byte 100, inside the header" },
        { 3, { 2, 2, 2 }, 4, NAN, "inside the header" },
        { 3, { 2, 2, 2 }, 4, INFINITY, "do not fit" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        unsigned char file[352 + 16];
        memset(file, 0, sizeof file);
        make_nifti(file, lies[i].rank, lies[i].extents, lies[i].type, lies[i].offset);
        check_lie("lie.nii", file, sizeof file, lies[i].words);
    }
    unsigned char pair[352];
    make_nifti(pair, 3, (int16_t[]){ 2, 2, 2 }, 4, 352);
    memcpy(pair + 344, "ni1", 4);
    check_lie("lie.hdr", pair, sizeof pair,
              "a pair of files (.hdr and .img): convert it to one .nii file");
#ifdef WF_HAVE_ZLIB
    /* A volume that claims more than deflate can pack. */
    unsigned char head[352], packed[1000];
    make_nifti(head, 3, (int16_t[]){ 2000, 2000, 2000 }, 16, 352);
    z_stream z = {
        .next_in = head, .avail_in = sizeof head, .next_out = packed, .avail_out = sizeof packed
    };
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    check_lie("lie.nii.gz", packed, z.total_out,
              "2000 x 2000 x 2000 voxels with 1 channels do not fit");
    (void)deflateEnd(&z);
    check_lie("not.nii.gz", "\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0", 20,
              "ends too early");
#endif
}

/* --- JPEG --- */
static struct bytes *make_jpeg(int marker, int w, int h)
{
    struct bytes *b = calloc(1, sizeof *b);
    assert_non_null(b);
    const unsigned char frame[] = { 0xff,
                                    (unsigned char)marker,
                                    0,
                                    11,
                                    8,
                                    (unsigned char)(h >> 8),
                                    (unsigned char)h,
                                    (unsigned char)(w >> 8),
                                    (unsigned char)w,
                                    1,
                                    1,
                                    0x11,
                                    0 };
    static const unsigned char scan[] = { 0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0 };
    add(b, "\xff\xd8", 2);
    add(b, frame, sizeof frame);
    add(b, scan, sizeof scan);
    return b;
}

static void jpeg__lies_are_refused(void **state)
{
    static const struct {
        int marker, w, h;
        const char *words;
    } lies[] = {
        { 0xc2, 65000, 65000,
          "a progressive JPEG that needs 8450000000 bytes at once is too large" },
        { 0xc0, 65000, 65000, "damaged at row 0" },
        { 0xc0, 0, 100, "a damaged JPEG header" },
        { 0xc5, 10, 10, "a damaged JPEG header" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct bytes *b = make_jpeg(lies[i].marker, lies[i].w, lies[i].h);
#ifdef WF_HAVE_JPEG
        check_lie("lie.jpg", b->at, b->count, lies[i].words);
#else
        check_lie("lie.jpg", b->at, b->count, "install 'libjpeg62-turbo-dev' and build again");
#endif
        free(b);
    }
}

static void check_fixture_lie(const char *name, const char *words)
{
    char path[1000];
    (void)snprintf(path, sizeof path, FOLDER "lies/%s", name);
    char *colon = strstr(path, ":/");
    if (colon)
        *colon = '\0';
    size_t size;
    unsigned char *bytes = slurp(path, &size);
    assert_non_null(bytes);
    check_lie(name, bytes, size, words);
    free(bytes);
}

static void hdf5__lies_are_refused(void **state)
{
    check_fixture_lie("bomb.h5", "which is too much at once: write it again with smaller ones");
    check_fixture_lie("external.h5",
                      "a dataset that lies in other files: save its values in this one");
    check_fixture_lie("virtual.h5",
                      "a dataset that lies in other files: save its values in this one");
    check_fixture_lie("link.h5:/linked", "no dataset '/linked' in it");
    check_fixture_lie("text.h5", "a dataset that is not of numbers");
    check_fixture_lie("rank1.h5", "an array of rank 1 is no image: save it as (H, W)");
    check_fixture_lie("empty.h5", "no dataset in it");
}

/* One chunk of 64 MB that was never written: its value stands in the header. */
static void hdf5__a_large_empty_chunk_costs_nothing(void **state)
{
    size_t size;
    unsigned char *bytes = slurp(FOLDER "lies/chunk.h5", &size);
    assert_non_null(bytes);
    const struct outcome o = measure("chunk.h5", bytes, size);
    free(bytes);
    assert_true(o.read);
    check_cost("chunk.h5", &o);
}

static void nothing__is_no_image(void **state)
{
    check_lie("empty.png", "", 0, "the file is empty: copy it again");
    check_lie("text.tif", "hello", 5, "not an image that is known here");
    check_lie("one.jpg", "\xff", 1, "not an image that is known here");
}

/* --- cut short and damaged --- */
static void for_each_fixture(void (*check)(const char *name, const unsigned char *bytes,
                                           size_t size))
{
    FILE *list = fopen(FOLDER "list.txt", "r");
    assert_non_null(list);
    char name[200], truth[200], path[1000];
    while (fscanf(list, "%199s %199s", name, truth) == 2) {
        (void)snprintf(path, sizeof path, FOLDER "%s", name);
        char *colon = strstr(path, ":/");
        if (colon)
            *colon = '\0';
        size_t size;
        unsigned char *bytes = slurp(path, &size);
        assert_non_null(bytes);
        check(name, bytes, size);
        free(bytes);
    }
    (void)fclose(list);
}

static void check_outcome(const char *name, const void *bytes, size_t size, size_t where)
{
    struct outcome o = { 0 };
    try_file(name, bytes, size, &o);
    if (!o.read && (!strstr(o.text, name) || !strstr(o.text, ": ")))
        fail_msg("'%s' at %zu: refused with \"%s\"", name, where, o.text);
    for (const char *c = o.text; *c; c++)
        if (*c < ' ' || *c > '~')
            fail_msg("'%s' at %zu: a message that cannot be printed", name, where);
}

static void check_cut(const char *name, const unsigned char *bytes, size_t size)
{
    for (int i = 0; i < 60; i++) {
        const size_t cut = size * (size_t)i / 60;
        unsigned char *less = malloc(cut ? cut : 1); /* exactly as long as it is */
        memcpy(less, bytes, cut);
        check_outcome(name, less, cut, cut);
        free(less);
    }
}

static void files__cut_short_are_refused_or_whole(void **state)
{
    for_each_fixture(check_cut);
}

static void check_damage(const char *name, const unsigned char *bytes, size_t size)
{
    unsigned char *copy = malloc(size);
    const struct wf_random random = wf_random(5, wf_random_stream(name));
    for (uint64_t i = 0; i < 60; i++) {
        memcpy(copy, bytes, size);
        const size_t at = wf_random_below(
            random, 3 * i, i % 2 ? (uint32_t)size : (uint32_t)wf_min((int64_t)size, 400));
        copy[at] = (unsigned char)wf_random_bits(random, 3 * i + 1);
        check_outcome(name, copy, size, at);
    }
    free(copy);
}

static void files__damaged_are_read_or_refused(void **state)
{
    for_each_fixture(check_damage);
}

/* What the fuzzer kept, slow inputs among it. */
static void corpus__is_read_or_refused_in_time(void **state)
{
    const char *folder = WF_TEST_SOURCE_DIR "/fuzz/corpus/raster";
    DIR *all = opendir(folder);
    assert_non_null(all);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(all));) {
        char path[1000];
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        size_t size;
        unsigned char *bytes = entry->d_name[0] == '.' ? NULL : slurp(path, &size);
        if (!bytes)
            continue;
        const struct outcome o = measure(entry->d_name, bytes, size);
        check_cost(entry->d_name, &o);
        free(bytes);
        count++;
    }
    (void)closedir(all);
    assert_true(count > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WF_HAVE_ZLIB
        cmocka_unit_test(png__lies_are_refused),
#endif
        cmocka_unit_test(tiff__lies_are_refused),
        cmocka_unit_test(nifti__lies_are_refused),
        cmocka_unit_test(jpeg__lies_are_refused),
        cmocka_unit_test(hdf5__lies_are_refused),
        cmocka_unit_test(hdf5__a_large_empty_chunk_costs_nothing),
        cmocka_unit_test(nothing__is_no_image),
        cmocka_unit_test(files__cut_short_are_refused_or_whole),
        cmocka_unit_test(files__damaged_are_read_or_refused),
        cmocka_unit_test(corpus__is_read_or_refused_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
