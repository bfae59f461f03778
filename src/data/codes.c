/*
 * The meaning of mask values.
 *
 * Every pixel of the scanned masks is counted twice: as a value (a grey value, an
 * index of a palette, a grey colour) and as a colour (0xrrggbb). Colours are used if some pixel is
 * in colour or if files give an index different colours, values otherwise.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_inside.h"

#include "base/memory.h"

/* --- counting --- */

enum { DISTINCT = 1 << 16, TABLE = 1 << 17 };

struct tally {
    int64_t *keys, *counts; /* by hash; a count of 0 is a free place */
    int64_t distinct;
    bool overflow; /* more than DISTINCT: no labels, or instances */
};

static void tally_init(struct tally *t)
{
    *t = (struct tally){ .keys = wf_take_zeroed(TABLE, sizeof *t->keys),
                         .counts = wf_take_zeroed(TABLE, sizeof *t->counts) };
}

static void tally_release(struct tally *t)
{
    free(t->keys);
    free(t->counts);
}

static size_t tally_place(const struct tally *t, int64_t key)
{
    size_t at = (size_t)(((uint64_t)key * 0x9e3779b97f4a7c15u) >> 47) & (TABLE - 1);
    while (t->counts[at] && t->keys[at] != key)
        at = (at + 1) & (TABLE - 1);
    return at;
}

static void tally_add(struct tally *t, int64_t key, int64_t count)
{
    const size_t at = tally_place(t, key);
    if (!t->counts[at]) {
        if (t->distinct == DISTINCT) {
            t->overflow = true;
            return;
        }
        t->distinct++;
        t->keys[at] = key;
    }
    t->counts[at] += count;
}

static int64_t tally_get(const struct tally *t, int64_t key)
{
    return t->counts[tally_place(t, key)];
}

/* --- looking --- */

/* What a thread has seen. */
struct scan {
    struct wf_reader *reader;
    int64_t pixels;
    struct tally values, colors;
    bool in_color, palettes_differ, lossy;
    int64_t mask;                  /* at hand */
    int64_t met[WF_RASTER_COLORS]; /* the first mask that has a palette's entry ... */
    bool known[WF_RASTER_COLORS];
    int32_t palette[WF_RASTER_COLORS];
};

static int64_t pack(const int32_t *rgb)
{
    for (int c = 0; c < 3; c++)
        if (rgb[c] < 0 || rgb[c] > 255)
            return -1;
    return (int64_t)rgb[0] << 16 | (int64_t)rgb[1] << 8 | (int64_t)rgb[2];
}

static void count_palette(struct scan *s, const struct wf_raster_info *info, int64_t index,
                          int64_t count)
{
    if (index < 0 || index >= info->colors)
        return;
    const uint8_t *const rgb = info->palette[index];
    const int32_t color = rgb[0] << 16 | rgb[1] << 8 | rgb[2];
    if (s->known[index] && s->palette[index] != color)
        s->palettes_differ = true;
    if (!s->known[index]) {
        s->palette[index] = color;
        s->met[index] = s->mask;
    }
    s->known[index] = true;
    tally_add(&s->colors, color, count);
}

/* `count` pixels in a row that are all `raw`. */
static void count_run(struct scan *s, const struct wf_raster_info *info, int channels,
                      const int32_t *raw, int64_t count)
{
    if (raw[0] == WF_LABEL_VOID) {
        s->pixels -= count;
        return;
    }
    if (channels == 3) {
        const bool grey = raw[0] == raw[1] && raw[1] == raw[2];
        tally_add(&s->colors, pack(raw), count);
        if (grey)
            tally_add(&s->values, raw[0], count);
        else
            s->in_color = true;
        return;
    }
    tally_add(&s->values, raw[0], count);
    if (info->colors > 0)
        count_palette(s, info, raw[0], count);
    else if (raw[0] >= 0 && raw[0] < 256)
        tally_add(&s->colors, raw[0] * INT64_C(0x010101), count);
}

/* Where the pixels end that are like the one at `from`. */
static int64_t run_end(const int32_t *raw, int channels, int64_t from, int64_t count)
{
    const int32_t *const p = raw + from * channels;
    int64_t i = from + 1;
    if (channels == 1)
        while (i < count && raw[i] == *p)
            i++;
    else
        while (i < count && raw[3 * i] == p[0] && raw[3 * i + 1] == p[1] && raw[3 * i + 2] == p[2])
            i++;
    return i;
}

static bool scan_window(struct scan *s, int64_t sample, const struct wf_region *window,
                        struct wf_err *err)
{
    int channels;
    const int32_t *const raw = wf_reader_mask(s->reader, sample, window, false, &channels, err);
    const struct wf_raster_info *const info = wf_reader_mask_info(s->reader, sample, err);
    if (!raw || !info)
        return false;
    s->lossy = s->lossy || strcmp(info->format, "JPEG") == 0;
    const int64_t count = wf_region_extent(*window, WF_D) * wf_region_extent(*window, WF_H) *
                          wf_region_extent(*window, WF_W);
    for (int64_t from = 0, end; from < count; from = end) {
        end = run_end(raw, channels, from, count);
        count_run(s, info, channels, raw + from * channels, end - from);
    }
    s->pixels += count;
    return true;
}

typedef bool look_fn(struct scan *s, int64_t sample, const struct wf_region *window,
                     struct wf_err *err);

struct scans {
    struct wf_dataset *ds;
    struct scan *of_thread;
    int threads;
    look_fn *look;
    int64_t step, budget; /* between masks; pixels of one */
    bool *covers;         /* per mask: all of it was seen */
    struct wf_err *errs;
};

static void scan_mask(void *user, int thread, struct wf_reader *reader, int64_t i)
{
    const struct scans *const all = user;
    const int64_t sample = i * all->step;
    const struct wf_data_sample *const s = &all->ds->entries[sample].sample;
    all->covers[i] = true;
    if (s->problem || !s->mask)
        return;
    const struct wf_spread spread =
        wf_spread(wf_dataset_extent(all->ds, sample), all->budget, WF_DATA_PIECE);
    struct scan *const mine = &all->of_thread[thread];
    mine->reader = reader;
    mine->mask = i;
    all->covers[i] = spread.covers;
    bool ok = true;
    for (int64_t k = 0; ok && k < spread.count; k++) {
        const struct wf_region window = wf_spread_at(&spread, k);
        ok = all->look(mine, sample, &window, &all->errs[i]);
    }
}

/* Large datasets and large images are scanned in a spread of windows. */
static void scan_masks(struct scans *all, look_fn *look)
{
    enum { MASKS = 4096 };
    struct wf_dataset *const ds = all->ds;
    all->step = wf_ceil_div(ds->info.samples, MASKS);
    const int64_t n = wf_ceil_div(ds->info.samples, all->step);
    const int64_t share = WF_DATA_SCAN / wf_min(ds->info.samples, MASKS);
    all->budget = wf_max(share, (int64_t)WF_DATA_WINDOW * WF_DATA_WINDOW);
    all->look = look;
    all->covers = wf_take_zeroed((size_t)n, sizeof *all->covers);
    all->errs = wf_take_zeroed((size_t)n, sizeof *all->errs);
    wf_each(ds, n, all->threads, scan_mask, all);
    ds->info.scanned_all = all->step == 1;
    for (int64_t i = 0; i < n; i++) {
        ds->info.scanned_all = ds->info.scanned_all && all->covers[i];
        if (all->errs[i].code)
            wf_dataset_problem(ds, &ds->entries[i * all->step], "%s", all->errs[i].text);
    }
    free(all->covers);
    free(all->errs);
}

static void tally_join(struct tally *to, const struct tally *from)
{
    for (size_t i = 0; from->distinct > 0 && i < TABLE; i++)
        if (from->counts[i])
            tally_add(to, from->keys[i], from->counts[i]);
    to->overflow = to->overflow || from->overflow;
}

static void scan_join(struct scan *to, const struct scan *from)
{
    tally_join(&to->values, &from->values);
    tally_join(&to->colors, &from->colors);
    to->pixels += from->pixels;
    to->in_color = to->in_color || from->in_color;
    to->lossy = to->lossy || from->lossy;
    to->palettes_differ = to->palettes_differ || from->palettes_differ;
    for (int i = 0; i < WF_RASTER_COLORS; i++) {
        if (!from->known[i])
            continue;
        if (to->known[i] && to->palette[i] != from->palette[i])
            to->palettes_differ = true;
        if (!to->known[i] || from->met[i] < to->met[i]) {
            to->palette[i] = from->palette[i];
            to->met[i] = from->met[i];
        }
        to->known[i] = true;
    }
}

/* --- deciding --- */

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The distinct keys, ascending; heap. */
static int64_t *keys_of(const struct tally *t)
{
    int64_t *const keys = wf_take_zeroed((size_t)t->distinct + 1, sizeof *keys);
    int64_t count = 0;
    for (size_t i = 0; i < TABLE; i++)
        if (t->counts[i])
            keys[count++] = t->keys[i];
    qsort(keys, (size_t)count, sizeof *keys, by_number);
    return keys;
}

static void decide_colors(struct wf_dataset *ds, const struct scan *s)
{
    const int64_t found = s->colors.distinct;
    ds->info.codes = WF_CODES_COLORS;
    if (found > WF_DATA_CLASSES || s->colors.overflow) {
        wf_dataset_problem(
            ds, NULL,
            "masks in '%s' hold more than %d colours%s: a mask has one colour for each "
            "class; list them in '%s/classes.txt', such as 'road #ff0000', or store masks as PNG",
            ds->info.path, WF_DATA_CLASSES, s->lossy ? ", because JPEG blurs them" : "",
            ds->info.path);
        return;
    }
    int64_t *const keys = keys_of(&s->colors);
    ds->info.n_classes = (int)found;
    for (int64_t i = 0; i < found; i++) {
        struct wf_data_class *const c = &ds->classes[i];
        c->first = c->last = keys[i];
        c->color = (int32_t)keys[i];
        c->found = tally_get(&s->colors, keys[i]);
    }
    free(keys);
}

static void decide_values(struct wf_dataset *ds, const struct scan *s)
{
    int64_t *const keys = keys_of(&s->values);
    const int64_t found = s->values.distinct;
    const int64_t largest = found ? keys[found - 1] : 0;
    const bool binary = found > 0 && largest == 255 && (found == 1 || (found == 2 && keys[0] == 0));
    /* 255 alone above the others is the usual mark of pixels that do not count. */
    const bool ends_in_void = !binary && largest == 255 && keys[found - 2] < 254;
    int64_t classes = ends_in_void ? keys[found - 2] + 1 : largest + 1;
    if (binary)
        classes = 2;
    if (ends_in_void && !ds->named)
        wf_dataset_note(ds, "masks hold 255, which looks like 'does not count': set "
                            "train.ignore=255");
    if (classes > WF_DATA_CLASSES || s->values.overflow) {
        wf_dataset_note(ds,
                        "masks hold values up to %" PRId64 ": numbers of objects? To make them one "
                        "class, write the lines 'background 0' and 'object 1-%" PRId64
                        "' into '%s/classes.txt'",
                        largest, wf_max(largest, 65535), ds->info.path);
        classes = WF_DATA_CLASSES;
    }
    free(keys);
    ds->info.codes = binary ? WF_CODES_BINARY : WF_CODES_DIRECT;
    ds->info.n_classes = (int)wf_max(wf_max(classes, 1), ds->named);
    if (ds->named && ds->info.layout == WF_LAYOUT_NNUNET)
        ds->info.n_classes = ds->named; /* what dataset.json says, it means */
    int64_t counted = 0;
    for (int i = 0; i < ds->info.n_classes; i++) {
        struct wf_data_class *const c = &ds->classes[i];
        c->first = c->last = binary ? i * INT64_C(255) : i;
        c->color = !binary && s->known[i] ? s->palette[i] : -1;
        c->found = tally_get(&s->values, c->first);
        counted += c->found;
    }
    ds->info.other = ds->info.scanned - counted;
}

/* classes.txt has said what is what: only count. */
static void count_coded(struct wf_dataset *ds, const struct scan *s)
{
    const struct tally *const t = ds->info.codes == WF_CODES_COLORS ? &s->colors : &s->values;
    ds->info.n_classes = ds->named;
    ds->info.other = ds->info.scanned;
    for (int c = 0; c < ds->named; c++) {
        struct wf_data_class *const k = &ds->classes[c];
        if (k->first == k->last && k->first < WF_RASTER_COLORS && s->known[k->first])
            k->color = s->palette[k->first];
    }
    for (size_t i = 0; i < TABLE; i++)
        for (int c = 0; t->counts[i] && c < ds->named; c++)
            if (t->keys[i] >= ds->classes[c].first && t->keys[i] <= ds->classes[c].last) {
                ds->classes[c].found += t->counts[i];
                ds->info.other -= t->counts[i];
                break;
            }
}

/* As training reads it, so that errors are reported before it starts, with file and position. */
static bool read_window(struct scan *s, int64_t sample, const struct wf_region *window,
                        struct wf_err *err)
{
    const int64_t count = wf_window_pixels(window);
    int32_t *const labels = wf_take_zeroed((size_t)count, sizeof *labels);
    const bool ok = wf_reader_read(s->reader, sample, window, NULL, labels, err);
    free(labels);
    return ok;
}

static void release_scans(struct scans *all)
{
    for (int t = 0; t < all->threads; t++) {
        tally_release(&all->of_thread[t].values);
        tally_release(&all->of_thread[t].colors);
    }
    free(all->of_thread);
    all->of_thread = NULL;
}

/* Into the first thread's; false where that has no room for all: what is in it then depends on the order. */
static bool scan_all(struct scans *all, int threads)
{
    all->threads = threads;
    struct scan *const s = all->of_thread = wf_take_zeroed((size_t)threads, sizeof *s);
    for (int t = 0; t < threads; t++) {
        tally_init(&s[t].values);
        tally_init(&s[t].colors);
    }
    scan_masks(all, scan_window);
    for (int t = 1; t < threads; t++)
        scan_join(&s[0], &s[t]);
    return !s->values.overflow && !s->colors.overflow;
}

static void find_in_masks(struct wf_dataset *ds)
{
    const int threads = wf_each_threads(ds->info.samples);
    struct scans all = { .ds = ds };
    if (!scan_all(&all, threads) && threads > 1) {
        release_scans(&all);
        (void)scan_all(&all, 1);
    }
    struct scan *const s = all.of_thread;
    ds->info.scanned += s->pixels;
    if (ds->coded) {
        count_coded(ds, s);
        if (ds->info.other > 0)
            scan_masks(&all, read_window);
    } else if (s->in_color || s->palettes_differ)
        decide_colors(ds, s);
    else
        decide_values(ds, s);
    if (s->lossy)
        wf_dataset_note(ds, "masks are JPEG files, which blur labels: store them as PNG");
    release_scans(&all);
}

static void count_images(struct wf_dataset *ds)
{
    ds->info.n_classes = ds->named;
    ds->info.scanned = ds->info.samples;
    ds->info.scanned_all = true;
    for (int64_t i = 0; i < ds->info.samples; i++) {
        const int32_t label = ds->entries[i].sample.label;
        if (label >= 0 && label < ds->named)
            ds->classes[label].found++;
        else
            ds->info.other++;
    }
}

bool wf_codes_find(struct wf_dataset *ds, struct wf_err *err)
{
    if (ds->info.labels == WF_LABELS_PIXEL && ds->kind && ds->kind->clouds)
        wf_clouds_scan(ds);
    else if (ds->info.labels == WF_LABELS_PIXEL)
        find_in_masks(ds);
    else if (ds->info.labels == WF_LABELS_IMAGE)
        count_images(ds);
    static const char *const two[] = { "background", "foreground" };
    for (int i = 0; i < ds->info.n_classes; i++) {
        struct wf_data_class *const c = &ds->classes[i];
        if (c->name)
            continue;
        c->name = ds->info.codes == WF_CODES_BINARY && i < 2 ? two[i]
                  : ds->info.codes == WF_CODES_COLORS
                      ? wf_arena_printf(&ds->arena, "#%06" PRIx64, (uint64_t)c->first)
                      : wf_arena_printf(&ds->arena, "class %d", i);
    }
    return !err->code;
}

/* --- classes.txt --- */

static bool parse_code(const char *text, struct wf_data_class *c, bool *color)
{
    char *end;
    *color = text[0] == '#';
    if (*color) {
        c->first = c->last = strtoll(text + 1, &end, 16);
        c->color = (int32_t)c->first;
        return strlen(text) == 7 && *end == '\0';
    }
    c->first = c->last = strtoll(text, &end, 10);
    if (end == text || c->first < 0)
        return false;
    if (*end == '-')
        c->last = strtoll(end + 1, &end, 10);
    return *end == '\0' && c->last >= c->first && c->last <= INT32_MAX;
}

/* A line: a name, and what follows the last blank. */
static bool read_line(struct wf_dataset *ds, char *line, const char *path, int number,
                      struct wf_err *err)
{
    const int id = ds->named;
    if (id == WF_DATA_CLASSES)
        return wf_err_set(err, WF_ERR_INPUT, "'%s': more than %d classes", path, WF_DATA_CLASSES);
    char *blank = line + strlen(line);
    while (blank > line && !isspace((unsigned char)*blank))
        blank--;
    const bool coded = blank > line;
    bool color = false;
    if (coded && !parse_code(blank + 1, &ds->classes[id], &color))
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' line %d: '%s' is no value (3), range (1-255) or colour (#ff0000)",
                          path, number, blank + 1);
    const enum wf_codes codes = color ? WF_CODES_COLORS : WF_CODES_VALUES;
    if (id > 0 && (coded != ds->coded || (coded && codes != ds->info.codes)))
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' line %d: values, colours and names alone do not mix", path, number);
    while (coded && blank > line && isspace((unsigned char)blank[-1]))
        blank--;
    if (coded)
        *blank = '\0';
    ds->coded = coded;
    if (coded)
        ds->info.codes = codes;
    wf_dataset_name_class(ds, id, line);
    return true;
}

bool wf_codes_read(struct wf_dataset *ds, struct wf_err *err)
{
    if (ds->info.labels != WF_LABELS_PIXEL || !wf_file_exists(ds->info.path, "classes.txt", err))
        return true;
    const char *const path = wf_path_join(&ds->arena, ds->info.path, "classes.txt");
    char *const text = wf_read_text(path, err);
    if (!text)
        return false;
    ds->named = 0;
    char *rest = text;
    int number = 0;
    bool ok = true;
    for (char *line; ok && (line = strsep(&rest, "\n"));) {
        number++;
        while (isspace((unsigned char)*line))
            line++;
        for (size_t n = strlen(line); n && isspace((unsigned char)line[n - 1]); n--)
            line[n - 1] = '\0';
        if (*line && *line != '#')
            ok = read_line(ds, line, path, number, err);
    }
    free(text);
    return ok;
}

/* --- mapping --- */

static int32_t class_of(const struct wf_dataset *ds, int64_t key)
{
    if (ds->info.codes == WF_CODES_COLORS && !ds->coded) { /* sorted */
        int lo = 0, hi = ds->info.n_classes;
        while (lo < hi) {
            const int mid = (lo + hi) / 2;
            if (ds->classes[mid].first < key)
                lo = mid + 1;
            else
                hi = mid;
        }
        return lo < ds->info.n_classes && ds->classes[lo].first == key ? lo : -1;
    }
    for (int i = 0; i < ds->info.n_classes; i++)
        if (key >= ds->classes[i].first && key <= ds->classes[i].last)
            return i;
    return -1;
}

void wf_codes_map(const struct wf_dataset *ds, int channels, int64_t count, const int32_t *raw,
                  int32_t *labels, int64_t *bad)
{
    int64_t last = INT64_MIN;
    int32_t label = 0;
    *bad = -1;
    for (int64_t i = 0; i < count; i++, raw += channels) {
        if (raw[0] == WF_LABEL_VOID) {
            labels[i] = WF_LABEL_VOID;
            continue;
        }
        const bool grey = channels == 1 || (raw[0] == raw[1] && raw[1] == raw[2]);
        const int64_t key = ds->info.codes == WF_CODES_COLORS ? pack(raw)
                            : grey                            ? raw[0]
                                                              : INT64_MIN + 1;
        if (key != last) {
            const bool direct = ds->info.codes == WF_CODES_DIRECT && grey;
            label = direct ? raw[0] : class_of(ds, key);
            if (!direct && label < 0 && *bad < 0)
                *bad = i;
            last = key;
        }
        labels[i] = label;
    }
}

const char *wf_codes_text(struct wf_arena *arena, int channels, const int32_t *raw)
{
    if (channels == 1 || raw[0] < 0)
        return wf_arena_printf(arena, "%" PRId32, raw[0]);
    return wf_arena_printf(arena, "#%06" PRIx64, (uint64_t)pack(raw));
}
