/*
 * LAZ by LASzip's C interface. The library is opened when it is needed, so that a program without it reads all
 * else. What is declared here is the part of its interface (version 3, since 2017) that is used.
 */
#include <assert.h>
#include <stddef.h>

#include "base/library.h"
#include "cloud/cloud_las.h"

/* laszip_point: the library has bit fields where there are bytes here. */
struct laszip_point {
    int32_t at[3];
    uint16_t intensity;
    uint8_t returns, classification; /* the low five bits */
    int8_t angle;
    uint8_t user;
    uint16_t source;
    int16_t extended_angle;
    uint8_t extended_kind, extended_classification, extended_returns, unused[7];
    double time;
    uint16_t rgb[4];
};
static_assert(offsetof(struct laszip_point, extended_classification) == 23 &&
                  offsetof(struct laszip_point, time) == 32,
              "as LASzip lays it out");

struct laszip {
    int32_t (*create)(void **reader);
    int32_t (*destroy)(void *reader);
    int32_t (*get_error)(void *reader, char **error);
    int32_t (*open_reader)(void *reader, const char *path, int *is_packed);
    int32_t (*get_point_pointer)(void *reader, struct laszip_point **point);
    int32_t (*read_point)(void *reader);
    int32_t (*close_reader)(void *reader);
};
static const char *const functions[] = {
    "laszip_create",
    "laszip_destroy",
    "laszip_get_error",
    "laszip_open_reader",
    "laszip_get_point_pointer",
    "laszip_read_point",
    "laszip_close_reader",
    NULL,
};

static bool laszip_open(struct laszip *z, const char *name, struct wf_err *err)
{
    static const char *const names[] = { "liblaszip.so.8", "liblaszip.so", "liblaszip.dylib" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct wf_library library = { .title = "LASzip", .soname = names[i], .install = "" };
        struct wf_err missing = { 0 };
        if (wf_library_open(&library, functions, z, &missing))
            return true;
    }
    return wf_err_set(
        err, WF_ERR_INPUT,
        "'%s' is packed (LAZ), and the library that unpacks it is not here: install LASzip "
        "(liblaszip.so.8; packages liblaszip8, conda's laszip), or unpack the file with "
        "'laszip' or 'pdal translate IN.laz OUT.las'",
        name);
}

bool wf_laz_is_here(const char *name, struct wf_err *err)
{
    struct laszip z;
    return laszip_open(&z, name, err);
}

static void put_point(const struct wf_las *l, const struct laszip_point *p, int64_t i,
                      struct wf_cloud *c)
{
    for (int k = 0; k < 3; k++)
        c->at[3 * i + k] = (double)p->at[k] * l->scale[k] + l->offset[k];
    c->columns[0].values[i] = (float)p->intensity;
    c->labels[i] = l->format < 6 ? p->classification & 0x1f : p->extended_classification;
    for (int k = 0; l->has_color && k < 3; k++)
        c->columns[1 + k].values[i] = (float)p->rgb[k];
}

static bool fail(const struct laszip *z, void *reader, const char *name, struct wf_err *err)
{
    char *why = NULL;
    if (!reader || z->get_error(reader, &why) != 0 || !why)
        why = NULL;
    return wf_err_set(err, WF_ERR_INPUT, "'%s': LASzip cannot unpack it: %.200s", name,
                      why ? why : "it does not say why");
}

bool wf_laz_read(const struct wf_infile *file, const struct wf_las *l, struct wf_cloud *c,
                 struct wf_err *err)
{
    struct laszip z;
    struct laszip_point *point = NULL;
    void *reader = NULL;
    int is_packed = 0;
    if (file->fd < 0)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' is packed (LAZ) and lies in memory: write it to a file",
                          file->name);
    if (!laszip_open(&z, file->name, err))
        return false;
    bool ok = z.create(&reader) == 0;
    const bool is_open = ok && z.open_reader(reader, file->name, &is_packed) == 0;
    ok = is_open && z.get_point_pointer(reader, &point) == 0;
    for (int64_t i = 0; ok && i < c->n; i++) {
        ok = z.read_point(reader) == 0;
        if (ok)
            put_point(l, point, i, c);
    }
    if (!ok)
        (void)fail(&z, reader, file->name, err);
    if (is_open)
        (void)z.close_reader(reader);
    if (reader)
        (void)z.destroy(reader);
    return ok;
}
