/* The directories of a TIFF that is written: one for each page, behind all tiles. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/raster_tiff_write.h"

#include "base/memory.h"

enum type { ASCII = 2, SHORT = 3, LONG = 4, RATIONAL = 5, DOUBLE = 12, LONG8 = 16 };
enum { TAGS = 20 + WF_RASTER_GEO_TAGS };

struct entry {
    uint16_t tag, type;
    uint64_t count;
    const void *data; /* in the file's byte order, which is this machine's */
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "TIFF is written with little-endian marks");

/* What a page says; the storage of its entries' data. */
struct page {
    struct entry entries[TAGS];
    int count;
    uint32_t numbers[TAGS]; /* of the entries that hold one */
    uint16_t bits[WF_RASTER_CHANNELS], formats[WF_RASTER_CHANNELS], kinds[WF_RASTER_CHANNELS];
    uint16_t map[3][WF_RASTER_COLORS];
    uint32_t resolution[2][2];
    char nodata[40];
    void *places, *sizes; /* of tiles */
};

static size_t type_size(int type)
{
    return type == ASCII ? 1 : type == SHORT ? 2 : type == LONG ? 4 : 8;
}

static void add(struct page *p, int tag, enum type type, uint64_t count, const void *data)
{
    WF_BUG_ON(p->count == TAGS, "too many tags");
    p->entries[p->count++] = (struct entry){ (uint16_t)tag, (uint16_t)type, count, data };
}

static void add_number(struct page *p, int tag, enum type type, int64_t value)
{
    uint32_t *const at = &p->numbers[p->count];
    *at = (uint32_t)value; /* little-endian: a short is its first half */
    add(p, tag, type, 1, at);
}

static void add_samples(struct page *p, const struct wf_raster_info *info)
{
    enum { WHOLE = 1, SIGNED = 2, REAL = 3 };
    const bool rgb = (info->channels == 3 || info->channels == 4) && info->sample <= WF_SAMPLE_U16;
    const int extra = info->channels - (rgb ? 3 : 1);
    const bool minus = info->sample == WF_SAMPLE_I8 || info->sample == WF_SAMPLE_I16 ||
                       info->sample == WF_SAMPLE_I32 || info->sample == WF_SAMPLE_I64;
    const int format = !wf_sample_is_whole(info->sample) ? REAL : minus ? SIGNED : WHOLE;
    for (int c = 0; c < info->channels; c++) {
        p->bits[c] = (uint16_t)(8 * wf_sample_size(info->sample));
        p->formats[c] = (uint16_t)format;
    }
    const uint64_t channels = (uint64_t)info->channels;
    add(p, 258, SHORT, channels, p->bits);
    add_number(p, 262, SHORT, info->colors ? 3 : rgb ? 2 : 1); /* palette, RGB, black is zero */
    add_number(p, 277, SHORT, info->channels);
    add_number(p, 284, SHORT, 1); /* channels together */
    if (extra > 0)
        add(p, 338, SHORT, (uint64_t)extra, p->kinds); /* of no kind that has a name */
    add(p, 339, SHORT, channels, p->formats);
    if (wf_tiff_predicts(info))
        add_number(p, 317, SHORT, 3); /* floating point */
    if (!info->colors)
        return;
    for (int i = 0; i < info->colors; i++)
        for (int c = 0; c < 3; c++)
            p->map[c][i] = (uint16_t)(info->palette[i][c] * 257);
    add(p, 320, SHORT, (uint64_t)3 * WF_RASTER_COLORS, p->map);
}

/* As a fraction of 32-bit numbers, as precise as they allow. */
static void to_rational(double value, uint32_t fraction[2])
{
    uint32_t below = 1;
    while (below < 1000000000 && value * below < 400000000 &&
           value * below != (uint32_t)(value * below))
        below *= 10;
    fraction[0] = (uint32_t)(value * below + 0.5);
    fraction[1] = below;
}

static void add_place(struct page *p, const struct wf_raster_place *place)
{
    static const enum type types[] = {
        [WF_GEO_SHORT] = SHORT, [WF_GEO_DOUBLE] = DOUBLE, [WF_GEO_TEXT] = ASCII
    };
    const double most = 4e9; /* what a fraction holds */
    if (place->x > 0 && place->y > 0 && place->x < most && place->y < most) {
        to_rational(place->x, p->resolution[0]);
        to_rational(place->y, p->resolution[1]);
        add(p, 282, RATIONAL, 1, p->resolution[0]);
        add(p, 283, RATIONAL, 1, p->resolution[1]);
        add_number(p, 296, SHORT, place->unit);
    }
    for (int i = 0; i < place->geo_count; i++)
        add(p, (int)place->geo[i].tag, types[place->geo[i].type], place->geo[i].count,
            place->geo[i].data);
}

/* Places and sizes of the page's tiles, as wide as the file's addresses. */
static void add_tiles(struct page *p, const struct wf_tiff_out *t, int64_t page)
{
    const int64_t tiles = t->across * t->down;
    const int64_t *const from = t->table + 1 + 2 * page * tiles;
    const enum type type = t->big ? LONG8 : LONG;
    const size_t size = type_size(type);
    p->places = wf_take((size_t)tiles * size);
    p->sizes = wf_take((size_t)tiles * size);
    for (int64_t i = 0; i < tiles; i++) {
        memcpy((char *)p->places + (size_t)i * size, &from[2 * i], size);
        memcpy((char *)p->sizes + (size_t)i * size, &from[2 * i + 1], size);
    }
    add_number(p, 322, LONG, t->writer->info.tile.at[WF_W]);
    add_number(p, 323, LONG, t->writer->info.tile.at[WF_H]);
    add(p, 324, type, (uint64_t)tiles, p->places);
    add(p, 325, type, (uint64_t)tiles, p->sizes);
}

static int by_tag(const void *a, const void *b)
{
    return (int)((const struct entry *)a)->tag - (int)((const struct entry *)b)->tag;
}

/* Data that does not fit its entry comes first, then the directory; gives the directory's place. */
static uint64_t append(const struct wf_tiff_out *t, const struct page *p, struct wf_buffer *to,
                       uint64_t *next_at)
{
    const size_t wide = t->big ? 8 : 4;
    uint64_t values[TAGS] = { 0 };
    for (int i = 0; i < p->count; i++) {
        const struct entry *const e = &p->entries[i];
        const size_t bytes = (size_t)e->count * type_size(e->type);
        if (bytes <= wide) {
            memcpy(&values[i], e->data, bytes);
            continue;
        }
        values[i] = t->end + to->size;
        wf_buffer_add(to, e->data, bytes);
        if (bytes % 2)
            wf_buffer_add(to, "", 1);
    }
    const uint64_t place = t->end + to->size, count = (uint64_t)p->count;
    wf_buffer_add(to, &count, t->big ? 8 : 2);
    for (int i = 0; i < p->count; i++) {
        const struct entry *const e = &p->entries[i];
        wf_buffer_add(to, &e->tag, 2);
        wf_buffer_add(to, &e->type, 2);
        wf_buffer_add(to, &e->count, wide);
        wf_buffer_add(to, &values[i], wide);
    }
    *next_at = to->size;
    wf_buffer_add(to, &(uint64_t){ 0 }, wide);
    return place;
}

static uint64_t append_page(const struct wf_tiff_out *t, int64_t page, struct wf_buffer *to,
                            uint64_t *next_at)
{
    static const char maker[] = "Widefield";
    const struct wf_raster_info *const info = &t->writer->info;
    struct page *const p = wf_take_zeroed(1, sizeof *p);
    add_number(p, 256, LONG, info->width);
    add_number(p, 257, LONG, info->height);
    add_number(p, 259, SHORT, wf_tiff_compression());
    add(p, 305, ASCII, sizeof maker, maker);
    add_samples(p, info);
    add_place(p, &t->place);
    if (info->has_nodata) { /* GDAL's tag */
        (void)snprintf(p->nodata, sizeof p->nodata, isnan(info->nodata) ? "nan" : "%.17g",
                       info->nodata);
        add(p, 42113, ASCII, strlen(p->nodata) + 1, p->nodata);
    }
    add_tiles(p, t, page);
    qsort(p->entries, (size_t)p->count, sizeof *p->entries, by_tag);
    const uint64_t place = append(t, p, to, next_at);
    free(p->places);
    free(p->sizes);
    free(p);
    return place;
}

bool wf_tiff_write_directories(struct wf_tiff_out *t, struct wf_err *err)
{
    struct wf_buffer to = { 0 };
    const size_t wide = t->big ? 8 : 4;
    uint64_t first = 0, next_at = 0;
    for (int64_t page = 0; page < t->writer->info.depth; page++) {
        uint64_t at;
        const uint64_t place = append_page(t, page, &to, &at);
        if (page == 0)
            first = place;
        else
            memcpy(to.data + next_at, &place, wide);
        next_at = at;
    }
    unsigned char head[WF_TIFF_HEADER] = { 'I', 'I', 42 };
    memcpy(head + 4, &first, wide);
    if (t->big) {
        memcpy(head, "II\x2b\0\x08\0\0", 8);
        memcpy(head + 8, &first, 8);
    }
    const bool ok = wf_outfile_write_at(&t->file, t->end, to.data, to.size, err) &&
                    wf_outfile_write_at(&t->file, 0, head, sizeof head, err);
    wf_buffer_release(&to);
    return ok;
}
