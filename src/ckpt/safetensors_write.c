#include "ckpt/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/memory.h"
#include "ckpt/safetensors_format.h"

struct item {
    struct wf_safetensors_item given;
    size_t order; /* in which it was added */
    uint64_t bytes;
};

struct text_pair {
    const char *key, *value;
};

struct wf_safetensors_writer {
    struct wf_arena arena;
    struct item *items;
    size_t count, room;
    struct text_pair *metadata;
    size_t n_metadata, room_metadata;
    char *late; /* a text of the metadata; NULL: all are known */
    void (*fill)(void *user, char *text);
    void *user;
};

struct wf_safetensors_writer *wf_safetensors_begin(void)
{
    struct wf_safetensors_writer *w = wf_take_zeroed(1, sizeof *w);
    return w;
}

void wf_safetensors_writer_free(struct wf_safetensors_writer *w)
{
    if (!w)
        return;
    free(w->items);
    free(w->metadata);
    wf_arena_release(&w->arena);
    free(w);
}

void wf_safetensors_add(struct wf_safetensors_writer *w, const struct wf_safetensors_item *item)
{
    WF_BUG_ON(item->rank < 0 || item->dtype >= WF_DTYPES, "'%s': rank %d, dtype %d", item->name,
              item->rank, (int)item->dtype);
    WF_GROW(w->items, w->room, w->count);
    struct item *to = &w->items[w->count];
    *to = (struct item){ .given = *item, .order = w->count };
    w->count++;
    to->given.name = wf_arena_copy(&w->arena, item->name);
    int64_t *shape = wf_arena_array(&w->arena, item->rank, int64_t);
    for (int i = 0; i < item->rank; i++)
        shape[i] = item->shape[i];
    to->given.shape = shape;
}

void wf_safetensors_add_metadata(struct wf_safetensors_writer *w, const char *key,
                                 const char *value)
{
    WF_GROW(w->metadata, w->room_metadata, w->n_metadata);
    w->metadata[w->n_metadata++] =
        (struct text_pair){ wf_arena_copy(&w->arena, key), wf_arena_copy(&w->arena, value) };
}

void wf_safetensors_add_late(struct wf_safetensors_writer *w, const char *key, size_t length,
                             void (*fill)(void *user, char *text), void *user)
{
    WF_BUG_ON(w->late, "'%s' is the second late text", key);
    w->late = wf_arena_array(&w->arena, length + 1, char);
    memset(w->late, '0', length);
    w->fill = fill;
    w->user = user;
    WF_GROW(w->metadata, w->room_metadata, w->n_metadata);
    w->metadata[w->n_metadata++] = (struct text_pair){ wf_arena_copy(&w->arena, key), w->late };
}

static int compare_width(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    const size_t wx = wf_dtype_size(x->given.dtype), wy = wf_dtype_size(y->given.dtype);
    if (wx != wy)
        return wx > wy ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_utf8(const char *text)
{
    return wf_utf8_is_valid((const unsigned char *)text, strlen(text));
}

/* What our own reader, and others, would refuse is not written. */
static bool check_names(const char **names, size_t count, const char *what, struct wf_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (!is_utf8(names[i]) || wf_text_has_control(names[i]) ||
            strcmp(names[i], WF_SAFETENSORS_METADATA) == 0)
            return wf_err_set(err, WF_ERR_USAGE,
                              "%s %zu: its name is not plain UTF-8 text or is taken by the format: "
                              "rename it",
                              what, i);
    if (count > 1)
        qsort(names, count, sizeof *names, compare_texts);
    for (size_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return wf_err_set(err, WF_ERR_USAGE, "%s '%.200s' is there twice: rename one", what,
                              names[i]);
    return true;
}

static bool check_items(struct wf_safetensors_writer *w, struct wf_err *err)
{
    const size_t most = w->count > w->n_metadata ? w->count : w->n_metadata;
    const char **names = wf_arena_array(&w->arena, most, const char *);
    for (size_t i = 0; i < w->count; i++) {
        const struct wf_safetensors_item *t = &w->items[i].given;
        int64_t bytes = (int64_t)wf_dtype_size(t->dtype);
        for (int a = 0; a < t->rank; a++)
            if (t->shape[a] < 0 || __builtin_mul_overflow(bytes, t->shape[a], &bytes))
                return wf_err_set(err, WF_ERR_USAGE,
                                  "tensor '%.200s': its shape is negative or overflows", t->name);
        w->items[i].bytes = (uint64_t)bytes;
        names[i] = t->name;
    }
    if (!check_names(names, w->count, "tensor", err))
        return false;
    for (size_t i = 0; i < w->n_metadata; i++) {
        names[i] = w->metadata[i].key;
        if (!is_utf8(w->metadata[i].value))
            return wf_err_set(err, WF_ERR_USAGE, "metadata: a text is not UTF-8");
    }
    return check_names(names, w->n_metadata, "metadata", err);
}

static void put_text(FILE *to, const char *text)
{
    (void)fputc('"', to);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f)
            (void)fprintf(to, "\\u%04x", c);
        else
            (void)fprintf(to, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    (void)fputc('"', to);
}

static void put_metadata(FILE *to, const struct wf_safetensors_writer *w)
{
    (void)fputs("\"" WF_SAFETENSORS_METADATA "\":{", to);
    for (size_t i = 0; i < w->n_metadata; i++) {
        (void)fputs(i ? "," : "", to);
        put_text(to, w->metadata[i].key);
        (void)fputc(':', to);
        put_text(to, w->metadata[i].value);
    }
    (void)fputs(w->count ? "}," : "}", to);
}

static void put_tensor(FILE *to, const struct item *item, uint64_t begin)
{
    static const char *const words[WF_DTYPES] = {
        [WF_F32] = "F32", [WF_BF16] = "BF16", [WF_F16] = "F16", [WF_F64] = "F64",
        [WF_I32] = "I32", [WF_I64] = "I64",   [WF_U8] = "U8",
    };
    put_text(to, item->given.name);
    (void)fprintf(to, ":{\"dtype\":\"%s\",\"shape\":[", words[item->given.dtype]);
    for (int a = 0; a < item->given.rank; a++)
        (void)fprintf(to, a ? ",%" PRId64 : "%" PRId64, item->given.shape[a]);
    (void)fprintf(to, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, begin + item->bytes);
}

/* The header with its padding, which makes the data start at a multiple of 8; the caller frees. */
static char *make_header(const struct wf_safetensors_writer *w, size_t *length, struct wf_err *err)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, length);
    if (!to) {
        (void)wf_err_set(err, WF_ERR_FIT, "no memory for a header");
        return NULL;
    }
    (void)fputc('{', to);
    if (w->n_metadata)
        put_metadata(to, w);
    uint64_t begin = 0;
    for (size_t i = 0; i < w->count; begin += w->items[i++].bytes) {
        (void)fputs(i ? "," : "", to);
        put_tensor(to, &w->items[i], begin);
    }
    (void)fputc('}', to);
    for (long at = ftell(to); at % 8 != 0; at++)
        (void)fputc(' ', to);
    const bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed || *length > WF_SAFETENSORS_HEADER_MAX) {
        (void)wf_err_set(
            err, WF_ERR_FAILED,
            "a header for %zu tensors and %zu texts is past memory or the format's limit", w->count,
            w->n_metadata);
        free(text);
        return NULL;
    }
    return text;
}

static bool write_items(const struct wf_safetensors_writer *w, struct wf_outfile *out,
                        struct wf_err *err)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct wf_safetensors_item *t = &w->items[i].given;
        if (w->items[i].bytes == 0 && !t->give)
            continue;
        WF_BUG_ON(!t->data && !t->give, "tensor '%s' without data", t->name);
        const void *data = t->data ? t->data : t->give(t->user, err);
        if (!data || !wf_outfile_write(out, data, (size_t)w->items[i].bytes, err))
            return wf_err_wrap(err, "tensor '%.200s'", t->name);
    }
    return true;
}

/* The header anew, with the text that is known by now. */
static bool write_late(const struct wf_safetensors_writer *w, struct wf_outfile *out, size_t length,
                       struct wf_err *err)
{
    if (!w->late)
        return true;
    w->fill(w->user, w->late);
    size_t now = 0;
    char *const header = make_header(w, &now, err);
    WF_BUG_ON(header && now != length, "a late text of another length");
    const bool ok = header && wf_outfile_write_at(out, sizeof(uint64_t), header, length, err);
    free(header);
    return ok;
}

bool wf_safetensors_finish(struct wf_safetensors_writer *w, const char *path, struct wf_err *err)
{
    if (!check_items(w, err))
        return wf_err_wrap(err, "writing '%s'", path);
    if (w->count > 1)
        qsort(w->items, w->count, sizeof *w->items, compare_width);
    size_t length = 0;
    char *header = make_header(w, &length, err);
    if (!header)
        return wf_err_wrap(err, "writing '%s'", path);
    const uint64_t length64 = length;
    struct wf_outfile out;
    const bool ok = wf_outfile_begin(&out, path, err) &&
                    wf_outfile_write(&out, &length64, sizeof length64, err) &&
                    wf_outfile_write(&out, header, length, err) && write_items(w, &out, err) &&
                    write_late(w, &out, length, err) && wf_outfile_commit(&out, err);
    wf_outfile_drop(&out);
    free(header);
    return ok;
}
