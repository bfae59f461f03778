/* NIfTI headers: what says where voxels lie is copied, number by number, from headers of either version
 * and either byte order; the rest is what NIfTI-1 asks for. Offsets are those of nifti1.h and nifti2.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"
#include "image/raster_format.h"
#include "support_scratch.h"

enum { W = 5, H = 4, D = 3, HEAD_1 = 352, HEAD_2 = 544, TIME = 6 };

/* An oblique volume: no row of the affine has a zero. All numbers are exact in f32 but the fractions,
 * which are the nearest f32. */
static const float pixdim[8] = { -1, 0.7f, 0.8f, 2.5f, 3.25f, 4, 5, 6 };
static const float quatern[3] = { 0.1f, -0.2f, 0.3f }, origin[3] = { -90.5f, 126.25f, -72.125f };
static const float affine[12] = { 0.68f, 0.1f,    -0.31f, -90.5f, -0.12f, 0.77f,
                                  0.52f, 126.25f, 0.11f,  -0.19f, 2.42f,  -72.125f };
enum { UNITS = 10 /* millimetres and seconds */, QFORM = 1, SFORM = 4 };

struct source {
    unsigned char *bytes;
    size_t size;
    bool swapped;
};

static void put(struct source *s, size_t at, const void *value, size_t size)
{
    assert_true(at + size <= s->size);
    memcpy(s->bytes + at, value, size);
    if (s->swapped)
        wf_sample_swap(s->bytes + at, 1, size);
}

static void put_i16(struct source *s, size_t at, int value)
{
    put(s, at, &(int16_t){ (int16_t)value }, 2);
}

static void put_f32s(struct source *s, size_t at, const float *values, int count)
{
    for (int i = 0; i < count; i++)
        put(s, at + 4 * (size_t)i, &values[i], 4);
}

static void put_f64s(struct source *s, size_t at, const float *values, int count)
{
    for (int i = 0; i < count; i++)
        put(s, at + 8 * (size_t)i, &(double){ (double)values[i] }, 8);
}

/* f32 volumes of W x H x D, TIME of them where the rank is 4. */
static struct source make_1(int rank, bool swapped)
{
    struct source s = { .size = HEAD_1 + W * H * D * TIME * 4, .swapped = swapped };
    const int dim[8] = { rank, W, H, rank > 2 ? D : 1, rank > 3 ? TIME : 1, 1, 1, 1 };
    s.bytes = calloc(1, s.size);
    assert_non_null(s.bytes);
    put(&s, 0, &(int32_t){ 348 }, 4);
    for (size_t i = 0; i < 8; i++)
        put_i16(&s, 40 + 2 * i, dim[i]);
    put_i16(&s, 70, 16);
    put_i16(&s, 72, 32);
    put_f32s(&s, 76, pixdim, 8);
    put_f32s(&s, 108, (float[]){ HEAD_1 }, 1);
    s.bytes[123] = UNITS;
    put_i16(&s, 252, QFORM);
    put_i16(&s, 254, SFORM);
    put_f32s(&s, 256, quatern, 3);
    put_f32s(&s, 268, origin, 3);
    put_f32s(&s, 280, affine, 12);
    memcpy(s.bytes + 344, "n+1", 4);
    return s;
}

static struct source make_2(bool swapped)
{
    struct source s = { .size = HEAD_2 + W * H * D * 4, .swapped = swapped };
    const int64_t dim[8] = { 3, W, H, D, 1, 1, 1, 1 }, data = HEAD_2;
    s.bytes = calloc(1, s.size);
    assert_non_null(s.bytes);
    put(&s, 0, &(int32_t){ 540 }, 4);
    memcpy(s.bytes + 4, "n+2\0\r\n\032\n", 8);
    put_i16(&s, 12, 16);
    put_i16(&s, 14, 32);
    for (size_t i = 0; i < 8; i++)
        put(&s, 16 + 8 * i, &dim[i], 8);
    put_f64s(&s, 104, pixdim, 8);
    put(&s, 168, &data, 8);
    put(&s, 344, &(int32_t){ QFORM }, 4);
    put(&s, 348, &(int32_t){ SFORM }, 4);
    put_f64s(&s, 352, quatern, 3);
    put_f64s(&s, 376, origin, 3);
    put_f64s(&s, 400, affine, 12);
    put(&s, 500, &(int32_t){ UNITS }, 4);
    return s;
}

/* Writes a file of zeros, and gives its first `size` bytes. */
static void write_head(const char *path, const struct wf_raster_info *info, unsigned char *head,
                       size_t size)
{
    struct wf_err err = { 0 };
    const struct wf_region all = { .hi = { 1, info->depth, info->height, info->width, 1 } };
    const size_t pixels = (size_t)(info->depth * info->height * info->width * info->channels);
    void *zeros = calloc(pixels, wf_sample_size(info->sample));
    assert_non_null(zeros);
    struct wf_raster_writer *w = wf_raster_create(path, info, &err);
    if (!w)
        fail_msg("%s", err.text);
    const bool ok = wf_raster_write_window(w, &all, zeros, &err);
    if (!wf_raster_writer_close(w, ok, &err))
        fail_msg("%s", err.text);
    struct wf_infile file;
    assert_true(wf_infile_open(&file, path, &err));
    assert_int_equal(file.size, HEAD_1 + pixels * wf_sample_size(info->sample));
    assert_true(wf_infile_read(&file, 0, head, size, &err));
    wf_infile_close(&file);
    free(zeros);
}

/* Field by field; what is not named is zero. */
struct want {
    int rank, extents[4], type, bits, units, qform, sform;
    const float *pixdim, *quatern, *origin, *affine; /* NULL: zeros */
};

static void check_head(const unsigned char *head, const struct want *want)
{
    struct source s = { .bytes = calloc(1, HEAD_1), .size = HEAD_1 };
    assert_non_null(s.bytes);
    put(&s, 0, &(int32_t){ 348 }, 4); /* sizeof_hdr */
    s.bytes[38] = 'r';                /* regular */
    put_i16(&s, 40, want->rank);      /* dim */
    for (size_t i = 0; i < 4; i++)
        put_i16(&s, 42 + 2 * i, want->extents[i]);
    for (size_t i = 5; i < 8; i++)
        put_i16(&s, 40 + 2 * i, 1);
    put_i16(&s, 70, want->type); /* datatype */
    put_i16(&s, 72, want->bits); /* bitpix */
    put_f32s(&s, 76, want->pixdim, 8);
    put_f32s(&s, 108, (float[]){ 352, 1, 0 }, 3); /* vox_offset, scl_slope, scl_inter */
    s.bytes[123] = (unsigned char)want->units;    /* xyzt_units */
    put_i16(&s, 252, want->qform);
    put_i16(&s, 254, want->sform);
    put_f32s(&s, 256, want->quatern, want->quatern ? 3 : 0);
    put_f32s(&s, 268, want->origin, want->origin ? 3 : 0);
    put_f32s(&s, 280, want->affine, want->affine ? 12 : 0); /* srow_x, srow_y, srow_z */
    memcpy(s.bytes + 344, "n+1", 4);
    for (int i = 0; i < HEAD_1; i++)
        if (head[i] != s.bytes[i])
            fail_msg("byte %d of the header is %d, expected %d", i, head[i], s.bytes[i]);
    free(s.bytes);
}

/* Classes of the source that has all that can be copied. */
static struct want classes_of(int rank, int depth)
{
    return (struct want){ .rank = rank,
                          .extents = { W, H, depth, 1 },
                          .type = 2,
                          .bits = 8,
                          .units = UNITS,
                          .qform = QFORM,
                          .sform = SFORM,
                          .pixdim = pixdim,
                          .quatern = quatern,
                          .origin = origin,
                          .affine = affine };
}

/* Classes, many classes and probabilities as predict writes them for this source. */
static void check_copies(struct source s)
{
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_parse("source.nii", s.bytes, s.size, &err);
    if (!r)
        fail_msg("%s", err.text);
    const struct wf_raster_info *from = wf_raster_info(r);
    unsigned char head[HEAD_1];
    struct wf_raster_info info = {
        .depth = D, .height = H, .width = W, .channels = 1, .place = from->place
    };
    struct want want = classes_of(3, D);
    write_head("classes.nii", &info, head, sizeof head);
    check_head(head, &want);
    info.sample = WF_SAMPLE_U16;
    want.type = 512;
    want.bits = 16;
    write_head("many.nii", &info, head, sizeof head);
    check_head(head, &want);
    info.sample = WF_SAMPLE_F32;
    info.channels = 2;
    want.type = 16;
    want.bits = 32;
    want.rank = 4;
    want.extents[3] = 2;
    float sizes[8];
    memcpy(sizes, pixdim, sizeof sizes);
    sizes[4] = 1; /* the source's time step is none of the classes' */
    want.pixdim = sizes;
    write_head("probabilities.nii", &info, head, sizeof head);
    check_head(head, &want);
    wf_raster_close(r);
    free(s.bytes);
}

static void header__is_copied_from_either_version_and_byte_order(void **state)
{
    check_copies(make_1(3, false));
    check_copies(make_1(3, true));
    check_copies(make_1(4, false));
    check_copies(make_2(false));
    check_copies(make_2(true));
}

static void header__of_a_plane_has_two_axes(void **state)
{
    struct wf_err err = { 0 };
    struct source s = make_1(2, true);
    struct wf_raster *r = wf_raster_parse("plane.nii", s.bytes, s.size, &err);
    assert_non_null(r);
    const struct wf_raster_info info = {
        .depth = 1, .height = H, .width = W, .channels = 1, .place = wf_raster_info(r)->place
    };
    unsigned char head[HEAD_1];
    write_head("plane.nii", &info, head, sizeof head);
    const struct want want = classes_of(2, 1);
    check_head(head, &want);
    wf_raster_close(r);
    free(s.bytes);
}

/* From a file that has no affine: the size of a pixel, where it is known, and no more. */
static void header__of_another_format_has_its_resolution(void **state)
{
    const float ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, sizes[8] = { 1, 0.25f, 0.5f, 1, 1, 1, 1, 1 };
    const struct wf_raster_place place = { .x = 40, .y = 20, .unit = WF_UNIT_CM };
    struct wf_raster_info info = {
        .depth = 1, .height = H, .width = W, .channels = 3, .sample = WF_SAMPLE_U8
    };
    struct want want = {
        .rank = 2, .extents = { W, H, 1, 1 }, .type = 128, .bits = 24, .pixdim = ones
    };
    unsigned char head[HEAD_1];
    write_head("colours.nii", &info, head, sizeof head);
    check_head(head, &want);
    info.place = &place;
    want.pixdim = sizes;
    want.units = 2;
    write_head("sized.nii", &info, head, sizeof head);
    check_head(head, &want);
}

/* By our own reader, through gzip too: the copy of a copy is the same. */
static void place__comes_back_as_it_was(void **state)
{
    static const char *const paths[] = {
        "again.nii",
#ifdef WF_HAVE_ZLIB
        "again.nii.gz",
#endif
    };
    struct wf_err err = { 0 };
    struct source s = make_1(3, true);
    struct wf_raster *r = wf_raster_parse("source.nii", s.bytes, s.size, &err);
    assert_non_null(r);
    const struct wf_raster_info info = { .depth = D,
                                         .height = H,
                                         .width = W,
                                         .channels = 1,
                                         .sample = WF_SAMPLE_F32,
                                         .place = wf_raster_info(r)->place };
    const struct wf_region all = { .hi = { 1, D, H, W, 1 } };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        float voxels[D * H * W], back[D * H * W];
        for (int v = 0; v < D * H * W; v++)
            voxels[v] = (float)v / 7;
        struct wf_raster_writer *w = wf_raster_create(paths[i], &info, &err);
        assert_non_null(w);
        const bool ok = wf_raster_write_window(w, &all, voxels, &err);
        assert_true(wf_raster_writer_close(w, ok, &err));
        struct wf_raster *copy = wf_raster_open(paths[i], &err);
        if (!copy)
            fail_msg("%s", err.text);
        const struct wf_raster_info *got = wf_raster_info(copy);
        assert_int_equal(got->gzipped, i == 1);
        assert_memory_equal(&got->place->space, &info.place->space, sizeof info.place->space);
        assert_true(got->place->x == info.place->x && got->place->unit == WF_UNIT_CM);
        assert_true(wf_raster_read_window(copy, &all, 0, 1, WF_F32, back, &err));
        assert_memory_equal(back, voxels, sizeof voxels);
        wf_raster_close(copy);
    }
    assert_int_equal(count_files(".", ".partial"), 0);
    wf_raster_close(r);
    free(s.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header__is_copied_from_either_version_and_byte_order),
        cmocka_unit_test(header__of_a_plane_has_two_axes),
        cmocka_unit_test(header__of_another_format_has_its_resolution),
        cmocka_unit_test(place__comes_back_as_it_was),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
