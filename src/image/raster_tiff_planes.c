/*
 * Which page of a TIFF is which plane: ImageJ and tifffile say it in the description of the first page
 * (OME-XML: raster_tiff_ome.c). Without such words pages are depth.
 *
 * ImageJ (past 4 GB) and tifffile (`truncate`) write a single page and put the pixels of all planes
 * behind one another, where its own begin.
 */
#include "image/raster_tiff.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_TIFF
enum { PLANES = 1 << 24, LEADING = 8, DESCRIPTION = 1 << 20 };

/* Axes of planes, the last the fastest. */
struct axes {
    int count;
    char names[LEADING];
    int64_t extents[LEADING];
};

uint32_t *wf_tiff_new_planes(struct wf_tiff *t, int64_t depth, int64_t layers, struct wf_err *err)
{
    struct wf_tiff_planes *const p = &t->planes;
    int64_t count, channels;
    if (depth < 1 || layers < 1 || __builtin_mul_overflow(depth, layers, &count) ||
        count > PLANES || __builtin_mul_overflow(layers, t->layout.samples, &channels) ||
        channels > WF_RASTER_CHANNELS) {
        (void)wf_raster_refuse(t->raster, err,
                               "its description names %" PRId64 " planes with %" PRId64
                               " channels: at most %d channels are read",
                               depth, layers, WF_RASTER_CHANNELS);
        return NULL;
    }
    p->depth = depth;
    p->layers = layers;
    p->pages = calloc((size_t)count, sizeof *p->pages);
    if (!p->pages)
        (void)wf_raster_no_memory(t->raster, err);
    return p->pages;
}

/* A single page, and its pixels begin where those of all planes do. */
static bool find_raw(struct wf_tiff *t, int64_t planes, struct wf_err *err)
{
    const struct wf_tiff_layout *const l = &t->layout;
    struct wf_tiff_planes *const p = &t->planes;
    if (l->tiled || l->compression != COMPRESSION_NONE || l->bits < 8)
        return wf_raster_refuse(t->raster, err,
                                "its description names %" PRId64
                                " planes, the file has one page: write the stack again",
                                planes);
    const uint64_t row = (uint64_t)l->width * l->samples * (l->bits / 8u);
    uint64_t next = p->raw_at = TIFFGetStrileOffset(t->tif, 0);
    const uint32_t strips = TIFFNumberOfStrips(t->tif);
    for (uint32_t i = 0; i + 1 < strips; i++) {
        next += TIFFGetStrileByteCount(t->tif, i);
        if (TIFFGetStrileOffset(t->tif, i + 1) != next)
            return wf_raster_refuse(t->raster, err,
                                    "%" PRId64 " planes behind one page whose strips do not follow "
                                    "each other: write the stack again",
                                    planes);
    }
    const uint64_t size = t->raster->file.size;
    if (__builtin_mul_overflow(row, l->height, &p->raw_bytes) || p->raw_at == 0 ||
        p->raw_at > size || (uint64_t)planes > (size - p->raw_at) / p->raw_bytes)
        return wf_raster_refuse(t->raster, err,
                                "its description names %" PRId64 " planes of %" PRIu64
                                " bytes, the file has %" PRIu64 " bytes: it is cut short, copy it "
                                "again",
                                planes, p->raw_bytes, size);
    p->raw = true;
    return true;
}

static bool refuse_time(const struct wf_tiff *t, int64_t points, struct wf_err *err)
{
    return wf_raster_refuse(t->raster, err,
                            "%" PRId64 " points in time: save each as an image of its own", points);
}

/* Sorts the axes into depth and channels. An axis without a meaning is depth where there is no other. */
static bool find_roles(const struct wf_tiff *t, const struct axes *a, int *depth, int *channels,
                       struct wf_err *err)
{
    *depth = *channels = -1;
    for (int i = 0; i < a->count; i++) {
        const char name = a->names[i];
        if (a->extents[i] == 1)
            continue;
        if (name == 'T')
            return refuse_time(t, a->extents[i], err);
        int *const role = name == 'C' || name == 'S' ? channels : depth;
        if (*role >= 0)
            return wf_raster_refuse(
                t->raster, err,
                "planes along several axes (%" PRId64 " and %" PRId64
                ") of which it does not say what they are: write it with its axes, for instance "
                "tifffile.imwrite(..., metadata={'axes': 'ZCYX'}), or as one image for each",
                a->extents[*role], a->extents[i]);
        *role = i;
    }
    return true;
}

static bool set_planes(struct wf_tiff *t, const struct axes *a, int64_t pages, struct wf_err *err)
{
    int64_t planes = 1, stride[LEADING] = { 0 };
    for (int i = a->count - 1; i >= 0; i--) {
        stride[i] = planes;
        if (a->extents[i] < 1 || __builtin_mul_overflow(planes, a->extents[i], &planes) ||
            planes > PLANES)
            return wf_raster_refuse(t->raster, err,
                                    "its description does not say how many planes there are: write "
                                    "the file again");
    }
    int depth, channels;
    if (!find_roles(t, a, &depth, &channels, err))
        return false;
    if (pages != planes && pages != 1)
        return wf_raster_refuse(t->raster, err,
                                "its description names %" PRId64 " planes, the file has %" PRId64
                                " pages: write the stack again",
                                planes, pages);
    if (pages != planes && !find_raw(t, planes, err))
        return false;
    const int64_t deep = depth < 0 ? 1 : a->extents[depth];
    const int64_t layers = channels < 0 ? 1 : a->extents[channels];
    uint32_t *const at = wf_tiff_new_planes(t, deep, layers, err);
    for (int64_t z = 0; at && z < deep; z++)
        for (int64_t c = 0; c < layers; c++)
            at[z * layers + c] = (uint32_t)(z * (depth < 0 ? 0 : stride[depth]) +
                                            c * (channels < 0 ? 0 : stride[channels]));
    return at != NULL;
}

/* --- ImageJ: lines of KEY=NUMBER --- */

static int64_t value_of(const char *text, const char *key, int64_t otherwise)
{
    const size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == '=')
            return strtoll(line + n + 1, NULL, 10);
    }
    return otherwise;
}

static bool imagej_planes(struct wf_tiff *t, const char *text, int64_t pages, struct wf_err *err)
{
    struct axes a = { .count = 3, .names = "TZC" };
    const int64_t images = value_of(text, "images", 1);
    a.extents[0] = value_of(text, "frames", 1);
    a.extents[2] = value_of(text, "channels", 1);
    a.extents[1] = value_of(text, "slices", 1);
    int64_t named;
    if (__builtin_mul_overflow(a.extents[0], a.extents[1], &named) ||
        __builtin_mul_overflow(named, a.extents[2], &named))
        named = -1;
    if (named == 1)
        a.extents[1] = images; /* a plain stack */
    else if (named != images)
        return wf_raster_refuse(t->raster, err,
                                "ImageJ's description names %" PRId64
                                " images, which are not %" PRId64 " channels x %" PRId64
                                " slices x %" PRId64 " frames: save it again",
                                images, a.extents[2], a.extents[1], a.extents[0]);
    return set_planes(t, &a, pages, err);
}

/* --- tifffile: {"shape": [4, 16, 512, 512], "axes": "CZYX"} --- */

/* The first `rank` axes of the shape as those of planes and of a page; false where they do not fit. */
static bool match_axes(const struct wf_tiff *t, const cJSON *shape, const char *names, int rank,
                       struct axes *a)
{
    const struct wf_tiff_layout *const l = &t->layout;
    const bool separate = l->planar == PLANARCONFIG_SEPARATE;
    /* What a page holds itself: Y and X, and its samples before or behind them. */
    const int64_t inner[3] = { separate ? l->samples : l->height, separate ? l->height : l->width,
                               separate ? l->width : l->samples };
    const int own = l->samples > 1 ? 3 : 2;
    a->count = rank - own;
    if (a->count < 0 || a->count > LEADING)
        return false;
    for (int i = 0; i < rank; i++) {
        const cJSON *const item = cJSON_GetArrayItem(shape, i);
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1 && item->valuedouble < 1e15))
            return false;
        const int64_t extent = (int64_t)item->valuedouble;
        if (i >= a->count && extent != (own == 3        ? inner[i - a->count]
                                        : i == a->count ? (int64_t)l->height
                                                        : (int64_t)l->width))
            return false;
        if (i < a->count) {
            a->extents[i] = extent;
            a->names[i] = names ? names[i] : '?';
        }
    }
    const char *const yx = names ? names + a->count + (own == 3 && separate) : "YX";
    return strncmp(yx, "YX", 2) == 0;
}

/* The shape is that of the array; axes of extent 1 at its end are not in the pages. */
static bool shaped_axes(const struct wf_tiff *t, const cJSON *json, struct axes *a)
{
    const cJSON *const shape = cJSON_GetObjectItemCaseSensitive(json, "shape");
    const char *const names = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "axes"));
    int rank = cJSON_GetArraySize(shape);
    if (names && (int)strlen(names) != rank)
        return false;
    for (; rank >= 2; rank--) {
        if (match_axes(t, shape, names, rank, a))
            return true;
        if (cJSON_GetNumberValue(cJSON_GetArrayItem(shape, rank - 1)) != 1)
            return false;
    }
    return false;
}

static bool is_one_plane(const struct axes *a)
{
    for (int i = 0; i < a->count; i++)
        if (a->extents[i] != 1)
            return false;
    return true;
}

static bool shaped_planes(struct wf_tiff *t, const char *text, int64_t pages, struct wf_err *err)
{
    struct axes a = { 0 };
    cJSON *const json = cJSON_Parse(text);
    const bool shaped = cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(json, "shape"));
    const bool fits = shaped && shaped_axes(t, json, &a);
    cJSON_Delete(json);
    if (shaped && !fits)
        return wf_raster_refuse(t->raster, err,
                                "the 'shape' and 'axes' of its description are not those of its "
                                "pages of %" PRIu32 " x %" PRIu32 ": write it again with axes that "
                                "end with YX",
                                t->layout.height, t->layout.width);
    /* Some other program's JSON, or pages that were written one by one, each with a shape of its own. */
    if (!shaped || is_one_plane(&a)) {
        t->planes.depth = pages;
        return true;
    }
    return set_planes(t, &a, pages, err);
}

/* MetaMorph's stacks have one page, and a tag with the number of planes behind it. */
static bool check_metamorph(const struct wf_tiff *t, struct wf_err *err)
{
    enum { UIC2 = 33629 };
    if (!TIFFFindField(t->tif, UIC2, TIFF_ANY))
        return true;
    uint32_t count = 0;
    const void *data = NULL;
    const TIFFField *const field = TIFFFindField(t->tif, UIC2, TIFF_ANY);
    if (!TIFFFieldPassCount(field) || TIFFFieldReadCount(field) != TIFF_VARIABLE2 ||
        !TIFFGetField(t->tif, UIC2, &count, &data) || count <= 1)
        return true;
    return wf_raster_refuse(t->raster, err,
                            "a MetaMorph stack of %" PRIu32 " planes, which is not read: save it "
                            "from ImageJ or as OME-TIFF",
                            count);
}

/* Has it an element <OME> or, with a prefix, <ome:OME>? */
static bool is_ome(const char *text)
{
    const char *at = text[0] == '<' ? strstr(text, "OME") : NULL;
    for (; at; at = strstr(at + 1, "OME")) {
        const char *begin = at;
        if (begin[-1] == ':')
            for (begin--; begin[-1] == '_' || isalnum((unsigned char)begin[-1]);)
                begin--;
        if (begin[-1] == '<')
            return true;
    }
    return false;
}

bool wf_tiff_find_planes(struct wf_tiff *t, int64_t pages, struct wf_err *err)
{
    t->planes = (struct wf_tiff_planes){ .depth = pages, .layers = 1 };
    uint32_t deep = 1;
    (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_IMAGEDEPTH, &deep);
    if (deep > 1)
        return wf_raster_refuse(t->raster, err,
                                "a page of %" PRIu32 " planes (ImageDepth): write a page for each",
                                deep);
    if (!check_metamorph(t, err))
        return false;
    const char *text = NULL;
    if (!TIFFGetField(t->tif, TIFFTAG_IMAGEDESCRIPTION, &text) || !text)
        return true;
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) /* the mark of UTF-8 */
        text += 3;
    while (*text == ' ' || *text == '\n' || *text == '\r' || *text == '\t')
        text++;
    if (strncmp(text, "ImageJ=", 7) == 0)
        return imagej_planes(t, text, pages, err);
    if (text[0] == '{' && strlen(text) < DESCRIPTION)
        return shaped_planes(t, text, pages, err);
    if (is_ome(text))
        return wf_tiff_ome_planes(t, text, pages, err);
    return true;
}
#endif
