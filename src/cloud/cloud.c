#include "cloud/cloud.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cloud/cloud_inside.h"

static const struct wf_cloud_format *const formats[] = {
    &wf_cloud_format_ply, &wf_cloud_format_npz, &wf_cloud_format_npy, &wf_cloud_format_off,
    &wf_cloud_format_bin, &wf_cloud_format_las, &wf_cloud_format_laz,
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* --- names --- */

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcasecmp(name + n - m, ending) == 0;
}

static const struct wf_cloud_format *format_of(const char *name)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (ends_with(name, formats[i]->ending))
            return formats[i];
    return NULL;
}

bool wf_cloud_is_name(const char *name)
{
    return format_of(name) != NULL;
}

bool wf_cloud_is_mesh(const char *name)
{
    const struct wf_cloud_format *const f = format_of(name);
    return f && f->is_mesh;
}

bool wf_cloud_is_labels(const char *name)
{
    return ends_with(name, ".label") || ends_with(name, ".npy") || ends_with(name, ".txt");
}

void wf_cloud_name(char to[WF_CLOUD_NAME], const char *name)
{
    static const struct {
        const char *theirs, *ours;
    } known[] = {
        { "r", "red" },
        { "g", "green" },
        { "b", "blue" },
        { "diffuse_red", "red" },
        { "diffuse_green", "green" },
        { "diffuse_blue", "blue" },
        { "reflectance", "intensity" },
        { "remission", "intensity" },
        { "normal_x", "nx" },
        { "normal_y", "ny" },
        { "normal_z", "nz" },
        { "labels", "label" },
        { "class", "label" },
        { "classification", "label" },
        { "semantic", "label" },
        { "category", "label" },
    };
    if (strncasecmp(name, "scalar_", 7) == 0) /* CloudCompare's */
        name += 7;
    (void)snprintf(to, WF_CLOUD_NAME, "%s", name);
    for (char *c = to; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(to, known[i].theirs) == 0)
            (void)snprintf(to, WF_CLOUD_NAME, "%s", known[i].ours);
}

int wf_cloud_add(struct wf_cloud *c, const char *name)
{
    if (c->n_columns == WF_CLOUD_COLUMNS)
        return -1;
    wf_cloud_name(c->columns[c->n_columns].name, name);
    return c->n_columns++;
}

static const struct wf_cloud_column *find(const struct wf_cloud *c, const char *name)
{
    for (int i = 0; i < c->n_columns; i++)
        if (strcmp(c->columns[i].name, name) == 0)
            return &c->columns[i];
    return NULL;
}

const float *wf_cloud_column(const struct wf_cloud *c, const char *name)
{
    const struct wf_cloud_column *const found = find(c, name);
    return found ? found->values : NULL;
}

bool wf_cloud_has(const struct wf_cloud *c, const char *name)
{
    return find(c, name) != NULL;
}

/* --- memory --- */

bool wf_cloud_take(struct wf_cloud *c, const char *path, struct wf_err *err)
{
    const size_t n = (size_t)c->n + 1;
    c->at = malloc(n * 3 * sizeof *c->at);
    c->labels = c->has_labels ? malloc(n * sizeof *c->labels) : NULL;
    bool ok = c->at && (!c->has_labels || c->labels);
    for (int i = 0; i < c->n_columns; i++) {
        c->columns[i].values = malloc(n * sizeof(float));
        ok = ok && c->columns[i].values;
    }
    return ok || wf_err_set(err, WF_ERR_FIT, "'%s': no memory for %" PRId64 " points of %d columns",
                            path, c->n, 3 + c->n_columns);
}

void wf_cloud_release(struct wf_cloud *c)
{
    free(c->at);
    free(c->labels);
    for (int i = 0; i < c->n_columns; i++)
        free(c->columns[i].values);
    *c = (struct wf_cloud){ 0 };
}

bool wf_cloud_label(const char *path, int64_t point, double value, int32_t *label,
                    struct wf_err *err)
{
    if (!(value >= INT32_MIN && value <= INT32_MAX) || value != floor(value))
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': the label %g of point %" PRId64 " is not a whole number", path,
                          value, point);
    *label = (int32_t)value;
    return true;
}

/* --- reading --- */

static bool check(const struct wf_cloud *c, const char *path, struct wf_err *err)
{
    if (c->n < 1)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has no points", path);
    for (int64_t i = 0; c->at && i < 3 * c->n; i++)
        if (!isfinite(c->at[i]))
            return wf_err_set(err, WF_ERR_INPUT,
                              "'%s': %c of point %" PRId64
                              " is not a finite number: remove points that were not measured",
                              path, "xyz"[i % 3], i / 3);
    return true;
}

static bool read_file(const struct wf_infile *file, const struct wf_cloud_options *o,
                      struct wf_cloud *c, struct wf_err *err)
{
    const struct wf_cloud_format *const f = format_of(file->name);
    *c = (struct wf_cloud){ 0 };
    if (!f)
        return wf_err_set(
            err, WF_ERR_INPUT,
            "'%s' is no point cloud that can be read: use .ply, .npz, .npy, .las, .laz, "
            ".off or .bin",
            file->name);
    const bool ok = f->read(file, o, c, err) && check(c, file->name, err);
    if (!ok)
        wf_cloud_release(c);
    return ok;
}

bool wf_cloud_read(const char *path, const struct wf_cloud_options *o, struct wf_cloud *c,
                   struct wf_err *err)
{
    struct wf_infile file;
    if (!wf_infile_open(&file, path, err))
        return false;
    const bool ok = read_file(&file, o, c, err);
    wf_infile_close(&file);
    return ok;
}

bool wf_cloud_parse(const char *name, const void *bytes, size_t size,
                    const struct wf_cloud_options *o, struct wf_cloud *c, struct wf_err *err)
{
    struct wf_infile file;
    wf_infile_memory(&file, name, bytes, size);
    const bool ok = read_file(&file, o, c, err);
    wf_infile_close(&file);
    return ok;
}
