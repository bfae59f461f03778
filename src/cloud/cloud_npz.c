/* Arrays of numpy. An .npz has them by name: points (xyz, coords, positions) [n, 3], colors (rgb) [n, 3], normals
 * [n, 3], labels [n], and others of one axis, such as intensity. An .npy is [n, 3], or with intensity (4), colours
 * (6), colours and label (7). */
#include <inttypes.h>
#include <string.h>

#include "cloud/cloud_inside.h"
#include "image/npz.h"

enum { MOST = 64 }; /* columns of an .npy */

/* A double of the file as it is, whatever type it has. */
static bool read_numbers(const struct wf_npy *a, int64_t first, int64_t count, double *to,
                         struct wf_err *err)
{
    return wf_npy_read(a, first, count, WF_F64, to, err);
}

/* Row by row: `to` gives for each column of the array where it goes. */
struct target {
    double *at; /* of point 0, three apart; NULL: */
    float *values;
    int32_t *labels;
};

static bool read_rows(const struct wf_npy *a, const char *path, int width, const struct target to[],
                      struct wf_err *err)
{
    enum { BLOCK = 1024 };
    double block[BLOCK];
    const int64_t n = a->count / width, each = BLOCK / width;
    bool ok = true;
    for (int64_t from = 0; ok && from < n; from += each) {
        const int64_t rows = n - from < each ? n - from : each;
        ok = read_numbers(a, from * width, rows * width, block, err);
        for (int64_t i = 0; ok && i < rows * width; i++) {
            const struct target *const t = &to[i % width];
            const int64_t point = from + i / width;
            if (t->at)
                t->at[3 * point] = block[i];
            else if (t->values)
                t->values[point] = (float)block[i];
            else if (t->labels)
                ok = wf_cloud_label(path, point, block[i], &t->labels[point], err);
        }
    }
    return ok;
}

/* --- .npy --- */

static bool read_npy(const struct wf_infile *file, const struct wf_cloud_options *o,
                     struct wf_cloud *c, struct wf_err *err)
{
    static const char *const names[] = { "red", "green", "blue" };
    struct wf_npy a;
    if (!(file->memory ? wf_npy_parse(&a, file->name, file->memory, (size_t)file->size, err)
                       : wf_npy_open(&a, file->name, err)))
        return false;
    const int64_t width = a.rank == 2 ? a.shape[1] : 0;
    bool ok = width == 3 || width == 4 || width == 6 || width == 7 ||
              wf_err_set(err, WF_ERR_INPUT,
                         "'%s': points are [n, 3] (x y z), [n, 4] (and intensity), [n, 6] (and "
                         "colours) or [n, 7] (and a label); for others name the columns in an .npz",
                         file->name);
    c->n = ok ? a.shape[0] : 0;
    c->has_labels = width == 7;
    if (ok && width == 4)
        (void)wf_cloud_add(c, "intensity");
    for (int k = 0; ok && width >= 6 && k < 3; k++)
        (void)wf_cloud_add(c, names[k]);
    if (ok && !o->header_only && c->n > 0) {
        ok = wf_cloud_take(c, file->name, err);
        struct target to[MOST] = { 0 };
        for (int64_t k = 0; ok && k < width; k++) {
            if (k < 3)
                to[k].at = c->at + k;
            else if (k - 3 == c->n_columns)
                to[k].labels = c->labels;
            else
                to[k].values = c->columns[k - 3].values;
        }
        ok = ok && read_rows(&a, file->name, (int)width, to, err);
    }
    wf_npy_close(&a);
    return ok;
}

/* --- .npz --- */

static const char *const at_names[] = { "points", "xyz", "coords", "positions", NULL };
static const struct group {
    const char *names[3], *columns[3];
} groups[] = {
    { { "colors", "colours", "rgb" }, { "red", "green", "blue" } },
    { { "normals", "normal", "normals" }, { "nx", "ny", "nz" } },
};
enum { GROUPS = sizeof groups / sizeof *groups };

static bool is_one_of(const char *name, const char *const names[], int n)
{
    for (int i = 0; i < n && names[i]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static const struct group *group_of(const char *name)
{
    for (int g = 0; g < GROUPS; g++)
        if (is_one_of(name, groups[g].names, 3))
            return &groups[g];
    return NULL;
}

static const struct wf_npz_member *find_at(const struct wf_npz *z)
{
    for (int i = 0; at_names[i]; i++)
        if (wf_npz_find(z, at_names[i]))
            return wf_npz_find(z, at_names[i]);
    return NULL;
}

/* What the members are, by their names; a group has three columns. */
static void declare(const struct wf_npz *z, struct wf_cloud *c)
{
    for (size_t i = 0; i < z->count; i++) {
        const char *const name = z->members[i].name;
        const struct group *const g = group_of(name);
        char ours[WF_CLOUD_NAME];
        wf_cloud_name(ours, name);
        if (is_one_of(name, at_names, 8))
            continue;
        if (strcmp(ours, "label") == 0)
            c->has_labels = true;
        else if (!g)
            (void)wf_cloud_add(c, name);
        for (int k = 0; g && k < 3; k++)
            (void)wf_cloud_add(c, g->columns[k]);
    }
}

static float *column(const struct wf_cloud *c, const char *name)
{
    for (int i = 0; i < c->n_columns; i++)
        if (strcmp(c->columns[i].name, name) == 0)
            return c->columns[i].values;
    return NULL;
}

static bool read_member(const struct wf_npz *z, const char *path, const char *name,
                        struct wf_cloud *c, struct wf_err *err)
{
    const struct group *const g = group_of(name);
    const bool is_at = is_one_of(name, at_names, 8);
    const int width = g || is_at ? 3 : 1;
    char ours[WF_CLOUD_NAME];
    struct wf_npz_array a = { 0 };
    bool ok = wf_npz_load(z, name, &a, err);
    if (ok && (a.npy.count != c->n * width || a.npy.rank < 1 || a.npy.shape[0] != c->n))
        ok = wf_err_set(err, WF_ERR_INPUT,
                        "'%s': '%s' has %" PRId64 " rows of %" PRId64
                        " numbers in all, but there are "
                        "%" PRId64 " points: wanted %d for each",
                        path, name, a.npy.rank > 0 ? a.npy.shape[0] : 0, a.npy.count, c->n, width);
    struct target to[3] = { 0 };
    wf_cloud_name(ours, name);
    for (int k = 0; k < width; k++) {
        if (is_at)
            to[k].at = c->at + k;
        else if (g)
            to[k].values = column(c, g->columns[k]);
        else if (strcmp(ours, "label") == 0)
            to[k].labels = c->labels;
        else
            to[k].values = column(c, ours);
    }
    ok = ok && read_rows(&a.npy, path, width, to, err);
    wf_npz_array_release(&a);
    return ok;
}

static bool read_all(const struct wf_npz *z, const char *path, const struct wf_cloud_options *o,
                     struct wf_cloud *c, struct wf_err *err)
{
    const struct wf_npz_member *const at = find_at(z);
    if (!at)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' has no array 'points' [n, 3]; others may be colors [n, 3], normals "
                          "[n, 3], intensity [n], labels [n]",
                          path);
    struct wf_npz_array a = { 0 };
    bool ok = wf_npz_load(z, at->name, &a, err);
    if (ok && (a.npy.rank != 2 || a.npy.shape[1] != 3))
        ok = wf_err_set(err, WF_ERR_INPUT, "'%s': '%s' is not [n, 3]", path, at->name);
    c->n = ok ? a.npy.shape[0] : 0;
    wf_npz_array_release(&a);
    if (!ok)
        return false;
    declare(z, c);
    if (o->header_only || c->n == 0)
        return true;
    ok = wf_cloud_take(c, path, err);
    for (size_t i = 0; ok && i < z->count; i++)
        if (is_one_of(z->members[i].name, at_names, 8) ? &z->members[i] == at : true)
            ok = read_member(z, path, z->members[i].name, c, err);
    return ok;
}

static bool read_npz(const struct wf_infile *file, const struct wf_cloud_options *o,
                     struct wf_cloud *c, struct wf_err *err)
{
    struct wf_npz z;
    if (!(file->memory ? wf_npz_parse(&z, file->name, file->memory, (size_t)file->size, err)
                       : wf_npz_open(&z, file->name, err)))
        return false;
    const bool ok = read_all(&z, file->name, o, c, err);
    wf_npz_close(&z);
    return ok;
}

const struct wf_cloud_format wf_cloud_format_npz = { .ending = ".npz", .read = read_npz };
const struct wf_cloud_format wf_cloud_format_npy = { .ending = ".npy", .read = read_npy };
