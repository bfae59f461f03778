/* Where a chunk lies, and its values out of its filters. */
#include <stdlib.h>
#include <string.h>

#include "image/hdf5.h"

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

/* A place in the file that an index gave, as an address from its base. */
static bool place_chunk(const struct wf_h5_dataset *set, uint64_t address, uint64_t bytes,
                        struct wf_h5_chunk *chunk, struct wf_err *err)
{
    const uint64_t size = set->file->size - set->base;
    chunk->written = address != UINT64_MAX;
    if (!chunk->written)
        return true;
    if (address > size || bytes > size - address)
        return wf_h5_damaged(set->file, "a chunk lies past its end", err);
    chunk->address = set->base + address;
    chunk->bytes = bytes;
    return true;
}

static uint64_t chunk_bytes(const struct wf_h5_dataset *set)
{
    uint64_t bytes = wf_sample_size(set->sample);
    for (int i = 0; i < set->rank; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)set->chunk[i], &bytes))
            return UINT64_MAX;
    return bytes;
}

/* --- the old B-tree --- */
/* Key `i` of a node: what it says of the chunk, compared with the one that is wanted. */
static bool compare_key(const struct wf_h5_dataset *set, uint64_t node, int i,
                        const int64_t which[], int *order, uint32_t head[2], struct wf_err *err)
{
    unsigned char room[8 + 8 * (WF_H5_RANK + 1)];
    const size_t bytes = 8 + 8 * ((size_t)set->rank + 1);
    if (!wf_infile_read(set->file, node + 24 + (uint64_t)i * (bytes + 8), room, bytes, err))
        return false;
    struct wf_h5_cursor c = { room, room + bytes, false };
    head[0] = (uint32_t)wf_h5_take(&c, 4);
    head[1] = (uint32_t)wf_h5_take(&c, 4);
    *order = 0;
    for (int axis = 0; axis < set->rank && *order == 0; axis++) {
        const uint64_t key = wf_h5_take(&c, 8);
        const uint64_t want = (uint64_t)which[axis] * (uint64_t)set->chunk[axis];
        *order = key < want ? -1 : key > want;
    }
    return true;
}

/* The last key of the node that is not past the chunk; -1: none. */
static bool search_node(const struct wf_h5_dataset *set, uint64_t node, int count,
                        const int64_t which[], int *found, int *order, uint32_t head[2],
                        struct wf_err *err)
{
    int low = 0, high = count; /* keys below `low` are not past it, keys from `high` on are */
    *found = -1;
    while (low < high) {
        const int middle = (low + high) / 2;
        int now;
        uint32_t there[2];
        if (!compare_key(set, node, middle, which, &now, there, err))
            return false;
        if (now > 0) {
            high = middle;
            continue;
        }
        low = middle + 1;
        *found = middle;
        *order = now;
        memcpy(head, there, sizeof there);
    }
    return true;
}

/* Levels of a tree in a file of this size, were each node to have two children only. */
static int levels_in(uint64_t size)
{
    int levels = 2;
    for (uint64_t nodes = size / 24; nodes > 1; nodes /= 2)
        levels++;
    return levels;
}

static bool find_in_tree(const struct wf_h5_dataset *set, const int64_t which[],
                         struct wf_h5_chunk *chunk, struct wf_err *err)
{
    const size_t step = 8 + 8 * ((size_t)set->rank + 1) + 8;
    uint64_t node = set->address;
    for (int below = levels_in(set->file->size);;) {
        unsigned char room[24];
        if (!wf_infile_read(set->file, node, room, sizeof room, err))
            return false;
        const int level = room[5], count = room[6] | room[7] << 8;
        if (memcmp(room, "TREE\x01", 5) != 0 || level >= below)
            return wf_h5_damaged(set->file, "chunks without their tree", err);
        int found, order = 0;
        uint32_t head[2] = { 0 };
        if (!search_node(set, node, count, which, &found, &order, head, err))
            return false;
        if (found < 0 || (level == 0 && order != 0))
            return true; /* never written */
        if (!wf_infile_read(set->file, node + 24 + (uint64_t)found * step + step - 8, room, 8, err))
            return false;
        struct wf_h5_cursor c = { room, room + 8, false };
        const uint64_t address = wf_h5_take(&c, 8);
        if (level == 0) {
            chunk->skipped = head[1];
            return place_chunk(set, address, head[0], chunk, err);
        }
        if (address > set->file->size - set->base)
            return wf_h5_damaged(set->file, "chunks without their tree", err);
        node = set->base + address;
        below = level;
    }
}

/* --- the newer ones --- */
/* The chunk's number, rows first. */
static uint64_t number_of(const struct wf_h5_dataset *set, const int64_t which[])
{
    uint64_t number = 0;
    for (int i = 0; i < set->rank; i++)
        number = number * (uint64_t)wf_ceil_div(set->shape[i], set->chunk[i]) + (uint64_t)which[i];
    return number;
}

struct fixed {
    int entry, page_bits;
    uint64_t count, block;
};

static bool read_fixed(const struct wf_h5_dataset *set, struct fixed *f, struct wf_err *err)
{
    unsigned char room[28];
    if (!wf_infile_read(set->file, set->address, room, 24, err))
        return false;
    struct wf_h5_cursor c = { room + 6, room + 24, false };
    f->entry = (int)wf_h5_take(&c, 1);
    f->page_bits = (int)wf_h5_take(&c, 1);
    f->count = wf_h5_take(&c, 8);
    f->block = wf_h5_take(&c, 8);
    const bool filtered = room[5] == 1;
    if (memcmp(room, "FAHD\0", 5) != 0 || room[5] > 1 || f->page_bits > 30 ||
        (filtered ? f->entry < 13 || f->entry > 20 : f->entry != 8) ||
        filtered != (set->filter_count > 0))
        return wf_h5_damaged(set->file, "chunks without their table", err);
    return f->block == UINT64_MAX || f->block <= set->file->size - set->base ||
           wf_h5_damaged(set->file, "chunks without their table", err);
}

/* Where entry `number` lies in the data block; pages come after a bit for each, and have a sum. */
static bool locate(const struct wf_h5_dataset *set, const struct fixed *f, uint64_t number,
                   uint64_t *where, bool *written, struct wf_err *err)
{
    enum { PREFIX = 14, SUM = 4 };
    const uint64_t per_page = (uint64_t)1 << f->page_bits, block = set->base + f->block;
    *written = true;
    if (f->count <= per_page) {
        *where = block + PREFIX + number * (uint64_t)f->entry;
        return true;
    }
    const uint64_t pages = (f->count - 1) / per_page + 1, page = number / per_page;
    unsigned char bits;
    if (!wf_infile_read(set->file, block + PREFIX + page / 8, &bits, 1, err))
        return false;
    *written = bits >> (7 - page % 8) & 1;
    *where = block + PREFIX + (pages + 7) / 8 + SUM + page * (per_page * (uint64_t)f->entry + SUM) +
             number % per_page * (uint64_t)f->entry;
    return true;
}

static bool find_in_fixed(const struct wf_h5_dataset *set, uint64_t number,
                          struct wf_h5_chunk *chunk, struct wf_err *err)
{
    struct fixed f;
    unsigned char room[24];
    uint64_t where;
    bool written;
    if (!read_fixed(set, &f, err))
        return false;
    if (f.block == UINT64_MAX)
        return true;
    if (number >= f.count || f.count > set->file->size)
        return wf_h5_damaged(set->file, "more chunks than their table has", err);
    if (!locate(set, &f, number, &where, &written, err))
        return false;
    if (!written)
        return true;
    if (!wf_infile_read(set->file, where, room, (size_t)f.entry, err))
        return false;
    struct wf_h5_cursor c = { room, room + f.entry, false };
    const uint64_t address = wf_h5_take(&c, 8);
    uint64_t bytes = chunk_bytes(set);
    if (set->filter_count) {
        bytes = wf_h5_take(&c, f.entry - 12);
        chunk->skipped = (uint32_t)wf_h5_take(&c, 4);
    }
    return place_chunk(set, address, bytes, chunk, err);
}

bool wf_h5_chunk_at(const struct wf_h5_dataset *set, const int64_t which[],
                    struct wf_h5_chunk *chunk, struct wf_err *err)
{
    *chunk = (struct wf_h5_chunk){ 0 };
    if (!set->written)
        return true;
    const uint64_t address = set->address - set->base, bytes = chunk_bytes(set);
    switch (set->index) {
    case WF_H5_TREE:
        return find_in_tree(set, which, chunk, err);
    case WF_H5_SINGLE:
        chunk->skipped = set->single_mask;
        return place_chunk(set, address, set->filter_count ? set->single_bytes : bytes, chunk, err);
    case WF_H5_IMPLICIT: {
        uint64_t offset;
        if (__builtin_mul_overflow(number_of(set, which), bytes, &offset) ||
            __builtin_add_overflow(offset, address, &offset))
            return wf_h5_damaged(set->file, "a chunk lies past its end", err);
        return place_chunk(set, offset, bytes, chunk, err);
    }
    default:
        return find_in_fixed(set, number_of(set, which), chunk, err);
    }
}

/* --- filters --- */
/* The sum of the format: Fletcher's, over 16-bit words with the high byte first. */
static uint32_t fletcher(const unsigned char *data, size_t bytes)
{
    uint32_t one = 0, two = 0;
    for (size_t i = 0; i < bytes; i += 2) {
        one += (uint32_t)data[i] << 8 | (i + 1 < bytes ? data[i + 1] : 0u);
        one = (one & 0xffff) + (one >> 16);
        two += one;
        two = (two & 0xffff) + (two >> 16);
    }
    return two << 16 | one;
}

/* Sums are equal modulo 65535 in each half: they may differ by that if reduced at another point. */
static bool same_sum(uint32_t a, uint32_t b)
{
    return (a & 0xffff) % 65535 == (b & 0xffff) % 65535 && (a >> 16) % 65535 == (b >> 16) % 65535;
}

/* All first bytes, then all second bytes, ...: back to one element after the other. */
static void unshuffle(const unsigned char *src, unsigned char *dst, size_t bytes, size_t size)
{
    const size_t count = bytes / size;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < size; k++)
            dst[i * size + k] = src[k * count + i];
    memcpy(dst + count * size, src + count * size, bytes - count * size);
}

static bool inflate_chunk(const struct wf_h5_dataset *set, const unsigned char *src, size_t *bytes,
                          unsigned char *dst, size_t room, struct wf_err *err)
{
#ifdef WF_HAVE_ZLIB
    z_stream z = { .next_in = (Bytef *)(uintptr_t)src, .avail_in = (uInt)*bytes };
    if (*bytes > UINT32_MAX || room > UINT32_MAX || inflateInit(&z) != Z_OK)
        return wf_h5_damaged(set->file, "a chunk that is too large", err);
    z.next_out = dst;
    z.avail_out = (uInt)room;
    const int got = inflate(&z, Z_FINISH);
    *bytes = room - z.avail_out;
    (void)inflateEnd(&z);
    return got == Z_STREAM_END || wf_h5_damaged(set->file, "a chunk that does not unpack", err);
#else
    (void)src, (void)bytes, (void)dst, (void)room;
    return wf_err_set(
        err, WF_ERR_INPUT,
        "'%s': packed by gzip, which this build cannot read: install 'zlib1g-dev' and "
        "build again",
        set->file->name);
#endif
}

static bool check_sum(const struct wf_h5_dataset *set, const unsigned char *src, size_t *bytes,
                      struct wf_err *err)
{
    if (*bytes < 4)
        return wf_h5_damaged(set->file, "a chunk without its sum", err);
    *bytes -= 4;
    struct wf_h5_cursor c = { src + *bytes, src + *bytes + 4, false };
    const uint32_t stored = (uint32_t)wf_h5_take(&c, 4), sum = fletcher(src, *bytes);
    return same_sum(stored, sum) || wf_h5_damaged(set->file, "a chunk whose sum is wrong", err);
}

bool wf_h5_unpack(const struct wf_h5_dataset *set, const struct wf_h5_chunk *chunk,
                  unsigned char *packed, unsigned char *dst, size_t bytes, struct wf_err *err)
{
    /* What lies between two filters may be a sum longer than the chunk. */
    enum { EXTRA = 4 * WF_H5_FILTERS };
    const size_t room = (chunk->bytes > bytes ? (size_t)chunk->bytes : bytes) + EXTRA;
    unsigned char *one = malloc(room), *two = malloc(room);
    if (!one || !two) {
        free(one);
        free(two);
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory to unpack it", set->file->name);
    }
    const unsigned char *now = packed;
    size_t have = (size_t)chunk->bytes;
    bool ok = true;
    for (int i = set->filter_count - 1; ok && i >= 0; i--) {
        if (chunk->skipped >> i & 1)
            continue;
        unsigned char *to = now == one ? two : one;
        if (set->filters[i] == WF_H5_FLETCHER) {
            ok = check_sum(set, now, &have, err);
            continue;
        }
        if (set->filters[i] == WF_H5_DEFLATE)
            ok = inflate_chunk(set, now, &have, to, room, err);
        else
            unshuffle(now, to, have, wf_sample_size(set->sample));
        now = to;
    }
    if (ok && have != bytes)
        ok = wf_h5_damaged(set->file, "a chunk of another size", err);
    if (ok)
        memcpy(dst, now, bytes);
    free(one);
    free(two);
    return ok;
}
