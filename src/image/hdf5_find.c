/* From the superblock through groups to the object header of a dataset. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/hdf5.h"

#include "base/memory.h"

/* A damaged file may point in circles, or at one large part many times: everything that is visited
 * is paid from a work budget, in bytes and a cost, which is filled by the file's size. */
enum { BUDGET_MIN = 64 << 10, PURSE_MAX = 32 << 20, BUDGET_RATIO = 16, COST = 64 };
enum { DEPTH = 32, BLOCKS = 64, NAME = 256, HEADER_MAX = 1 << 20 };
static const uint64_t NOWHERE = UINT64_MAX;

enum { MESSAGE_LINK_INFO = 2, MESSAGE_LINK = 6, MESSAGE_CONTINUED = 16, MESSAGE_GROUP = 17 };

struct h5 {
    const struct wf_infile *file;
    uint64_t base, root;
    uint64_t budget;
};

uint64_t wf_h5_take(struct wf_h5_cursor *c, int bytes)
{
    if (c->bad || c->end - c->at < bytes) {
        c->bad = true;
        return 0;
    }
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | c->at[i];
    c->at += bytes;
    return value;
}

void wf_h5_skip(struct wf_h5_cursor *c, uint64_t bytes)
{
    if (c->bad || (uint64_t)(c->end - c->at) < bytes)
        c->bad = true;
    else
        c->at += bytes;
}

bool wf_h5_damaged(const struct wf_infile *file, const char *what, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_INPUT, "'%s': a damaged HDF5 file (%s): copy it again",
                      file->name, what);
}

static bool advise(const struct h5 *h, const char *what, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s': %s: write the file again with h5py and its default libver",
                      h->file->name, what);
}

/* `bytes` at an address of the file, to a cursor over `room`. */
static bool read_at(struct h5 *h, uint64_t address, void *room, size_t bytes,
                    struct wf_h5_cursor *c, struct wf_err *err)
{
    if (h->budget < bytes + COST)
        return wf_h5_damaged(h->file, "its parts are too many or point in circles", err);
    h->budget -= bytes + COST;
    if (address > h->file->size || bytes > h->file->size - address ||
        h->base > h->file->size - address - bytes)
        return wf_h5_damaged(h->file, "it is cut short", err);
    *c = (struct wf_h5_cursor){ .at = room, .end = (unsigned char *)room + bytes };
    return wf_infile_read(h->file, h->base + address, room, bytes, err);
}

/* --- superblock --- */
static bool read_superblock(struct h5 *h, struct wf_err *err)
{
    unsigned char room[96] = { 0 };
    struct wf_h5_cursor c = { 0 };
    bool found = false;
    for (uint64_t at = 0; !found && at + 8 <= h->file->size && at <= 2048; at = at ? 2 * at : 512) {
        if (!wf_infile_read(h->file, at, room, 8, err))
            return false;
        found = memcmp(room, "\x89HDF\r\n\x1a\n", 8) == 0;
        h->base = at;
    }
    if (!found || h->file->size - h->base < 48)
        return wf_h5_damaged(h->file, "no superblock", err);
    const uint64_t left = h->file->size - h->base;
    if (!read_at(h, 0, room, left < sizeof room ? (size_t)left : sizeof room, &c, err))
        return false;
    wf_h5_skip(&c, 8);
    const int version = (int)wf_h5_take(&c, 1);
    if (version > 3)
        return advise(h, "its superblock is newer than what is known here", err);
    if (version < 2)
        wf_h5_skip(&c, 4);
    const int offsets = (int)wf_h5_take(&c, 1), lengths = (int)wf_h5_take(&c, 1);
    if (offsets != 8 || lengths != 8)
        return advise(h, "its addresses do not have 64 bits", err);
    wf_h5_skip(&c, version == 0 ? 9 : version == 1 ? 13 : 1);
    /* Base, free space or extension, end; in the old ones a driver, and the name of the root. */
    wf_h5_skip(&c, 16);
    const uint64_t end = wf_h5_take(&c, 8);
    wf_h5_skip(&c, version < 2 ? 16 : 0);
    h->root = wf_h5_take(&c, 8);
    if (c.bad)
        return wf_h5_damaged(h->file, "no superblock", err);
    /* The end counts from the start of the file, or from the base: the smaller claim is believed. */
    if (end - h->base > left && end > left)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': %" PRIu64 " bytes by its header, the file has %" PRIu64
                          ": it is cut short, copy it again",
                          h->file->name, end, h->file->size);
    return true;
}

/* --- object headers --- */
struct visitor {
    bool (*message)(void *arg, const struct wf_h5_message *m, struct wf_err *err);
    void *arg;
};

struct blocks {
    struct {
        uint64_t address, bytes;
    } at[BLOCKS];
    int count;
};

static bool continue_at(const struct h5 *h, struct blocks *blocks, const struct wf_h5_message *m,
                        struct wf_err *err)
{
    struct wf_h5_cursor c = { m->data, m->data + m->size, false };
    const uint64_t address = wf_h5_take(&c, 8), bytes = wf_h5_take(&c, 8);
    if (c.bad || bytes > HEADER_MAX || blocks->count == BLOCKS)
        return wf_h5_damaged(h->file, "an object header goes on for ever", err);
    blocks->at[blocks->count].address = address;
    blocks->at[blocks->count++].bytes = bytes;
    return true;
}

/* The messages between c->at and c->end, which was read from `where` - c->at on. */
static bool visit_block(const struct h5 *h, struct wf_h5_cursor *c, uint64_t where, int version,
                        int header_flags, struct blocks *blocks, const struct visitor *v,
                        struct wf_err *err)
{
    const unsigned char *begin = c->at;
    const int head = version == 1 ? 8 : header_flags & 4 ? 6 : 4;
    while (c->end - c->at >= head) {
        struct wf_h5_message m;
        m.type = (int)wf_h5_take(c, version == 1 ? 2 : 1);
        m.size = (size_t)wf_h5_take(c, 2);
        m.flags = (int)wf_h5_take(c, 1);
        wf_h5_skip(c, version == 1 ? 3 : header_flags & 4 ? 2 : 0);
        m.data = c->at;
        m.where = where + (uint64_t)(c->at - begin);
        wf_h5_skip(c, m.size);
        if (c->bad)
            return wf_h5_damaged(h->file, "a message ends past its object header", err);
        if (m.type == MESSAGE_CONTINUED ? !continue_at(h, blocks, &m, err)
                                        : !v->message(v->arg, &m, err))
            return false;
    }
    return true;
}

/* The fixed part: its version and flags, and where the first messages are. */
static bool read_prefix(struct h5 *h, uint64_t address, int *version, int *flags,
                        struct blocks *blocks, struct wf_err *err)
{
    unsigned char room[32] = { 0 };
    struct wf_h5_cursor c = { 0 };
    if (!read_at(h, address, room, 16, &c, err))
        return false;
    *flags = 0;
    *version = room[0] == 1 ? 1 : memcmp(room, "OHDR\x02", 5) == 0 ? 2 : 0;
    uint64_t begin = 16, bytes = 0;
    if (*version == 1) {
        wf_h5_skip(&c, 8);
        bytes = wf_h5_take(&c, 4);
    } else if (*version == 2) {
        *flags = room[5];
        const int width = 1 << (*flags & 3);
        begin = 6 + (*flags & 0x20 ? 16 : 0) + (*flags & 0x10 ? 4 : 0);
        if (!read_at(h, address + begin, room, (size_t)width, &c, err))
            return false;
        bytes = wf_h5_take(&c, width);
        begin += (uint64_t)width;
    }
    if (*version == 0 || bytes > HEADER_MAX)
        return wf_h5_damaged(h->file, "no object header where one should be", err);
    blocks->at[0].address = address + begin;
    blocks->at[0].bytes = bytes;
    blocks->count = 1;
    return true;
}

static bool visit_object(struct h5 *h, uint64_t address, const struct visitor *v,
                         struct wf_err *err)
{
    int version, flags;
    struct blocks *blocks = wf_take_zeroed(1, sizeof *blocks);
    bool ok = read_prefix(h, address, &version, &flags, blocks, err);
    for (int i = 0; ok && i < blocks->count; i++) {
        const size_t bytes = (size_t)blocks->at[i].bytes;
        unsigned char *room = wf_take(bytes ? bytes : 1);
        struct wf_h5_cursor c = { 0 };
        ok = read_at(h, blocks->at[i].address, room, bytes, &c, err);
        uint64_t where = h->base + blocks->at[i].address;
        if (ok && version == 2 && i > 0) {
            /* Further blocks of the new kind have a signature before and a sum behind. */
            if (bytes < 8 || memcmp(room, "OCHK", 4) != 0) {
                ok = wf_h5_damaged(h->file, "an object header breaks off", err);
            } else {
                c.at += 4;
                c.end -= 4;
                where += 4;
            }
        }
        ok = ok && visit_block(h, &c, where, version, flags, blocks, v, err);
        free(room);
    }
    free(blocks);
    return ok;
}

/* --- groups --- */
struct group {
    struct h5 *h;
    bool is_group, is_dense;
    uint64_t tree, heap; /* the old kind */
    /* A link that was found. Returns false to stop with an error. */
    bool (*link)(void *arg, const char *name, uint64_t address, struct wf_err *err);
    void *arg;
};

/* A link message of the new kind; only hard links lead on. */
static bool take_link(struct group *g, const struct wf_h5_message *m, struct wf_err *err)
{
    struct wf_h5_cursor c = { m->data, m->data + m->size, false };
    char name[NAME];
    const int version = (int)wf_h5_take(&c, 1), flags = (int)wf_h5_take(&c, 1);
    const int kind = flags & 8 ? (int)wf_h5_take(&c, 1) : 0;
    wf_h5_skip(&c, (flags & 4 ? 8u : 0u) + (flags & 16 ? 1u : 0u));
    const uint64_t length = wf_h5_take(&c, 1 << (flags & 3));
    const unsigned char *text = c.at;
    wf_h5_skip(&c, length);
    if (version != 1 || kind != 0 || length >= NAME || c.bad)
        return !c.bad || wf_h5_damaged(g->h->file, "a link without an end", err);
    memcpy(name, text, (size_t)length);
    name[length] = '\0';
    const uint64_t address = wf_h5_take(&c, 8);
    return c.bad ? wf_h5_damaged(g->h->file, "a link without an end", err)
                 : g->link(g->arg, name, address, err);
}

static bool group_message(void *arg, const struct wf_h5_message *m, struct wf_err *err)
{
    struct group *g = arg;
    struct wf_h5_cursor c = { m->data, m->data + m->size, false };
    if (m->type == MESSAGE_GROUP) {
        g->is_group = true;
        g->tree = wf_h5_take(&c, 8);
        g->heap = wf_h5_take(&c, 8);
    } else if (m->type == MESSAGE_LINK_INFO) {
        g->is_group = true;
        wf_h5_skip(&c, 1);
        wf_h5_skip(&c, wf_h5_take(&c, 1) & 1 ? 8 : 0);
        g->is_dense = wf_h5_take(&c, 8) != NOWHERE;
    } else if (m->type == MESSAGE_LINK) {
        g->is_group = true;
        return take_link(g, m, err);
    }
    return !c.bad || wf_h5_damaged(g->h->file, "a group without an end", err);
}

/* The names of the old kind lie in a heap, each ended by a zero. */
static bool read_name(const struct group *g, uint64_t heap, uint64_t size, uint64_t at,
                      char name[NAME], struct wf_err *err)
{
    if (at >= size)
        return wf_h5_damaged(g->h->file, "a name outside of its heap", err);
    struct wf_h5_cursor c = { 0 };
    const size_t bytes = size - at < NAME ? (size_t)(size - at) : NAME;
    if (heap > UINT64_MAX - at || !read_at(g->h, heap + at, name, bytes, &c, err))
        return wf_h5_damaged(g->h->file, "a name outside of its heap", err);
    return memchr(name, '\0', bytes) || wf_h5_damaged(g->h->file, "a name without an end", err);
}

struct heap {
    uint64_t address, size;
};

static bool read_symbols(const struct group *g, const struct heap *heap, uint64_t address,
                         struct wf_err *err)
{
    unsigned char room[40] = { 0 };
    struct wf_h5_cursor c = { 0 };
    if (!read_at(g->h, address, room, 8, &c, err))
        return false;
    if (memcmp(room, "SNOD", 4) != 0)
        return wf_h5_damaged(g->h->file, "a group without its table", err);
    wf_h5_skip(&c, 6);
    const int count = (int)wf_h5_take(&c, 2);
    for (int i = 0; i < count; i++) {
        char name[NAME];
        if (!read_at(g->h, address + 8 + (uint64_t)i * 40, room, 40, &c, err))
            return false;
        const uint64_t at = wf_h5_take(&c, 8), object = wf_h5_take(&c, 8), kind = wf_h5_take(&c, 4);
        if (!read_name(g, heap->address, heap->size, at, name, err))
            return false;
        if (kind != 2 && !g->link(g->arg, name, object, err)) /* 2: a link by name */
            return false;
    }
    return true;
}

static bool walk_tree(const struct group *g, const struct heap *heap, uint64_t address, int below,
                      struct wf_err *err)
{
    unsigned char room[24] = { 0 };
    struct wf_h5_cursor c = { 0 };
    if (!read_at(g->h, address, room, 24, &c, err))
        return false;
    const int level = room[5], count = room[6] | room[7] << 8;
    if (memcmp(room, "TREE\0", 5) != 0 || level >= below)
        return wf_h5_damaged(g->h->file, "a group without its tree", err);
    for (int i = 0; i < count; i++) {
        /* Keys and children take turns, eight bytes each. */
        if (!read_at(g->h, address + 32 + (uint64_t)i * 16, room, 8, &c, err))
            return false;
        const uint64_t child = wf_h5_take(&c, 8);
        if (level ? !walk_tree(g, heap, child, level, err) : !read_symbols(g, heap, child, err))
            return false;
    }
    return true;
}

/* Calls g->link for each name in the group at `address`; g->is_group tells whether it is one. */
static bool walk_group(struct group *g, uint64_t address, struct wf_err *err)
{
    g->is_group = g->is_dense = false;
    g->tree = g->heap = NOWHERE;
    const struct visitor v = { group_message, g };
    if (!visit_object(g->h, address, &v, err))
        return false;
    if (g->is_dense)
        return advise(g->h, "a group with many names in a form that is not read here", err);
    if (g->tree == NOWHERE)
        return true;
    unsigned char room[32] = { 0 };
    struct wf_h5_cursor c = { 0 };
    if (!read_at(g->h, g->heap, room, 32, &c, err))
        return false;
    if (memcmp(room, "HEAP", 4) != 0)
        return wf_h5_damaged(g->h->file, "a group without its names", err);
    wf_h5_skip(&c, 8);
    struct heap heap;
    heap.size = wf_h5_take(&c, 8);
    wf_h5_skip(&c, 8);
    heap.address = wf_h5_take(&c, 8);
    return walk_tree(g, &heap, g->tree, DEPTH, err);
}

/* --- looking for a dataset --- */
struct wanted {
    const char *name;
    size_t length;
    uint64_t address; /* NOWHERE: not found */
};

static bool is_wanted(void *arg, const char *name, uint64_t address, struct wf_err *)
{
    struct wanted *w = arg;
    if (strlen(name) == w->length && memcmp(name, w->name, w->length) == 0)
        w->address = address;
    return true;
}

/* Down the path, one group for each part of it. */
static bool follow(struct h5 *h, const char *path, uint64_t *address, struct wf_err *err)
{
    *address = h->root;
    for (const char *at = path; *at;) {
        if (*at == '/') {
            at++;
            continue;
        }
        struct wanted w = { at, strcspn(at, "/"), NOWHERE };
        struct group g = { .h = h, .link = is_wanted, .arg = &w };
        if (!walk_group(&g, *address, err))
            return false;
        if (w.address == NOWHERE)
            return wf_err_set(err, WF_ERR_INPUT,
                              "'%s': no dataset '%s' in it: list them with 'h5ls -r'",
                              h->file->name, path);
        *address = w.address;
        at += w.length;
    }
    return true;
}

struct search {
    struct h5 *h;
    int depth, count;
    uint64_t found;
    char name[NAME];
};

struct kind {
    bool dataset, group;
};

static bool note_kind(void *arg, const struct wf_h5_message *m, struct wf_err *)
{
    struct kind *kind = arg;
    kind->dataset = kind->dataset || m->type == 8;
    kind->group = kind->group || m->type == MESSAGE_GROUP || m->type == MESSAGE_LINK_INFO ||
                  m->type == MESSAGE_LINK;
    return true;
}

/* Datasets below a group; the first one's last name is kept for advice. */
static bool count_datasets(void *arg, const char *name, uint64_t address, struct wf_err *err)
{
    struct search *s = arg;
    if (s->count > 1)
        return true; /* two are enough to know */
    struct kind kind = { 0 };
    const struct visitor v = { note_kind, &kind };
    if (!visit_object(s->h, address, &v, err))
        return false;
    if (kind.dataset) {
        s->found = address;
        if (s->count++ == 0)
            (void)snprintf(s->name, sizeof s->name, "%s", name);
    } else if (kind.group) {
        if (s->depth == DEPTH)
            return wf_h5_damaged(s->h->file, "groups in groups without end", err);
        struct group g = { .h = s->h, .link = count_datasets, .arg = s };
        s->depth++;
        if (!walk_group(&g, address, err))
            return false;
        s->depth--;
    }
    return true;
}

static bool find_only(struct h5 *h, uint64_t *address, struct wf_err *err)
{
    struct search s = { .h = h };
    if (!count_datasets(&s, "", h->root, err))
        return false;
    for (char *c = s.name; *c; c++)
        *c = *c < ' ' || *c > '~' ? '?' : *c;
    *address = s.found;
    if (s.count == 1)
        return true;
    if (s.count == 0)
        return wf_err_set(err, WF_ERR_INPUT, "'%s': no dataset in it: save one with h5py",
                          h->file->name);
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s': several datasets, '%s' and others: name one, as in '%s:/group/name'",
                      h->file->name, s.name, h->file->name);
}

struct description {
    struct wf_h5_dataset *set;
    unsigned seen;
};

static bool describe(void *arg, const struct wf_h5_message *m, struct wf_err *err)
{
    struct description *d = arg;
    return wf_h5_describe(d->set, m, &d->seen, err);
}

bool wf_h5_find(const struct wf_infile *file, const char *path, struct wf_h5_dataset *set,
                struct wf_err *err)
{
    const uint64_t most = (PURSE_MAX - BUDGET_MIN) / BUDGET_RATIO;
    struct h5 h = { .file = file,
                    .budget = BUDGET_MIN + BUDGET_RATIO * (file->size < most ? file->size : most) };
    uint64_t address;
    if (!read_superblock(&h, err) ||
        !(path ? follow(&h, path, &address, err) : find_only(&h, &address, err)))
        return false;
    *set = (struct wf_h5_dataset){ .file = file, .base = h.base };
    struct description d = { .set = set };
    const struct visitor v = { describe, &d };
    if (!visit_object(&h, address, &v, err))
        return false;
    if (d.seen == WF_H5_ALL)
        return true;
    return wf_err_set(err, WF_ERR_INPUT, "'%s': no dataset '%s' in it: list them with 'h5ls -r'",
                      file->name, path ? path : "");
}
