#include "data/picture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset_inside.h"

enum { MOST_FILES = WF_DATA_CHANNELS };

struct wf_picture {
    char *path;
    struct wf_raster **files; /* one, or one for each channel */
    int n_files;
    struct wf_shape shape;
    struct wf_nodata nodata;
    void *scratch; /* a palette's indices, or one channel */
    size_t room;
};

/* --- opening --- */

/* Alpha is a channel where the network takes one more than without. */
static bool add_file(struct wf_picture *p, const char *path, int64_t channels, struct wf_err *err)
{
    struct wf_raster *const r = wf_raster_open(path, err);
    if (!r)
        return false;
    p->files[p->n_files++] = r;
    if (!wf_raster_check(r, err))
        return false;
    const struct wf_raster_info *const info = wf_raster_info(r);
    const struct wf_shape shape = WF_SHAPE(1, info->depth, info->height, info->width,
                                           wf_image_channels(info, WF_ALPHA_DROP, channels));
    if (p->n_files > 1 && !wf_shape_equal(shape, p->shape))
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' has another size than '%s': it is a channel of it", path, p->path);
    p->shape = shape;
    const struct wf_nodata n = wf_nodata_of(info);
    if (n.there)
        p->nodata = n;
    p->nodata.in_all = p->nodata.in_all && p->n_files == 1;
    return true;
}

/* The number in "CASE_0000.EXT", or NULL. */
static char *channel_number(char *path)
{
    char *const slash = strrchr(path, '/');
    char *at = strstr(slash ? slash : path, "_0000.");
    return at ? at + 1 : NULL;
}

static bool open_files(struct wf_picture *p, int64_t channels, struct wf_err *err)
{
    if (!add_file(p, p->path, channels, err))
        return false;
    char *const path = wf_take_text(p->path);
    char *const number = channel_number(path);
    bool ok = true;
    if (number && p->shape.at[WF_C] == 1 && channels > 1 && channels <= MOST_FILES) {
        for (int64_t c = 1; ok && c < channels; c++) {
            number[2] = (char)('0' + c / 10 % 10);
            number[1] = (char)('0' + c / 100);
            number[3] = (char)('0' + c % 10);
            ok = wf_path_is_file(path, err)
                     ? add_file(p, path, 1, err)
                     : wf_err_set(err, WF_ERR_INPUT,
                                  "'%s' has %" PRId64 " channels, but the network takes %" PRId64
                                  ": there is no '%s'",
                                  p->path, c, channels, path);
        }
        p->shape.at[WF_C] = p->n_files;
    }
    free(path);
    return ok;
}

struct wf_picture *wf_picture_open(const char *path, int64_t channels, struct wf_err *err)
{
    struct wf_picture *const p = wf_take_zeroed(1, sizeof *p);
    p->path = wf_take_text(path);
    p->files = wf_take_zeroed(MOST_FILES, sizeof *p->files);
    bool ok = open_files(p, channels, err);
    if (ok && p->shape.at[WF_C] != channels)
        ok = wf_err_set(err, WF_ERR_INPUT,
                        "'%s' has %" PRId64 " channels, the network takes %" PRId64
                        ": convert the image, or train a network with model.in=%" PRId64,
                        path, p->shape.at[WF_C], channels, p->shape.at[WF_C]);
    if (ok)
        return p;
    wf_picture_close(p);
    return NULL;
}

void wf_picture_close(struct wf_picture *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_files; i++)
        wf_raster_close(p->files[i]);
    free(p->files);
    free(p->scratch);
    free(p->path);
    free(p);
}

struct wf_shape wf_picture_shape(const struct wf_picture *p)
{
    return p->shape;
}

bool wf_picture_has_nodata(const struct wf_picture *p)
{
    return p->nodata.there;
}

const struct wf_raster_info *wf_picture_info(const struct wf_picture *p)
{
    return wf_raster_info(p->files[0]);
}

/* --- finding --- */

const char *wf_picture_stem(struct wf_arena *arena, const char *path)
{
    const char *const slash = strrchr(path, '/');
    char *const stem = wf_arena_copy(arena, wf_stem(arena, slash ? slash + 1 : path));
    const size_t n = strlen(stem);
    if (n > 5 && strcmp(stem + n - 5, "_0000") == 0)
        stem[n - 5] = '\0';
    for (char *c = stem; *c; c++) /* "file.h5:/a/b" */
        if (*c == '/' || *c == ':')
            *c = '_';
    return stem;
}

/* A channel of nnU-Net but not the first, which stands for all and is there. */
static bool is_further_channel(struct wf_arena *arena, const char *folder, const char *name,
                               const char *stem)
{
    const size_t n = strlen(stem);
    if (n <= 5 || stem[n - 5] != '_' || strspn(stem + n - 4, "0123456789") != 4 ||
        strcmp(stem + n - 4, "0000") == 0)
        return false;
    struct wf_err ignored = { 0 };
    char *const first = wf_arena_copy(arena, wf_path_join(arena, folder, name));
    for (size_t i = 0; i < 4; i++)
        first[strlen(first) - strlen(name) + n - 4 + i] = '0';
    return wf_path_is_file(first, &ignored);
}

bool wf_pictures_find(struct wf_arena *arena, const char *path, const char *const **paths,
                      size_t *count, struct wf_err *err)
{
    if (!wf_path_is_folder(path, err)) {
        if (err->code)
            return false;
        const char **const one = wf_arena_array(arena, 1, const char *);
        one[0] = path;
        *paths = one;
        *count = 1;
        return true;
    }
    struct wf_folder folder;
    if (!wf_folder_list(arena, path, &folder, err))
        return false;
    const char **const found = wf_arena_array(arena, folder.n_files + 1, const char *);
    *paths = found;
    *count = 0;
    for (size_t i = 0; i < folder.n_files; i++) {
        const char *const name = folder.files[i], *const stem = wf_stem(arena, name);
        if (wf_is_image_name(name) && !wf_mask_stem(arena, stem) &&
            !is_further_channel(arena, path, name, stem))
            found[(*count)++] = wf_path_join(arena, path, name);
    }
    return *count > 0 ||
           wf_err_set(err, WF_ERR_INPUT,
                      "folder '%s' has no images: give files, or the folder that they lie in",
                      path);
}

/* --- reading --- */

/* Room for one number of four bytes for each pixel. */
static void *scratch(struct wf_picture *p, int64_t pixels, struct wf_err *err)
{
    const size_t bytes = (size_t)pixels * 4;
    if (bytes <= p->room)
        return p->scratch;
    void *const grown = realloc(p->scratch, bytes);
    if (!grown) {
        (void)wf_err_set(err, WF_ERR_FIT, "'%s': no memory for a window of %zu bytes", p->path,
                         bytes);
        return NULL;
    }
    p->scratch = grown;
    p->room = bytes;
    return grown;
}

static bool read_palette(struct wf_picture *p, const struct wf_region *window, float *dst,
                         struct wf_err *err)
{
    const struct wf_raster_info *const info = wf_picture_info(p);
    const int64_t count = wf_window_pixels(window);
    int32_t *const index = scratch(p, count, err);
    if (!index || !wf_raster_read_window(p->files[0], window, 0, 1, WF_I32, index, err))
        return false;
    for (int64_t i = 0; i < count; i++)
        for (int c = 0; c < 3; c++)
            dst[i * 3 + c] =
                index[i] >= 0 && index[i] < info->colors ? (float)info->palette[index[i]][c] : 0.0f;
    return true;
}

static bool read_files(struct wf_picture *p, const struct wf_region *window, float *dst,
                       struct wf_err *err)
{
    const int64_t count = wf_window_pixels(window);
    float *const one = scratch(p, count, err);
    for (int f = 0; f < p->n_files; f++) {
        if (!one || !wf_raster_read_window(p->files[f], window, 0, 1, WF_F32, one, err))
            return false;
        for (int64_t i = 0; i < count; i++)
            dst[i * p->n_files + f] = one[i];
    }
    return true;
}

/* Whole numbers are finite, but for those that mean nothing. */
static bool may_be_odd(const struct wf_picture *p)
{
    for (int i = 0; i < p->n_files; i++)
        if (!wf_sample_is_whole(wf_raster_info(p->files[i])->sample))
            return true;
    return false;
}

static bool check_finite(const struct wf_picture *p, const struct wf_region *window,
                         const float *pixels, struct wf_err *err)
{
    if (!may_be_odd(p))
        return true;
    const int64_t channels = p->shape.at[WF_C];
    const int64_t odd = wf_nodata_odd(&p->nodata, pixels, wf_window_pixels(window) * channels);
    return odd < 0 || wf_refuse_odd(p->path, window, channels, pixels, odd, err);
}

bool wf_picture_read(struct wf_picture *p, const struct wf_region *window, float *dst,
                     struct wf_err *err)
{
    bool ok;
    if (p->n_files > 1)
        ok = read_files(p, window, dst, err);
    else if (wf_picture_info(p)->colors > 0)
        ok = read_palette(p, window, dst, err);
    else
        ok =
            wf_raster_read_window(p->files[0], window, 0, (int)p->shape.at[WF_C], WF_F32, dst, err);
    if (ok)
        wf_nodata_settle(&p->nodata, dst, wf_window_pixels(window), (int)p->shape.at[WF_C]);
    return ok && check_finite(p, window, dst, err);
}

bool wf_picture_is_bytes(const struct wf_picture *p)
{
    return p->n_files == 1 && wf_picture_info(p)->colors == 0 && wf_raster_is_bytes(p->files[0]);
}

bool wf_picture_read_bytes(struct wf_picture *p, const struct wf_region *window, uint8_t *dst,
                           struct wf_err *err)
{
    return wf_raster_read_window(p->files[0], window, 0, (int)p->shape.at[WF_C], WF_U8, dst, err);
}
