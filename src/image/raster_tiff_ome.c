/*
 * OME-XML: which page is which plane of an OME-TIFF. Parsed by expat, which stops at a document
 * type, the one door through which XML gets large by itself.
 *
 * The first Image is read. Others of the same size would be further positions, or series, and are
 * refused; other sizes are a slide's label and overview. Planes that lie in other files are refused.
 */
#include "image/raster_tiff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#ifdef WF_HAVE_TIFF
#ifdef WF_HAVE_EXPAT
#include <expat.h>

enum { NAME = 128, BLOCKS = 1 << 20 };

/* A TiffData element: `count` planes from (c, z, t) on, from page `ifd` on. -1: not said. */
struct block {
    int64_t ifd, c, z, t, count;
};

struct ome {
    XML_Parser parser;
    int images;
    int64_t size[2], other[2];    /* X and Y of the first image, of one that has the same */
    int64_t c, z, t, per_channel; /* of the first; samples of a channel, 0: not said */
    char order[NAME];
    char self[NAME]; /* the file's UUID */
    char uuid[NAME]; /* of the planes, while it is read */
    bool in_uuid, elsewhere, binary_only, repeats;
    struct block *blocks;
    size_t count, room;
};

static const char *attribute(const char **attributes, const char *name)
{
    for (; attributes[0]; attributes += 2)
        if (strcmp(attributes[0], name) == 0)
            return attributes[1];
    return NULL;
}

static int64_t number(const char **attributes, const char *name, int64_t otherwise)
{
    const char *const text = attribute(attributes, name);
    if (!text)
        return otherwise;
    char *end;
    const long long value = strtoll(text, &end, 10);
    return end == text || *end || value < 0 || value > INT32_MAX ? -2 : value;
}

static void copy_text(char to[NAME], const char *from)
{
    const size_t n = strlen(from);
    memcpy(to, from, n < NAME ? n : NAME - 1);
    to[n < NAME ? n : NAME - 1] = '\0';
}

static void on_pixels(struct ome *o, const char **a)
{
    const int64_t x = number(a, "SizeX", -2), y = number(a, "SizeY", -2);
    if (o->images > 1) {
        o->repeats = o->repeats || (x == o->size[0] && y == o->size[1]);
        return;
    }
    const char *const order = attribute(a, "DimensionOrder");
    o->size[0] = x;
    o->size[1] = y;
    o->c = number(a, "SizeC", -2);
    o->z = number(a, "SizeZ", -2);
    o->t = number(a, "SizeT", -2);
    if (order)
        copy_text(o->order, order);
}

static void on_tiff_data(struct ome *o, const char **a)
{
    const int64_t ifd = number(a, "IFD", -1);
    if (o->count == BLOCKS) {
        (void)XML_StopParser(o->parser, XML_FALSE);
        return;
    }
    WF_GROW(o->blocks, o->room, o->count);
    o->blocks[o->count++] = (struct block){ .ifd = ifd,
                                            .c = number(a, "FirstC", 0),
                                            .z = number(a, "FirstZ", 0),
                                            .t = number(a, "FirstT", 0),
                                            .count = number(a, "PlaneCount", -1) };
}

static void on_start(void *user, const char *name, const char **attributes)
{
    struct ome *const o = user;
    const char *const colon = strchr(name, ':');
    const char *const local = colon ? colon + 1 : name;
    if (strcmp(local, "OME") == 0 && attribute(attributes, "UUID"))
        copy_text(o->self, attribute(attributes, "UUID"));
    else if (strcmp(local, "BinaryOnly") == 0)
        o->binary_only = true;
    else if (strcmp(local, "Image") == 0)
        o->images++;
    else if (strcmp(local, "Pixels") == 0)
        on_pixels(o, attributes);
    else if (o->images == 1 && strcmp(local, "Channel") == 0 && !o->per_channel)
        o->per_channel = number(attributes, "SamplesPerPixel", 0);
    else if (o->images == 1 && strcmp(local, "TiffData") == 0)
        on_tiff_data(o, attributes);
    else if (o->images == 1 && strcmp(local, "UUID") == 0) {
        o->in_uuid = true;
        o->uuid[0] = '\0';
    }
}

static void on_text(void *user, const char *text, int length)
{
    struct ome *const o = user;
    const size_t have = strlen(o->uuid), more = (size_t)length;
    if (!o->in_uuid || have + more >= NAME)
        return;
    memcpy(o->uuid + have, text, more);
    o->uuid[have + more] = '\0';
}

static void on_end(void *user, const char *)
{
    struct ome *const o = user;
    if (!o->in_uuid)
        return;
    o->in_uuid = false;
    if (!o->self[0])
        copy_text(o->self, o->uuid); /* all must be the same */
    o->elsewhere = o->elsewhere || strcmp(o->self, o->uuid) != 0;
}

static void on_doctype(void *user, const char *, const char *, const char *, int)
{
    const struct ome *const o = user;
    (void)XML_StopParser(o->parser, XML_FALSE);
}

/* `encoding` NULL: as it says itself. */
static bool parse_as(struct wf_tiff *t, const char *encoding, const char *text, struct ome *o,
                     enum XML_Error *reason, struct wf_err *err)
{
    const size_t size = strlen(text);
    *reason = XML_ERROR_NONE;
    o->parser = size < INT32_MAX ? XML_ParserCreate(encoding) : NULL;
    if (!o->parser)
        return wf_raster_no_memory(t->raster, err);
    XML_SetUserData(o->parser, o);
    XML_SetElementHandler(o->parser, on_start, on_end);
    XML_SetCharacterDataHandler(o->parser, on_text);
    XML_SetStartDoctypeDeclHandler(o->parser, on_doctype);
    const bool ok = XML_Parse(o->parser, text, (int)size, XML_TRUE) == XML_STATUS_OK;
    *reason = XML_GetErrorCode(o->parser);
    const unsigned long line = XML_GetCurrentLineNumber(o->parser);
    XML_ParserFree(o->parser);
    return ok || wf_raster_refuse(t->raster, err,
                                  "its OME-XML is damaged at line %lu (%s): write the file again",
                                  line, XML_ErrorString(*reason));
}

/* Some writers call Latin-1 UTF-8: the sign of a micrometre gives them away. */
static bool parse(struct wf_tiff *t, const char *text, struct ome *o, struct wf_err *err)
{
    enum XML_Error reason;
    struct wf_err first = { 0 };
    if (parse_as(t, NULL, text, o, &reason, &first))
        return true;
    if (reason == XML_ERROR_INVALID_TOKEN || reason == XML_ERROR_INCORRECT_ENCODING ||
        reason == XML_ERROR_UNKNOWN_ENCODING) {
        struct wf_err second = { 0 };
        free(o->blocks);
        *o = (struct ome){ 0 };
        if (parse_as(t, "ISO-8859-1", text, o, &reason, &second))
            return true;
    }
    *err = first;
    return false;
}

/* What cannot be read, or would be read as something else. */
static bool check(const struct wf_tiff *t, const struct ome *o, struct wf_err *err)
{
    const struct wf_tiff_layout *const l = &t->layout;
    if (o->binary_only || o->elsewhere)
        return wf_raster_refuse(t->raster, err,
                                "its planes lie in several files: join them, for instance "
                                "'bfconvert IN.ome.tif OUT.ome.tif'");
    if (o->images == 0 || o->c < 1 || o->z < 1 || o->t < 1)
        return wf_raster_refuse(t->raster, err,
                                "its OME-XML has no SizeC, SizeZ and SizeT: write the file again");
    if (o->repeats)
        return wf_raster_refuse(t->raster, err,
                                "%d images of one size in a file: save each as a file of its own, "
                                "for instance 'bfconvert -series 0 IN OUT'",
                                o->images);
    if (o->size[0] != l->width || o->size[1] != l->height)
        return wf_raster_refuse(t->raster, err,
                                "its OME-XML names %" PRId64 " x %" PRId64
                                " pixels, the page has %" PRIu32 " x %" PRIu32
                                ": take the description out ('tiffset -u 270') "
                                "or write the file again",
                                o->size[1], o->size[0], l->height, l->width);
    if (o->t > 1)
        return wf_raster_refuse(
            t->raster, err, "%" PRId64 " points in time: save each as an image of its own", o->t);
    if (o->c % l->samples != 0 || (o->per_channel > 1 && o->per_channel != l->samples))
        return wf_raster_refuse(t->raster, err,
                                "its OME-XML has %" PRId64
                                " channels, a page has %d: write the file "
                                "again",
                                o->c, l->samples);
    return true;
}

/* Along the order of dimensions, with one point in time: is Z the faster one? */
static bool z_is_fast(const struct ome *o)
{
    const char *const z = strchr(o->order, 'Z'), *const c = strchr(o->order, 'C');
    return z && c && z < c;
}

static int64_t page_of_ifd(const struct wf_tiff *t, int64_t pages, int64_t ifd)
{
    for (int64_t i = ifd < pages ? ifd : pages - 1; i >= 0 && t->numbers[i] >= ifd; i--)
        if (t->numbers[i] == ifd)
            return i;
    return -1;
}

static bool place_block(struct wf_tiff *t, const struct ome *o, const struct block *b,
                        int64_t pages, struct wf_err *err)
{
    const struct wf_tiff_planes *const p = &t->planes;
    const int64_t all = p->depth * p->layers;
    const int64_t first = b->ifd < 0 ? 0 : b->ifd;
    const int64_t count = b->count >= 0 ? b->count : b->ifd >= 0 ? 1 : all;
    bool ok = b->ifd != -2 && b->count != -2 && b->t == 0 && b->z >= 0 && b->z < p->depth &&
              b->c >= 0 && b->c < p->layers;
    const int64_t from = z_is_fast(o) ? b->c * p->depth + b->z : b->z * p->layers + b->c;
    ok = ok && count <= all - from;
    for (int64_t i = 0; ok && i < count; i++) {
        const int64_t at = from + i, page = page_of_ifd(t, pages, first + i);
        const int64_t z = z_is_fast(o) ? at % p->depth : at / p->layers;
        const int64_t c = z_is_fast(o) ? at / p->depth : at % p->layers;
        ok = page >= 0;
        if (ok)
            p->pages[z * p->layers + c] = (uint32_t)page;
    }
    return ok || wf_raster_refuse(t->raster, err,
                                  "its OME-XML names planes that are not in the file: it is a "
                                  "part of a set, or cut short");
}

static bool place_all(struct wf_tiff *t, const struct ome *o, int64_t pages, struct wf_err *err)
{
    const struct wf_tiff_planes *const p = &t->planes;
    const int64_t all = p->depth * p->layers;
    for (int64_t i = 0; i < all; i++)
        p->pages[i] = UINT32_MAX;
    static const struct block plain = { .ifd = -1, .count = -1 };
    bool ok = o->count > 0 || place_block(t, o, &plain, pages, err);
    for (size_t i = 0; ok && i < o->count; i++)
        ok = place_block(t, o, &o->blocks[i], pages, err);
    for (int64_t i = 0; ok && i < all; i++)
        if (p->pages[i] == UINT32_MAX)
            ok = wf_raster_refuse(t->raster, err,
                                  "its OME-XML does not say where plane %" PRId64
                                  " of channel %" PRId64 " lies: write the file again",
                                  i / p->layers, i % p->layers);
    return ok;
}

bool wf_tiff_ome_planes(struct wf_tiff *t, const char *text, int64_t pages, struct wf_err *err)
{
    struct ome o = { 0 };
    bool ok = parse(t, text, &o, err) && check(t, &o, err);
    const int64_t layers = ok ? o.c / t->layout.samples : 0;
    /* Every plane needs a page: more of them are not worth the memory. */
    if (ok && (layers > pages || o.z > pages))
        ok = wf_raster_refuse(t->raster, err,
                              "its OME-XML names %" PRId64 " channels and %" PRId64
                              " planes, the file has %" PRId64 " pages: it is a part of a set, or "
                              "cut short",
                              o.c, o.z, pages);
    ok = ok && wf_tiff_new_planes(t, o.z, layers, err) && place_all(t, &o, pages, err);
    free(o.blocks);
    return ok;
}
#else
bool wf_tiff_ome_planes(struct wf_tiff *t, const char *, int64_t pages, struct wf_err *err)
{
    if (pages > 1)
        return wf_raster_refuse(t->raster, err,
                                "an OME-TIFF of several pages, whose axes this build cannot read: "
                                "install 'libexpat1-dev' and build again");
    return true;
}
#endif
#endif
