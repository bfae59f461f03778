/* KITTI's scans: x, y, z and intensity as f32, nothing else; and labels in files beside a cloud. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cloud/cloud_inside.h"
#include "image/npy.h"

enum { POINT = 4 * sizeof(float) };

static bool read_bin(const struct wf_infile *file, const struct wf_cloud_options *o,
                     struct wf_cloud *c, struct wf_err *err)
{
    if (file->size % POINT != 0)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' has %" PRIu64 " bytes, no multiple of 16 (x, y, z, intensity as "
                          "f32): it is cut short, or no scan",
                          file->name, file->size);
    c->n = (int64_t)(file->size / POINT);
    const int intensity = wf_cloud_add(c, "intensity");
    if (o->header_only)
        return true;
    if (!wf_cloud_take(c, file->name, err))
        return false;
    struct wf_cloud_stream *const s = calloc(1, sizeof *s);
    bool ok = s || wf_err_set(err, WF_ERR_FIT, "'%s': no memory to read it", file->name);
    if (s)
        s->file = file;
    for (int64_t i = 0; ok && i < c->n; i++) {
        float p[4];
        const char *const from = wf_cloud_bytes(s, POINT, err);
        ok = from != NULL;
        if (!ok)
            break;
        memcpy(p, from, POINT);
        for (int k = 0; k < 3; k++)
            c->at[3 * i + k] = (double)p[k];
        c->columns[intensity].values[i] = p[3];
    }
    free(s);
    return ok;
}

const struct wf_cloud_format wf_cloud_format_bin = { .ending = ".bin", .read = read_bin };

/* --- labels --- */

struct labels {
    const char *path, *of;
    int64_t n;
    int32_t *to;
};

static bool other_length(const struct labels *l, int64_t have, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s' has %" PRId64 " labels, but '%s' has %" PRId64 " points", l->path, have,
                      l->of, l->n);
}

static bool read_u32(const struct labels *l, struct wf_err *err)
{
    struct wf_infile file;
    if (!wf_infile_open(&file, l->path, err))
        return false;
    const size_t bytes = (size_t)l->n * sizeof(uint32_t);
    bool ok = file.size == bytes || other_length(l, (int64_t)(file.size / 4), err);
    ok = ok && wf_infile_read(&file, 0, l->to, bytes, err);
    for (int64_t i = 0; ok && i < l->n; i++)
        l->to[i] &= 0xffff; /* what is above is the instance */
    wf_infile_close(&file);
    return ok;
}

static bool read_npy(const struct labels *l, struct wf_err *err)
{
    struct wf_npy a;
    if (!wf_npy_open(&a, l->path, err))
        return false;
    const bool ok = (a.count == l->n || other_length(l, a.count, err)) &&
                    wf_npy_read(&a, 0, l->n, WF_I32, l->to, err);
    wf_npy_close(&a);
    return ok;
}

static bool read_txt(const struct labels *l, struct wf_err *err)
{
    struct wf_infile file;
    if (!wf_infile_open(&file, l->path, err))
        return false;
    struct wf_cloud_stream *const s = calloc(1, sizeof *s);
    bool ok = s || wf_err_set(err, WF_ERR_FIT, "'%s': no memory to read it", l->path);
    if (s)
        s->file = &file;
    char word[64];
    int64_t n = 0;
    while (ok && wf_cloud_word(s, word, sizeof word, false, err)) {
        char *end;
        const double value = strtod(word, &end);
        if (*end)
            ok = wf_err_set(err, WF_ERR_INPUT, "'%s': '%.20s' is no label", l->path, word);
        else if (n < l->n)
            ok = wf_cloud_label(l->path, n, value, &l->to[n], err);
        n++;
    }
    ok = ok && !err->code && (n == l->n || other_length(l, n, err));
    free(s);
    wf_infile_close(&file);
    return ok;
}

int32_t *wf_cloud_read_labels(const char *path, const char *of, int64_t n, struct wf_err *err)
{
    const struct labels l = { path, of, n, malloc((size_t)(n + 1) * sizeof(int32_t)) };
    const char *const ending = strrchr(path, '.');
    if (!l.to) {
        (void)wf_err_set(err, WF_ERR_FIT, "'%s': no memory for its labels", path);
        return NULL;
    }
    const bool ok = ending && strcasecmp(ending, ".npy") == 0   ? read_npy(&l, err)
                    : ending && strcasecmp(ending, ".txt") == 0 ? read_txt(&l, err)
                                                                : read_u32(&l, err);
    if (ok)
        return l.to;
    free(l.to);
    return NULL;
}
