/* Point clouds: what every format holds, what is refused, and what becomes of a cloud on its way to a network. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cloud/cloud.h"
#include "data/augment.h"
#include "data/clouds.h"
#include "data/loader.h"
#include "image/npz.h"
#include "support_data.h"
#include "support_scratch.h"

static const struct wf_cloud_options plain = { 0 };

static void parse(const char *name, const void *bytes, size_t size, struct wf_cloud *c)
{
    struct wf_err err = { 0 };
    if (!wf_cloud_parse(name, bytes, size, &plain, c, &err))
        fail_msg("%s", err.text);
}

/* Is refused, with a message that names the file and holds the text. */
static void refused(const char *name, const void *bytes, size_t size, const char *text)
{
    struct wf_err err = { 0 };
    struct wf_cloud c;
    assert_false(wf_cloud_parse(name, bytes, size, &plain, &c, &err));
    assert_non_null(strstr(err.text, name));
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
}

/* --- PLY --- */

static const char ascii[] = "ply\nformat ascii 1.0\ncomment of nobody\nelement vertex 2\n"
                            "property float x\nproperty float y\nproperty double z\n"
                            "property uchar red\nproperty float scalar_Label\n"
                            "property list uchar int rest\nproperty short quality\n"
                            "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
                            "1 2 3.5 255 4 0 -7\n-1.5 0 1e3 0 2 2 8 9 12\n3 0 1 1\n";

static void ply__text_has_positions_columns_and_labels(void **state)
{
    struct wf_cloud c;
    parse("a.ply", ascii, sizeof ascii - 1, &c);
    assert_int_equal(c.n, 2);
    const double want[] = { 1, 2, 3.5, -1.5, 0, 1000 };
    assert_memory_equal(c.at, want, sizeof want);
    assert_true(wf_cloud_column(&c, "red")[0] == 255 && wf_cloud_column(&c, "red")[1] == 0);
    assert_true(wf_cloud_column(&c, "quality")[0] == -7 && wf_cloud_column(&c, "quality")[1] == 12);
    assert_true(c.labels[0] == 4 && c.labels[1] == 2);
    wf_cloud_release(&c);
}

/* The same two points in both byte orders, written by hand. */
static void ply__bytes_of_both_orders_are_the_same(void **state)
{
    static const char form[] = "ply\nformat binary_%s_endian 1.0\nelement vertex 2\n"
                               "property float x\nproperty float y\nproperty float z\n"
                               "property ushort label\nend_header\n";
    static const unsigned char big[] = { 0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0, 0x3f, 0,    0, 0, 1, 2,
                                         0,    0,    0, 0, 0x40, 0, 0, 0, 0x41, 0x20, 0, 0, 0, 7 };
    static const unsigned char little[] = {
        0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0,    0x3f, 2, 1,
        0, 0, 0,    0,    0, 0, 0, 0x40, 0, 0, 0x20, 0x41, 7, 0
    };
    for (int i = 0; i < 2; i++) {
        char file[400];
        const int n = snprintf(file, sizeof file - 28, form, i ? "big" : "little");
        memcpy(file + n, i ? big : little, sizeof big);
        struct wf_cloud c;
        parse("b.ply", file, (size_t)n + sizeof big, &c);
        const double want[] = { 1, -2, 0.5, 0, 2, 10 };
        assert_memory_equal(c.at, want, sizeof want);
        assert_true(c.labels[0] == 258 && c.labels[1] == 7);
        wf_cloud_release(&c);
        refused("b.ply", file, (size_t)n + sizeof big - 1, "cut short");
    }
}

static void ply__what_lies_is_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } lies[] = {
        { "plx\n", "is no PLY file" },
        { "ply\nformat ascii 1.0\n", "the header has no end" },
        { "ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nproperty float y\n"
          "property float z\nend_header\n",
          "has no points" },
        { "ply\nformat ascii 1.0\nelement face 1\nproperty int x\nend_header\n1\n", "vertex" },
        { "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
          "end_header\n1 2\n",
          "no x, y, z" },
        { "ply\nformat ascii 1.0\nelement vertex 99999999\nproperty float x\nproperty float y\n"
          "property float z\nend_header\n1 2 3\n",
          "cut short" },
        { "ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\n"
          "property float z\nend_header\n1 2 3\n4 5",
          "cut short" },
        { "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
          "property float z\nend_header\n1 nan 3\n",
          "y of point 0 is not a finite number" },
        { "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
          "property float z\nproperty float label\nend_header\n1 2 3 1.5\n",
          "not a whole number" },
        { "ply\nformat ascii 1.0\nelement vertex 1\nproperty flat x\nend_header\n1\n",
          "no property" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        refused("c.ply", lies[i].text, strlen(lies[i].text), lies[i].why);
}

static void ply__what_is_written_comes_back(void **state)
{
    enum { N = 5000 };
    double *const at = malloc(3 * N * sizeof *at);
    uint8_t *const colors = malloc(3 * N);
    float *const normals = malloc(3 * N * sizeof *normals);
    int32_t labels[N];
    for (int i = 0; i < 3 * N; i++) {
        at[i] = 1e6 + i / 7.0;
        colors[i] = (uint8_t)(i * 7);
        normals[i] = (float)i;
        labels[i / 3] = i / 3 - 4;
    }
    struct wf_err err = { 0 };
    assert_true(wf_cloud_write_ply("w.ply",
                                   &(struct wf_cloud_ply){ N, at, colors, labels, normals }, &err));
    struct wf_cloud c;
    assert_true(wf_cloud_read("w.ply", &plain, &c, &err));
    assert_int_equal(c.n, N);
    assert_memory_equal(c.at, at, 3 * N * sizeof *at);
    assert_memory_equal(c.labels, labels, sizeof labels);
    for (int i = 0; i < N; i++) {
        assert_true(wf_cloud_column(&c, "green")[i] == colors[3 * i + 1]);
        assert_true(wf_cloud_column(&c, "nz")[i] == normals[3 * i + 2]);
    }
    wf_cloud_release(&c);
    free(at);
    free(colors);
    free(normals);
}

/* --- other formats --- */

static void kitti__scan_and_labels(void **state)
{
    const float points[2][4] = { { 1, 2, 3, 0.5f }, { -4, 5, 6, 0.25f } };
    const uint32_t labels[2] = { 10 | 7 << 16, 252 };
    struct wf_cloud c;
    struct wf_err err = { 0 };
    parse("s.bin", points, sizeof points, &c);
    assert_int_equal(c.n, 2);
    assert_true(c.at[3] == -4 && wf_cloud_column(&c, "intensity")[1] == 0.25f);
    wf_cloud_release(&c);
    refused("s.bin", points, sizeof points - 4, "cut short");
    refused("s.bin", points, 0, "has no points");
    assert_true(wf_file_write("s.label", labels, sizeof labels, &err));
    int32_t *const read = wf_cloud_read_labels("s.label", "s.bin", 2, &err);
    assert_true(read && read[0] == 10 && read[1] == 252);
    free(read);
    assert_null(wf_cloud_read_labels("s.label", "s.bin", 3, &err));
    assert_non_null(strstr(err.text, "'s.label' has 2 labels, but 's.bin' has 3 points"));
}

static void npz__arrays_by_name(void **state)
{
    const double at[2][3] = { { 1, 2, 3 }, { 4, 5, 6 } };
    const float colors[2][3] = { { 9, 8, 7 }, { 6, 5, 4 } }, intensity[2] = { 0.5f, 1 };
    const int32_t labels[2] = { 3, 1 };
    struct wf_err err = { 0 };
    struct wf_npz_writer w;
    bool ok =
        wf_npz_begin(&w, "c.npz", &err) &&
        wf_npz_put(&w, &(struct wf_npz_data){ "colors", WF_F32, 2, { 2, 3 }, colors }, &err) &&
        wf_npz_put(&w, &(struct wf_npz_data){ "points", WF_F64, 2, { 2, 3 }, at }, &err) &&
        wf_npz_put(&w, &(struct wf_npz_data){ "intensity", WF_F32, 1, { 2 }, intensity }, &err) &&
        wf_npz_put(&w, &(struct wf_npz_data){ "labels", WF_I32, 1, { 2 }, labels }, &err);
    assert_true(wf_npz_end(&w, ok, &err));
    struct wf_cloud c;
    assert_true(wf_cloud_read("c.npz", &plain, &c, &err));
    assert_memory_equal(c.at, at, sizeof at);
    assert_memory_equal(c.labels, labels, sizeof labels);
    assert_true(wf_cloud_column(&c, "green")[1] == 5 &&
                wf_cloud_column(&c, "intensity")[0] == 0.5f);
    wf_cloud_release(&c);
    ok = wf_npz_begin(&w, "d.npz", &err) &&
         wf_npz_put(&w, &(struct wf_npz_data){ "points", WF_F64, 2, { 2, 3 }, at }, &err) &&
         wf_npz_put(&w, &(struct wf_npz_data){ "labels", WF_I32, 1, { 1 }, labels }, &err);
    assert_true(wf_npz_end(&w, ok, &err));
    assert_false(wf_cloud_read("d.npz", &plain, &c, &err));
    assert_non_null(strstr(err.text, "'d.npz': 'labels'"));
}

/* A square of 2 x 1 and one a hundredth of it: points are on both, as many as the areas say. */
static void off__points_are_on_the_faces_by_area(void **state)
{
    static const char text[] = "OFF8 2 0\n0 0 0\n2 0 0\n2 1 0\n0 1 0\n# apart\n"
                               "0 0 5\n0.2 0 5\n0.2 0.1 5\n0 0.1 5\n4 0 1 2 3 255 0 0\n4 4 5 6 7\n";
    const struct wf_cloud_options o = { .points = 20000, .seed = 3 };
    struct wf_err err = { 0 };
    struct wf_cloud c;
    assert_true(wf_cloud_parse("m.off", text, sizeof text - 1, &o, &c, &err));
    assert_int_equal(c.n, 20000);
    int above = 0;
    double mean[2] = { 0 };
    for (int64_t i = 0; i < c.n; i++) {
        const double *const p = c.at + 3 * i;
        assert_true(p[2] == 0 || p[2] == 5);
        assert_true(p[0] >= 0 && p[0] <= 2 && p[1] >= 0 && p[1] <= 1);
        assert_true(fabs((double)wf_cloud_column(&c, "nz")[i]) == 1);
        above += p[2] == 5;
        for (int k = 0; p[2] == 0 && k < 2; k++)
            mean[k] += p[k] / 19800;
    }
    assert_in_range(above, 150, 250); /* 198 expected, deviation 14 */
    assert_true(fabs(mean[0] - 1) < 0.03 && fabs(mean[1] - 0.5) < 0.015);
    wf_cloud_release(&c);
    refused("m.off", text, 40, "cut short");
    refused("m.off", "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 3\n", 36, "vertex 3 of 3");
    refused("m.off", "OFF\n3 1 0\n0 0 0\n1 0 0\n2 0 0\n3 0 1 2\n", 36, "no area");
}

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static void put_real(unsigned char *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(at, bits, 8);
}

static void las__scale_offset_class_and_colour(void **state)
{
    enum { HEAD = 227, RECORD = 26 };
    unsigned char f[HEAD + 2 * RECORD] = "LASF";
    f[24] = 1;
    f[25] = 2;
    put(f + 94, HEAD, 2);
    put(f + 96, HEAD, 4);
    f[104] = 2;
    put(f + 105, RECORD, 2);
    put(f + 107, 2, 4);
    for (int k = 0; k < 3; k++) {
        put_real(f + 131 + 8 * k, 0.5);
        put_real(f + 155 + 8 * k, 100 * k);
    }
    for (int i = 0; i < 2; i++) {
        unsigned char *const p = f + HEAD + i * RECORD;
        for (int k = 0; k < 3; k++)
            put(p + 4 * k, (uint64_t)(int64_t)(i ? -4 : 6), 4);
        put(p + 12, 1000 + (uint64_t)i, 2);
        p[15] = (unsigned char)(0xe0 | (2 + i)); /* flags above five bits of class */
        put(p + 20, 65535, 2);
    }
    struct wf_cloud c;
    parse("a.las", f, sizeof f, &c);
    assert_int_equal(c.n, 2);
    const double want[] = { 3, 103, 203, -2, 98, 198 };
    assert_memory_equal(c.at, want, sizeof want);
    assert_true(c.labels[0] == 2 && c.labels[1] == 3);
    assert_true(wf_cloud_column(&c, "intensity")[1] == 1001 &&
                wf_cloud_column(&c, "red")[0] == 65535);
    wf_cloud_release(&c);
    refused("a.las", f, sizeof f - 1, "cut short");
    f[104] |= 0x80;
    refused("a.las", f, sizeof f, "LAZ");
}

/* --- on the way to a network --- */

/* A floor of 40 x 40 points, a tenth apart, with two labels. */
static void write_floor(const char *path)
{
    enum { SIDE = 40, N = SIDE * SIDE };
    static double at[N * 3];
    static uint8_t colors[N * 3];
    static int32_t labels[N];
    struct wf_err err = { 0 };
    for (int i = 0; i < N; i++) {
        at[3 * i] = 0.1 * (i % SIDE) + 0.05;
        const int row = i / SIDE;
        at[3 * i + 1] = 0.1 * row + 0.05;
        at[3 * i + 2] = 0.05;
        labels[i] = i % SIDE >= SIDE / 2;
        colors[3 * i] = (uint8_t)(i % 200);
    }
    assert_true(
        wf_cloud_write_ply(path, &(struct wf_cloud_ply){ N, at, colors, labels, NULL }, &err));
}

static struct wf_dataset *open_floors(int count)
{
    char name[64];
    support_folder("floors/train");
    support_folder("floors/val");
    for (int i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "floors/%s/f%d.ply", i % 2 ? "val" : "train", i);
        write_floor(name);
    }
    return support_open("floors");
}

static void dataset__points_voxels_and_labels_that_disagree(void **state)
{
    struct wf_dataset *const ds = open_floors(2);
    const struct wf_dataset_info *const info = wf_dataset_info(ds);
    assert_true(info->is_cloud && info->samples == 2 && info->channels == 3 &&
                info->n_classes == 2);
    assert_true(wf_dataset_sample(ds, 1)->held_out && !wf_dataset_sample(ds, 0)->held_out);
    struct wf_err err = { 0 };
    struct wf_cloud_sample s;
    assert_true(wf_cloud_sample_read(ds, 0, &(struct wf_cloud_rule){ .voxel = 0.8, .ignore = 9 },
                                     &s, &err));
    assert_int_equal(s.n, 1600);
    assert_int_equal(s.voxels.n, 25);
    for (int64_t v = 0; v < 25; v++) { /* the third column has both labels */
        const int32_t x = s.voxels.coords[3 * v];
        assert_int_equal(s.voxels.labels[v], x < 2 ? 0 : x > 2 ? 1 : 9);
    }
    for (int64_t i = 0; i < s.n; i++)
        assert_int_equal(s.voxels.coords[3 * s.voxels.voxel[i]], (int32_t)(s.at[3 * i] / 0.8));
    wf_cloud_sample_release(&s);
    wf_dataset_free(ds);
}

static void write_scan(const char *scan, const char *labels, int n, int n_labels)
{
    float points[8][4] = { { 0 } };
    uint32_t raw[8];
    struct wf_err err = { 0 };
    for (int i = 0; i < 8; i++) {
        points[i][0] = (float)i;
        raw[i] = (uint32_t)(i % 2 ? 40 : 252) | 5u << 16;
    }
    assert_true(wf_file_write(scan, points, (size_t)n * sizeof points[0], &err) &&
                wf_file_write(labels, raw, (size_t)n_labels * sizeof raw[0], &err));
}

static void kitti__sequences_with_labels_and_classes(void **state)
{
    support_folder("kitti/sequences/00/velodyne");
    support_folder("kitti/sequences/00/labels");
    support_folder("kitti/sequences/08/velodyne");
    support_folder("kitti/sequences/08/labels");
    support_folder("kitti/sequences/11/velodyne"); /* for testing: no labels */
    write_scan("kitti/sequences/00/velodyne/000000.bin", "kitti/sequences/00/labels/000000.label",
               8, 8);
    write_scan("kitti/sequences/08/velodyne/000000.bin", "kitti/sequences/08/labels/000000.label",
               4, 4);
    support_text("kitti/classes.txt", "road 40\nmoving 252-259\n");
    struct wf_dataset *const ds = support_open("kitti");
    const struct wf_dataset_info *const info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_KITTI);
    assert_true(info->samples == 2 && info->channels == 1 && info->n_classes == 2);
    assert_true(!wf_dataset_sample(ds, 0)->held_out && wf_dataset_sample(ds, 1)->held_out);
    struct wf_err err = { 0 };
    struct wf_cloud c;
    assert_true(wf_cloud_load(ds, 0, &c, &err));
    for (int i = 0; i < 8; i++)
        assert_int_equal(c.labels[i], i % 2 ? 0 : 1);
    wf_cloud_release(&c);
    wf_dataset_free(ds);
    write_scan("kitti/sequences/00/velodyne/000000.bin", "kitti/sequences/00/labels/000000.label",
               8, 7);
    SUPPORT_REFUSED("kitti", "sequences/00/labels/000000.label' has 7 labels",
                    "sequences/00/velodyne/000000.bin' has 8 points");
    write_scan("kitti/sequences/00/velodyne/000000.bin", "kitti/sequences/00/labels/000000.label",
               8, 8);
    support_text("kitti/classes.txt", "road 40\n");
    struct wf_dataset *const other = support_open("kitti");
    assert_int_equal(wf_dataset_info(other)->other, 6);
    assert_false(wf_cloud_load(other, 0, &c, &err));
    assert_non_null(strstr(err.text, "label 252 of point 0 is no class of 'kitti/classes.txt'"));
    wf_dataset_free(other);
}

/* ModelNet's folders: the parts are below the classes. */
static void classes__have_their_parts_below_them(void **state)
{
    static const char mesh[] = "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n";
    static const char *const folders[] = { "net/chair/train", "net/chair/test", "net/table/train",
                                           "net/table/test" };
    char name[64];
    for (int i = 0; i < 4; i++) {
        support_folder(folders[i]);
        (void)snprintf(name, sizeof name, "%s/m%d.off", folders[i], i);
        support_text(name, mesh);
    }
    struct wf_dataset *const ds = support_open("net");
    const struct wf_dataset_info *const info = wf_dataset_info(ds);
    assert_int_equal(info->layout, WF_LAYOUT_CLOUD_CLASSES);
    assert_true(info->samples == 4 && info->n_classes == 2 && info->labels == WF_LABELS_IMAGE);
    for (int i = 0; i < 4; i++) {
        const struct wf_data_sample *const s = wf_dataset_sample(ds, i);
        assert_int_equal(s->label, i / 2);
        assert_int_equal(s->held_out, i % 2);
        assert_int_equal(s->extent[WF_W], WF_CLOUD_SAMPLED);
    }
    wf_dataset_free(ds);
}

/* All augmentations keep what they promise, and are the same for the same (seed, epoch, item). */
static void augmentation__is_a_function_of_its_key(void **state)
{
    struct wf_err err = { 0 };
    struct wf_cloud a, b, other, from;
    write_floor("one.ply");
    const unsigned all = WF_AUGMENT_ROTATE | WF_AUGMENT_FLIP | WF_AUGMENT_SCALE;
    struct wf_cloud_rule rule = { .voxel = 0.1, .augment = all, .seed = 5, .epoch = 2, .item = 7 };
    assert_true(wf_cloud_read("one.ply", &plain, &a, &err) &&
                wf_cloud_read("one.ply", &plain, &b, &err) &&
                wf_cloud_read("one.ply", &plain, &other, &err) &&
                wf_cloud_read("one.ply", &plain, &from, &err));
    wf_cloud_augment(&a, &rule);
    wf_cloud_augment(&b, &rule);
    assert_memory_equal(a.at, b.at, (size_t)a.n * 3 * sizeof *a.at);
    rule.item = 8;
    wf_cloud_augment(&other, &rule);
    assert_memory_not_equal(a.at, other.at, (size_t)a.n * 3 * sizeof *a.at);
    /* Distances are those before, times one factor. */
    const double was = hypot(from.at[0] - from.at[300], from.at[1] - from.at[301]);
    const double is = hypot(a.at[0] - a.at[300], a.at[1] - a.at[301]);
    for (int i = 0; i < 100; i++) {
        const double x =
            hypot(from.at[3 * i] - from.at[3 * i + 900], from.at[3 * i + 1] - from.at[3 * i + 901]);
        const double y =
            hypot(a.at[3 * i] - a.at[3 * i + 900], a.at[3 * i + 1] - a.at[3 * i + 901]);
        assert_true(fabs(y / x - is / was) < 1e-9);
    }
    assert_true(is / was >= 0.9 && is / was <= 1.1);
    rule.augment = WF_AUGMENT_DROP | WF_AUGMENT_JITTER | WF_AUGMENT_ELASTIC;
    const int64_t before = b.n;
    wf_cloud_augment(&b, &rule);
    assert_true(b.n > before * 7 / 10 && b.n <= before);
    struct wf_cloud *const clouds[] = { &a, &b, &other, &from };
    for (int i = 0; i < 4; i++)
        wf_cloud_release(clouds[i]);
}

static struct wf_cloud_batch copy_of(const struct wf_cloud_batch *b)
{
    struct wf_cloud_batch c = { .n = b->n };
    c.coords = malloc((size_t)b->n * 4 * sizeof *c.coords);
    c.features = malloc((size_t)(b->n * b->channels) * sizeof *c.features);
    memcpy(c.coords, b->coords, (size_t)b->n * 4 * sizeof *c.coords);
    memcpy(c.features, b->features, (size_t)(b->n * b->channels) * sizeof *c.features);
    return c;
}

/* Threads, and where a run stopped, change nothing; two ranks have what one has. */
static void loader__batches_are_a_function_of_epoch_and_batch(void **state)
{
    struct wf_dataset *const ds = open_floors(10);
    struct wf_err err = { 0 };
    struct wf_loader_options o = { .part = WF_PART_TRAIN,
                                   .batch = 3,
                                   .row_end = 3,
                                   .voxel = 0.25,
                                   .augment = WF_AUGMENT_ROTATE | WF_AUGMENT_DROP,
                                   .seed = 4 };
    struct wf_loader *const one = wf_loader_new(ds, &o, &err);
    o.threads = 3;
    struct wf_loader *const many = wf_loader_new(ds, &o, &err);
    o.row_first = 2;
    struct wf_loader *const last = wf_loader_new(ds, &o, &err);
    assert_true(one && many && last && wf_loader_batches(one) == 2);
    wf_loader_seek(many, 1, 1);
    const struct wf_cloud_batch *a, *b;
    for (int i = 0; i < 6; i++) {
        assert_true(wf_loader_next_points(one, &a, &err) && wf_loader_next_points(last, &b, &err));
        assert_true(b->n > 0 && b->n < a->n);
        const int64_t first = a->n - b->n;
        assert_memory_equal(a->coords + 4 * first, b->coords, (size_t)b->n * 4 * sizeof *b->coords);
        if (i < 3)
            continue;
        struct wf_cloud_batch kept = copy_of(a);
        assert_true(wf_loader_next_points(many, &b, &err));
        assert_int_equal(kept.n, b->n);
        assert_memory_equal(kept.coords, b->coords, (size_t)b->n * 4 * sizeof *b->coords);
        assert_memory_equal(kept.features, b->features,
                            (size_t)(b->n * b->channels) * sizeof *b->features);
        free(kept.coords);
        free(kept.features);
    }
    wf_loader_free(one);
    wf_loader_free(many);
    wf_loader_free(last);
    wf_dataset_free(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ply__text_has_positions_columns_and_labels),
        cmocka_unit_test(ply__bytes_of_both_orders_are_the_same),
        cmocka_unit_test(ply__what_lies_is_refused),
        cmocka_unit_test(ply__what_is_written_comes_back),
        cmocka_unit_test(kitti__scan_and_labels),
        cmocka_unit_test(npz__arrays_by_name),
        cmocka_unit_test(off__points_are_on_the_faces_by_area),
        cmocka_unit_test(las__scale_offset_class_and_colour),
        cmocka_unit_test(dataset__points_voxels_and_labels_that_disagree),
        cmocka_unit_test(kitti__sequences_with_labels_and_classes),
        cmocka_unit_test(classes__have_their_parts_below_them),
        cmocka_unit_test(augmentation__is_a_function_of_its_key),
        cmocka_unit_test(loader__batches_are_a_function_of_epoch_and_batch),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
