/* Reading: the directory stands at the end of the file, found from its last record backwards. */
#include "image/npz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

#include "image/raster_format.h"

enum { END = 22, COMMENT = 65535, END64 = 56, LOCATOR = 20, ENTRY = 46, LOCAL = 30 };

/* --- small things --- */

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static bool is_record(const unsigned char *at, unsigned char a, unsigned char b)
{
    return at[0] == 'P' && at[1] == 'K' && at[2] == a && at[3] == b;
}

static bool damaged(const struct wf_npz *z, const char *what, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s': %s: it is cut short or damaged, copy or save it again", z->file.name,
                      what);
}

uint32_t wf_npz_crc(uint32_t before, const void *data, size_t bytes)
{
#ifdef WF_HAVE_ZLIB
    return (uint32_t)crc32_z(before, data, bytes);
#else
    static const uint32_t of_nibble[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    uint32_t crc = ~before;
    for (const unsigned char *at = data; bytes; bytes--, at++) {
        crc = of_nibble[(crc ^ *at) & 15] ^ crc >> 4;
        crc = of_nibble[(crc ^ *at >> 4) & 15] ^ crc >> 4;
    }
    return ~crc;
#endif
}

/* --- the directory --- */

struct directory {
    uint64_t at, bytes, count;
};

/* Past 4 GB the last record refers to a larger one, through a locator before it. */
static bool find_large(const struct wf_npz *z, uint64_t end, struct directory *d,
                       struct wf_err *err)
{
    unsigned char locator[LOCATOR], record[END64];
    if (end < LOCATOR)
        return true;
    if (!wf_infile_read(&z->file, end - LOCATOR, locator, sizeof locator, err))
        return false;
    if (!is_record(locator, 6, 7))
        return true;
    const uint64_t at = number(locator + 8, 8);
    if (z->file.size < END64 || at > z->file.size - END64)
        return damaged(z, "its directory is past its end", err);
    if (!wf_infile_read(&z->file, at, record, sizeof record, err))
        return false;
    if (!is_record(record, 6, 6))
        return damaged(z, "it has no directory where it says", err);
    *d = (struct directory){ .count = number(record + 32, 8),
                             .bytes = number(record + 40, 8),
                             .at = number(record + 48, 8) };
    return true;
}

static bool find_directory(const struct wf_npz *z, struct directory *d, struct wf_err *err)
{
    const uint64_t size = z->file.size;
    if (size < END)
        return damaged(z, "not a .npz file", err);
    const size_t tail = (size_t)wf_min((int64_t)size, END + COMMENT);
    unsigned char *const bytes = malloc(tail);
    if (!bytes)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory to read it", z->file.name);
    bool ok = wf_infile_read(&z->file, size - tail, bytes, tail, err), found = false;
    uint64_t end = 0;
    for (size_t i = tail - END + 1; ok && !found && i-- > 0;) {
        found = is_record(bytes + i, 5, 6);
        if (!found)
            continue;
        end = size - tail + i;
        *d = (struct directory){ .count = number(bytes + i + 10, 2),
                                 .bytes = number(bytes + i + 12, 4),
                                 .at = number(bytes + i + 16, 4) };
    }
    free(bytes);
    if (ok && !found)
        return damaged(z, "a .npz file ends with a directory, this has none", err);
    ok = ok && find_large(z, end, d, err);
    if (ok && (d->at > size || d->bytes > size - d->at || d->count > d->bytes / ENTRY))
        return damaged(z, "its directory is past its end", err);
    return ok;
}

/* Numbers that do not fit 32 bits are in an extra field, in the order of their places. */
static void read_large(struct wf_npz_member *m, const unsigned char *extra, size_t bytes)
{
    uint64_t *const numbers[] = { &m->bytes, &m->packed, &m->at };
    while (bytes >= 4) {
        const size_t length = number(extra + 2, 2);
        if (length > bytes - 4)
            return;
        if (number(extra, 2) == 1) {
            size_t used = 0;
            for (int i = 0; i < 3; i++)
                if (*numbers[i] == UINT32_MAX && used + 8 <= length) {
                    *numbers[i] = number(extra + 4 + used, 8);
                    used += 8;
                }
            return;
        }
        extra += 4 + length;
        bytes -= 4 + length;
    }
}

static bool read_entries(struct wf_npz *z, const struct directory *d, const unsigned char *at,
                         struct wf_err *err)
{
    uint64_t left = d->bytes;
    for (uint64_t i = 0; i < d->count; i++) {
        if (left < ENTRY || !is_record(at, 1, 2))
            return damaged(z, "an entry of its directory is missing", err);
        const size_t name = number(at + 28, 2), extra = number(at + 30, 2);
        const size_t all = ENTRY + name + extra + number(at + 32, 2);
        if (left < all)
            return damaged(z, "an entry of its directory is cut off", err);
        struct wf_npz_member *const m = &z->members[z->count++];
        *m = (struct wf_npz_member){ .method = (int)number(at + 10, 2),
                                     .locked = number(at + 8, 2) & 1,
                                     .crc = (uint32_t)number(at + 16, 4),
                                     .packed = number(at + 20, 4),
                                     .bytes = number(at + 24, 4),
                                     .at = number(at + 42, 4) };
        const char *const text = (const char *)at + ENTRY;
        const size_t stem = name > 4 && memcmp(text + name - 4, ".npy", 4) == 0 ? name - 4 : name;
        (void)snprintf(m->name, sizeof m->name, "%.*s", (int)stem, text);
        read_large(m, at + ENTRY + name, extra);
        at += all;
        left -= all;
    }
    return true;
}

static bool read_directory(struct wf_npz *z, struct wf_err *err)
{
    struct directory d = { 0 };
    if (!find_directory(z, &d, err))
        return false;
    unsigned char *const bytes = malloc((size_t)d.bytes + 1);
    z->members = calloc((size_t)d.count + 1, sizeof *z->members);
    bool ok = bytes && z->members;
    if (!ok)
        (void)wf_err_set(err, WF_ERR_FIT, "'%s': no memory for its directory", z->file.name);
    ok = ok && wf_infile_read(&z->file, d.at, bytes, (size_t)d.bytes, err) &&
         read_entries(z, &d, bytes, err);
    free(bytes);
    return ok;
}

static bool open_archive(struct wf_npz *z, struct wf_err *err)
{
    if (read_directory(z, err))
        return true;
    wf_npz_close(z);
    return false;
}

bool wf_npz_open(struct wf_npz *z, const char *path, struct wf_err *err)
{
    *z = (struct wf_npz){ 0 };
    return wf_infile_open(&z->file, path, err) && open_archive(z, err);
}

bool wf_npz_parse(struct wf_npz *z, const char *name, const void *bytes, size_t size,
                  struct wf_err *err)
{
    *z = (struct wf_npz){ 0 };
    wf_infile_memory(&z->file, name, bytes, size);
    return open_archive(z, err);
}

void wf_npz_close(struct wf_npz *z)
{
    free(z->members);
    z->members = NULL;
    z->count = 0;
    wf_infile_close(&z->file);
}

const struct wf_npz_member *wf_npz_find(const struct wf_npz *z, const char *name)
{
    for (size_t i = 0; i < z->count; i++)
        if (strcmp(z->members[i].name, name) == 0)
            return &z->members[i];
    return NULL;
}

/* --- an array --- */

static bool unpack(const struct wf_npz *z, const struct wf_npz_member *m, unsigned char *packed,
                   unsigned char *bytes, struct wf_err *err)
{
#ifdef WF_HAVE_ZLIB
    z_stream s = { 0 };
    if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory to decompress it", z->file.name);
    enum { PIECE = 1 << 30 }; /* zlib counts in 32 bits */
    uint64_t in = 0, out = 0;
    int state = Z_OK;
    while (state == Z_OK) {
        s.next_in = packed + in;
        s.avail_in = (uInt)wf_min((int64_t)(m->packed - in), PIECE);
        s.next_out = bytes + out;
        s.avail_out = (uInt)wf_min((int64_t)(m->bytes - out), PIECE);
        const uInt had_in = s.avail_in, had_out = s.avail_out;
        state = inflate(&s, Z_NO_FLUSH);
        in += had_in - s.avail_in;
        out += had_out - s.avail_out;
        if (state == Z_OK && had_in == s.avail_in && had_out == s.avail_out)
            break; /* neither moves: more came out than the directory says */
    }
    (void)inflateEnd(&s);
    return (state == Z_STREAM_END && out == m->bytes) ||
           damaged(z, "an array cannot be decompressed", err);
#else
    (void)m;
    (void)packed;
    (void)bytes;
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s' is compressed and this build has no zlib: install zlib1g-dev and build "
                      "again, or write it with numpy.savez()",
                      z->file.name);
#endif
}

/* Where the member's bytes start, once its sizes are known to be possible. */
static bool find_bytes(const struct wf_npz *z, const struct wf_npz_member *m, uint64_t *from,
                       struct wf_err *err)
{
    unsigned char local[LOCAL];
    if (m->locked || (m->method != 0 && m->method != 8))
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': array '%s' is encrypted or compressed in an unknown way: write it "
                          "with numpy.savez()",
                          z->file.name, m->name);
    if (z->file.size < LOCAL || m->at > z->file.size - LOCAL)
        return damaged(z, "an array is past its end", err);
    if (!wf_infile_read(&z->file, m->at, local, sizeof local, err))
        return false;
    if (!is_record(local, 3, 4))
        return damaged(z, "an array is not where its directory says", err);
    *from = m->at + LOCAL + number(local + 26, 2) + number(local + 28, 2);
    if (*from > z->file.size || m->packed > z->file.size - *from)
        return damaged(z, "an array is past its end", err);
    if (m->method == 0 ? m->bytes != m->packed : m->bytes / WF_DEFLATE_RATIO > m->packed)
        return damaged(z, "the size of an array is not possible", err);
    return true;
}

bool wf_npz_load(const struct wf_npz *z, const char *name, struct wf_npz_array *a,
                 struct wf_err *err)
{
    *a = (struct wf_npz_array){ .npy.file.fd = -1 };
    const struct wf_npz_member *const m = wf_npz_find(z, name);
    uint64_t from = 0;
    if (!m)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has no array '%s'", z->file.name, name);
    if (!find_bytes(z, m, &from, err))
        return false;
    a->bytes = malloc((size_t)m->bytes + 1);
    unsigned char *const packed = m->method ? malloc((size_t)m->packed + 1) : a->bytes;
    bool ok = a->bytes && packed;
    if (!ok)
        (void)wf_err_set(err, WF_ERR_FIT, "'%s': no memory for its array '%s' of %" PRIu64 " bytes",
                         z->file.name, name, m->bytes);
    ok = ok && wf_infile_read(&z->file, from, packed, (size_t)m->packed, err) &&
         (m->method == 0 || unpack(z, m, packed, a->bytes, err));
    if (m->method)
        free(packed);
    if (ok && wf_npz_crc(0, a->bytes, (size_t)m->bytes) != m->crc)
        ok = damaged(z, "the checksum of an array is wrong", err);
    char *shown = NULL;
    if (ok && asprintf(&shown, "%s:%s", z->file.name, name) >= 0)
        ok = wf_npy_parse(&a->npy, shown, a->bytes, (size_t)m->bytes, err);
    free(shown);
    return ok;
}

void wf_npz_array_release(struct wf_npz_array *a)
{
    wf_npy_close(&a->npy);
    free(a->bytes);
    *a = (struct wf_npz_array){ .npy.file.fd = -1 };
}
