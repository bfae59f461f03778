/* LAS 1.0 to 1.4, the exchange format of aerial laser scans: integers that a scale and an offset turn into
 * coordinates; intensity, a class, and in some formats colours of 16 bits. LAZ is LAS, packed (cloud_laz.c). */
#include <inttypes.h>
#include <string.h>
#include <stdlib.h>

#include "cloud/cloud_las.h"

enum {
    HEAD = 227,
    HEAD_14 = 375,
    FORMATS = 11,
    PACKED_MOST = 64, /* points in a byte of LAZ: scans have less than one */
};

/* Bytes of a record, and where its class and colours are; 0: it has none. */
static const struct layout {
    int bytes, class_at, color_at;
} layouts[FORMATS] = {
    { 20, 15, 0 }, { 28, 15, 0 },  { 26, 15, 20 }, { 34, 15, 28 }, { 57, 15, 0 },  { 63, 15, 28 },
    { 30, 16, 0 }, { 36, 16, 30 }, { 38, 16, 30 }, { 59, 16, 0 },  { 67, 16, 30 },
};

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t u = 0;
    for (int i = 0; i < bytes; i++)
        u |= (uint64_t)at[i] << 8 * i;
    return u;
}

static double real(const unsigned char *at)
{
    const uint64_t u = number(at, 8);
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

static bool read_header(const struct wf_infile *file, struct wf_las *l, struct wf_cloud *c,
                        struct wf_err *err)
{
    unsigned char h[HEAD_14] = { 0 };
    const size_t have = file->size < HEAD_14 ? (size_t)file->size : HEAD_14;
    if (have < HEAD || !wf_infile_read(file, 0, h, have, err) || memcmp(h, "LASF", 4) != 0)
        return err->code ? false : wf_err_set(err, WF_ERR_INPUT, "'%s' is no LAS file", file->name);
    l->is_packed = h[104] & 0xc0;
    l->format = h[104] & 0x3f;
    l->start = (uint32_t)number(h + 96, 4);
    l->bytes = (uint32_t)number(h + 105, 2);
    uint64_t n = number(h + 107, 4);
    if (h[25] >= 4 && have >= HEAD_14)
        n = number(h + 247, 8);
    if (l->format >= FORMATS || l->bytes < (uint32_t)layouts[l->format].bytes)
        return wf_err_set(err, WF_ERR_INPUT, "'%s': points of format %d with %" PRIu32 " bytes",
                          file->name, l->format, l->bytes);
    l->has_color = layouts[l->format].color_at > 0;
    if (l->start > file->size || (l->is_packed ? n / PACKED_MOST > file->size - l->start
                                               : n > (file->size - l->start) / l->bytes))
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' promises %" PRIu64 " points and is too short for them: it is cut "
                          "short",
                          file->name, n);
    for (int k = 0; k < 3; k++) {
        l->scale[k] = real(h + 131 + 8 * k);
        l->offset[k] = real(h + 155 + 8 * k);
    }
    c->n = (int64_t)n;
    return true;
}

static bool read_point(const struct wf_las *l, struct wf_cloud_stream *s, int64_t i,
                       struct wf_cloud *c, struct wf_err *err)
{
    const struct layout *const y = &layouts[l->format];
    const unsigned char *const p = (const unsigned char *)wf_cloud_bytes(s, l->bytes, err);
    if (!p)
        return false;
    for (int k = 0; k < 3; k++)
        c->at[3 * i + k] =
            (double)(int32_t)(uint32_t)number(p + 4 * k, 4) * l->scale[k] + l->offset[k];
    c->columns[0].values[i] = (float)number(p + 12, 2);
    c->labels[i] = l->format < 6 ? p[y->class_at] & 0x1f : p[y->class_at];
    for (int k = 0; y->color_at && k < 3; k++)
        c->columns[1 + k].values[i] = (float)number(p + y->color_at + 2 * k, 2);
    return true;
}

static bool read_las(const struct wf_infile *file, const struct wf_cloud_options *o,
                     struct wf_cloud *c, struct wf_err *err)
{
    static const char *const colors[] = { "red", "green", "blue" };
    struct wf_las l = { 0 };
    if (!read_header(file, &l, c, err))
        return false;
    c->has_labels = true;
    (void)wf_cloud_add(c, "intensity");
    for (int k = 0; l.has_color && k < 3; k++)
        (void)wf_cloud_add(c, colors[k]);
    if (l.is_packed && !wf_laz_is_here(file->name, err))
        return false;
    if (o->header_only || c->n == 0)
        return true;
    if (l.is_packed)
        return wf_cloud_take(c, file->name, err) && wf_laz_read(file, &l, c, err);
    struct wf_cloud_stream *const s = calloc(1, sizeof *s);
    bool ok = (s || wf_err_set(err, WF_ERR_FIT, "'%s': no memory to read it", file->name)) &&
              wf_cloud_take(c, file->name, err);
    if (s) {
        s->file = file;
        s->at = l.start;
    }
    for (int64_t i = 0; ok && i < c->n; i++)
        ok = read_point(&l, s, i, c, err);
    free(s);
    return ok;
}

const struct wf_cloud_format wf_cloud_format_las = { .ending = ".las", .read = read_las };
const struct wf_cloud_format wf_cloud_format_laz = { .ending = ".laz", .read = read_las };
