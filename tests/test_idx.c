/* MNIST's IDX files: plain, with a dot, packed, and damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

#include <cmocka.h>

#include "base/file.h"
#include "files.h"
#include "support_data.h"
#include "support_scratch.h"

/* An IDX file of u8: `count` records of height x width (0 x 0: labels), the numbers counted on from
 * `first`. */
static size_t idx_bytes(uint8_t *to, uint8_t count, uint8_t height, uint8_t width, uint8_t first)
{
    const uint8_t head[16] = { 0, 0, 8, height ? 3 : 1, 0, 0, 0, count,
                               0, 0, 0, height,         0, 0, 0, width };
    const size_t start = height ? 16 : 8,
                 numbers = (size_t)(height ? count * height * width : count);
    memcpy(to, head, start);
    for (size_t i = 0; i < numbers; i++)
        to[start + i] = (uint8_t)(first + i);
    return start + numbers;
}

static void write_idx(const char *path, uint8_t count, uint8_t height, uint8_t width, uint8_t first)
{
    uint8_t bytes[256];
    const size_t n = idx_bytes(bytes, count, height, width, first);
    struct wf_err err = { 0 };
    assert_true(wf_file_write(path, bytes, n, &err));
}

static void idx_is_read(const char *path)
{
    struct wf_dataset *const ds = support_open(path);
    const struct wf_dataset_info *const info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_IDX);
    assert_int_equal(info->samples, 5);
    assert_int_equal(info->channels, 1);
    assert_int_equal(info->labels, WF_LABELS_IMAGE);
    assert_int_equal(info->n_classes, 10);
    assert_string_equal(info->classes[7].name, "7");
    assert_int_equal(info->classes[8].found, 2);
    assert_true(!wf_dataset_sample(ds, 2)->held_out && wf_dataset_sample(ds, 3)->held_out);
    assert_string_equal(wf_dataset_sample(ds, 4)->name, "t10k/1");
    /* rows 1 and 2, columns 2 and 3 of the second picture of 4 x 5 */
    float image[20];
    int32_t label;
    struct wf_err err = { 0 };
    struct wf_region part = support_box(0, 1, 2, 1, 3, 4);
    assert_true(wf_dataset_read(ds, 1, &part, image, &label, &err));
    const float want[4] = { 10 + 20 + 7, 10 + 20 + 8, 10 + 20 + 12, 10 + 20 + 13 };
    assert_memory_equal(image, want, sizeof want);
    assert_int_equal(label, 8);
    part = wf_dataset_extent(ds, 4);
    assert_true(wf_dataset_read(ds, 4, &part, image, &label, &err));
    for (int i = 0; i < 20; i++)
        assert_true(image[i] == (float)(100 + 20 + i));
    assert_int_equal(label, 9);
    wf_dataset_free(ds);
}

static void idx__labels_images_and_holds_out_t10k(void **state)
{
    support_folder("idx");
    write_idx("idx/train-images-idx3-ubyte", 3, 4, 5, 10);
    SUPPORT_REFUSED("idx", "train-images-idx3-ubyte' has no labels", "train-labels-idx1-ubyte");
    write_idx("idx/train-labels-idx1-ubyte", 3, 0, 0, 7);
    write_idx("idx/t10k-images.idx3-ubyte", 2, 4, 5, 100);
    write_idx("idx/t10k-labels.idx1-ubyte", 2, 0, 0, 8);
    idx_is_read("idx");
    write_idx("idx/t10k-labels.idx1-ubyte", 3, 0, 0, 8);
    SUPPORT_REFUSED("idx", "has 3 labels", "has 2 images");
}

static void idx__refuses_damaged_files(void **state)
{
    support_folder("damaged");
    write_idx("damaged/train-labels-idx1-ubyte", 3, 0, 0, 7);
    const struct {
        int at, value; /* a byte that is changed */
        int cut;       /* bytes that are missing */
        const char *why;
    } cases[] = {
        { 0, 0, 1, "has 75 bytes, but by its header 76: is it cut off?" },
        { 0, 0, -1, "has 77 bytes, but by its header 76" },
        { 0, 0, 70, "train-images-idx3-ubyte'" },
        { 0, 0, 76, "train-images-idx3-ubyte'" },
        { 2, 13, 0, "begins with 00000d03, expected 00000803" },
        { 3, 1, 0, "begins with 00000801, expected 00000803" },
        { 11, 0, 0, "cannot be" },
        { 8, 255, 0, "by its header" },
        { 4, 1, 0, "by its header" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[256] = { 0 };
        const int n = (int)idx_bytes(bytes, 3, 4, 5, 10);
        assert_int_equal(n, 76);
        bytes[cases[i].at] = (uint8_t)cases[i].value;
        struct wf_err err = { 0 };
        assert_true(wf_file_write("damaged/train-images-idx3-ubyte", bytes,
                                  (size_t)(n - cases[i].cut), &err));
        SUPPORT_REFUSED("damaged", cases[i].why);
    }
}

#ifdef WF_HAVE_ZLIB
static void pack(const char *path, const uint8_t *bytes, size_t size)
{
    gzFile const f = gzopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, bytes, (unsigned)size), (int)size);
    assert_int_equal(gzclose(f), Z_OK);
}

static void idx__is_unpacked(void **state)
{
    uint8_t bytes[256];
    support_folder("gz/MNIST/raw");
    pack("gz/MNIST/raw/train-images-idx3-ubyte.gz", bytes, idx_bytes(bytes, 3, 4, 5, 10));
    pack("gz/MNIST/raw/train-labels-idx1-ubyte.gz", bytes, idx_bytes(bytes, 3, 0, 0, 7));
    pack("gz/MNIST/raw/t10k-images-idx3-ubyte.gz", bytes, idx_bytes(bytes, 2, 4, 5, 100));
    pack("gz/MNIST/raw/t10k-labels-idx1-ubyte.gz", bytes, idx_bytes(bytes, 2, 0, 0, 8));
    idx_is_read("gz");
    /* a header of more than the file has: before memory is taken */
    const size_t n = idx_bytes(bytes, 3, 4, 5, 10);
    bytes[8] = 1;
    pack("gz/MNIST/raw/train-images-idx3-ubyte.gz", bytes, n);
    SUPPORT_REFUSED("gz", "unpacks to 76 bytes", "by its header to");
    bytes[8] = 0;
    pack("gz/MNIST/raw/train-images-idx3-ubyte.gz", bytes, n);
    size_t size;
    uint8_t *const packed = slurp("gz/MNIST/raw/train-images-idx3-ubyte.gz", &size);
    assert_non_null(packed);
    packed[size / 2] ^= 0x55;
    struct wf_err err = { 0 };
    assert_true(wf_file_write("gz/MNIST/raw/train-images-idx3-ubyte.gz", packed, size, &err));
    SUPPORT_REFUSED("gz", "train-images-idx3-ubyte.gz'");
    assert_true(wf_file_write("gz/MNIST/raw/train-images-idx3-ubyte.gz", packed, 12, &err));
    SUPPORT_REFUSED("gz", "train-images-idx3-ubyte.gz'");
    free(packed);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx__labels_images_and_holds_out_t10k),
        cmocka_unit_test(idx__refuses_damaged_files),
#ifdef WF_HAVE_ZLIB
        cmocka_unit_test(idx__is_unpacked),
#endif
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
