#include "image/gunzip.h"

#ifdef WF_HAVE_ZLIB
#include <stdlib.h>
#include <zlib.h>

#include "base/arena.h"
#include "base/memory.h"

enum { INPUT = 1 << 16, SKIP = 1 << 15, DICTIONARY = 1 << 15, PLACES = 1024, SPAN = 1 << 20 };
enum { GZIP = 15 + 16, RAW = -15, TRAILER = 8 };

struct place {
    uint64_t in, out; /* offsets in the file and unpacked */
    int bits;         /* of the byte before `in` that belong to the block */
    unsigned char *dictionary;
    unsigned known; /* bytes of it */
};

struct wf_gunzip {
    const struct wf_infile *file;
    uint64_t span, expected;
    z_stream z;
    bool ready;       /* z is initialised and stands at `out` */
    bool raw;         /* entered in the middle: zlib sees no gzip header and trailer */
    uint64_t in, out; /* where the next bytes are loaded from, and what comes next unpacked */
    struct place *places;
    size_t room, count; /* ascending */
    unsigned char input[INPUT];
};

struct wf_gunzip *wf_gunzip_new(const struct wf_infile *file)
{
    struct wf_gunzip *g = wf_take_zeroed(1, sizeof *g);
    g->file = file;
    g->span = SPAN;
    return g;
}

void wf_gunzip_expect(struct wf_gunzip *g, uint64_t bytes)
{
    g->expected = bytes;
    g->span = bytes / PLACES > SPAN ? bytes / PLACES : SPAN;
}

void wf_gunzip_free(struct wf_gunzip *g)
{
    if (!g)
        return;
    if (g->ready)
        (void)inflateEnd(&g->z);
    for (size_t i = 0; i < g->count; i++)
        free(g->places[i].dictionary);
    free(g->places);
    free(g);
}

static bool damaged(const struct wf_gunzip *g, const char *what, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_INPUT, "'%s': %s: copy the file again", g->file->name, what);
}

/* Enter at the last place before `offset`, or at the start. */
static bool enter(struct wf_gunzip *g, uint64_t offset, struct wf_err *err)
{
    if (g->ready)
        (void)inflateEnd(&g->z);
    g->ready = false;
    const struct place *p = NULL;
    for (size_t i = 0; i < g->count && g->places[i].out <= offset; i++)
        p = &g->places[i];
    g->z = (z_stream){ 0 };
    if (inflateInit2(&g->z, p ? RAW : GZIP) != Z_OK)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory to unpack it", g->file->name);
    g->ready = true;
    g->raw = p;
    g->in = p ? p->in : 0;
    g->out = p ? p->out : 0;
    if (!p)
        return true;
    unsigned char before = 0;
    if (p->bits && !wf_infile_read(g->file, p->in - 1, &before, 1, err))
        return false;
    if ((p->bits && inflatePrime(&g->z, p->bits, before >> (8 - p->bits)) != Z_OK) ||
        (p->known && inflateSetDictionary(&g->z, p->dictionary, p->known) != Z_OK))
        return damaged(g, "cannot go on unpacking in the middle", err);
    return true;
}

/* More came than was expected: every other place goes, and the next ones lie twice as far apart. */
static void drop_places(struct wf_gunzip *g)
{
    size_t left = 0;
    for (size_t i = 0; i < g->count; i++)
        if (i % 2)
            g->places[left++] = g->places[i];
        else
            free(g->places[i].dictionary);
    g->count = left;
    g->span *= 2;
}

/* Between two blocks, far enough from the last place: note this one. */
static void note_place(struct wf_gunzip *g)
{
    const uint64_t last = g->count ? g->places[g->count - 1].out : 0;
    const bool between = (g->z.data_type & 128) && !(g->z.data_type & 64);
    if (!between || g->out < last + g->span)
        return;
    if (g->count == PLACES)
        drop_places(g);
    WF_GROW(g->places, g->room, g->count);
    struct place *p = &g->places[g->count];
    *p = (struct place){ .in = g->in - g->z.avail_in, .out = g->out, .bits = g->z.data_type & 7 };
    p->dictionary = malloc(DICTIONARY);
    if (!p->dictionary || inflateGetDictionary(&g->z, p->dictionary, &p->known) != Z_OK) {
        free(p->dictionary); /* going back will be slower, nothing worse */
        return;
    }
    g->count++;
}

static bool load(struct wf_gunzip *g, struct wf_err *err)
{
    if (g->z.avail_in)
        return true;
    const uint64_t left = g->file->size - g->in;
    if (!left)
        return damaged(g, "the packed data ends too early, it is cut short", err);
    const size_t now = left < INPUT ? (size_t)left : INPUT;
    if (!wf_infile_read(g->file, g->in, g->input, now, err))
        return false;
    g->in += now;
    g->z.next_in = g->input;
    g->z.avail_in = (uInt)now;
    return true;
}

/* A file may be several packed files one after the other. */
static bool next_member(struct wf_gunzip *g, struct wf_err *err)
{
    uint64_t at = g->in - g->z.avail_in + (g->raw ? TRAILER : 0);
    if (at > g->file->size)
        at = g->file->size;
    g->in = at;
    g->z.avail_in = 0;
    g->raw = false;
    if (at == g->file->size)
        return damaged(g, "the packed data ends too early, it is cut short", err);
    return inflateReset2(&g->z, GZIP) == Z_OK || damaged(g, "cannot go on unpacking", err);
}

/* The next `bytes` to dst, without looking where they are. */
static bool unpack(struct wf_gunzip *g, void *dst, size_t bytes, struct wf_err *err)
{
    unsigned char *at = dst;
    while (bytes) {
        if (!load(g, err))
            return false;
        const uInt now = bytes < SKIP ? (uInt)bytes : SKIP;
        g->z.next_out = at;
        g->z.avail_out = now;
        const int got = inflate(&g->z, Z_BLOCK);
        const size_t made = now - g->z.avail_out;
        at += made;
        bytes -= made;
        g->out += made;
        if (got != Z_OK && got != Z_STREAM_END && got != Z_BUF_ERROR)
            return damaged(g, "the packed data is damaged", err);
        note_place(g);
        if (got == Z_STREAM_END && bytes && !next_member(g, err))
            return false;
    }
    return true;
}

/* All bytes that were expected have come in one pass: go on to the end, where zlib compares the sum. */
static bool check_sum(struct wf_gunzip *g, struct wf_err *err)
{
    int got = Z_OK;
    while (got == Z_OK || got == Z_BUF_ERROR) {
        unsigned char more;
        if (!load(g, err))
            return false;
        g->z.next_out = &more;
        g->z.avail_out = 1;
        got = inflate(&g->z, Z_BLOCK);
        if (!g->z.avail_out)
            break; /* there is more than was expected, which is nobody's business here */
    }
    (void)inflateEnd(&g->z);
    g->ready = false;
    return got == Z_OK || got == Z_STREAM_END || damaged(g, "the packed data is damaged", err);
}

bool wf_gunzip_read(struct wf_gunzip *g, uint64_t offset, void *dst, size_t bytes,
                    struct wf_err *err)
{
    /* Backwards, or forwards to behind a place that is known. */
    const uint64_t last = g->count ? g->places[g->count - 1].out : 0;
    if (!g->ready || offset < g->out || (last > g->out && offset >= g->out + g->span))
        if (!enter(g, offset, err))
            return false;
    unsigned char skipped[SKIP];
    bool ok = true;
    while (ok && g->out < offset) {
        const uint64_t left = offset - g->out;
        ok = unpack(g, skipped, left < SKIP ? (size_t)left : SKIP, err);
    }
    ok = ok && unpack(g, dst, bytes, err);
    if (ok && !g->raw && g->out == g->expected)
        ok = check_sum(g, err);
    if (!ok && g->ready) { /* where it stands is not known any more */
        (void)inflateEnd(&g->z);
        g->ready = false;
    }
    return ok;
}
#endif
