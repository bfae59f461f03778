/* Pixels of a PNG that are inflated at once are those that zlib inflates, and what is damaged is left to libpng. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "image/png_inflate.h"

#if defined(WF_HAVE_DEFLATE) && defined(WF_HAVE_ZLIB)
#include <zlib.h>

enum { WIDTH = 301, HEIGHT = 457, ROW = 1 + 3 * WIDTH, RAW = ROW * HEIGHT };
enum { BEFORE = 8 + 12 + 13, MOST = BEFORE + 2 * RAW };

struct file {
    unsigned char bytes[MOST];
    size_t size;
};

static void put_number(struct file *f, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        f->bytes[f->size++] = (unsigned char)(x >> (24 - 8 * i));
}

static void put_chunk(struct file *f, const char *name, const unsigned char *data, size_t bytes)
{
    put_number(f, (uint32_t)bytes);
    memcpy(f->bytes + f->size, name, 4);
    if (bytes)
        memcpy(f->bytes + f->size + 4, data, bytes);
    const uLong sum = crc32(0, f->bytes + f->size, (uInt)(4 + bytes));
    f->size += 4 + bytes;
    put_number(f, (uint32_t)sum);
}

/* Rows with their filters. */
static void draw(unsigned char raw[RAW])
{
    const struct wf_random r = wf_random(1, wf_random_stream("rows"));
    for (int i = 0; i < RAW; i++)
        raw[i] = (unsigned char)(i % ROW == 0 ? (uint32_t)(i / ROW % 5)
                                              : wf_random_below(r, (uint64_t)i, 40));
}

/* With the pixels in several chunks. */
static struct file *make(const unsigned char raw[RAW])
{
    struct file *const f = calloc(1, sizeof *f);
    unsigned char *const packed = malloc(2 * RAW);
    uLongf bytes = 2 * RAW;
    assert_non_null(f);
    assert_non_null(packed);
    assert_int_equal(compress2(packed, &bytes, raw, RAW, 6), Z_OK);
    static const unsigned char mark[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    memcpy(f->bytes, mark, sizeof mark);
    f->size = 8;
    put_chunk(f, "IHDR", (const unsigned char[13]){ 0 }, 13);
    for (size_t at = 0; at < bytes; at += 30011)
        put_chunk(f, "IDAT", packed + at, bytes - at < 30011 ? bytes - at : 30011);
    put_chunk(f, "IEND", NULL, 0);
    free(packed);
    return f;
}

static bool inflates(struct wf_png_inflated *in, const struct file *f, size_t size, uint64_t raw)
{
    struct wf_infile file;
    wf_infile_memory(&file, "made.png", f->bytes, size);
    const bool ok = wf_png_inflate(in, &file, raw);
    wf_infile_close(&file);
    return ok;
}

static bool is_refused(const struct file *f, size_t size, uint64_t raw)
{
    struct wf_png_inflated in = { 0 };
    const bool ok = inflates(&in, f, size, raw);
    free(in.data);
    return !ok;
}

static void pixels__are_those_that_zlib_inflates(void **state)
{
    (void)state;
    unsigned char *const raw = malloc(RAW), *const again = malloc(RAW);
    draw(raw);
    struct file *const f = make(raw);
    struct wf_png_inflated in = { 0 };
    assert_true(inflates(&in, f, f->size, RAW));
    assert_int_equal(in.from, BEFORE);
    assert_memory_equal(in.data + 4, "IDAT", 4);
    z_stream z = {
        .next_in = in.data + 8, .avail_in = (uInt)in.bytes - 12, .next_out = again, .avail_out = RAW
    };
    assert_int_equal(inflateInit(&z), Z_OK);
    assert_int_equal(inflateValidate(&z, 0),
                     Z_OK); /* libpng does not ask for the checksum either */
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(z.total_out, RAW);
    assert_int_equal(inflateEnd(&z), Z_OK);
    assert_memory_equal(again, raw, RAW);
    free(in.data);
    free(f);
    free(again);
    free(raw);
}

static void damage__is_left_to_libpng(void **state)
{
    (void)state;
    unsigned char *const raw = malloc(RAW);
    draw(raw);
    struct file *const f = make(raw);
    assert_true(is_refused(f, f->size, RAW - 1));
    assert_true(is_refused(f, f->size, RAW + 1));
    assert_true(is_refused(f, f->size, UINT64_MAX));
    for (size_t size = 0; size < f->size - 12; size += 997) /* it may end behind the pixels */
        assert_true(is_refused(f, size, RAW));
    for (size_t at = BEFORE; at < f->size - 12; at += 131) {
        f->bytes[at] ^= 0x10;
        if (!is_refused(f, f->size, RAW))
            fail_msg("byte %zu was damaged", at);
        f->bytes[at] ^= 0x10;
    }
    assert_false(is_refused(f, f->size, RAW));
    free(f);
    free(raw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels__are_those_that_zlib_inflates),
        cmocka_unit_test(damage__is_left_to_libpng),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 0; /* not in this build */
}

#endif
