#include "image/png_inflate.h"

#ifdef WF_HAVE_DEFLATE
#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

enum {
    SIGNATURE = 8,
    CHUNK = 12, /* length, name and checksum */
    HEAD = 8,
    BLOCK_MOST = 65535, /* bytes of a block that is not compressed */
    BLOCK_HEAD = 5,
    ZLIB_HEAD = 2,
    ZLIB_TAIL = 4,
};

static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_big_endian(unsigned char *at, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(x >> (24 - 8 * i));
}

static bool chunk_at(const struct wf_infile *file, uint64_t at, unsigned char head[HEAD],
                     struct wf_err *err)
{
    return wf_infile_read(file, at, head, HEAD, err) && at + CHUNK + big_endian(head) <= file->size;
}

static bool is_pixels(const unsigned char head[HEAD])
{
    return memcmp(head + 4, "IDAT", 4) == 0;
}

/* Where the chunks of pixels begin and end. */
static bool find(const struct wf_infile *file, uint64_t *from, uint64_t *to)
{
    struct wf_err ignored = { 0 };
    unsigned char head[HEAD];
    *from = SIGNATURE;
    while (chunk_at(file, *from, head, &ignored) && !is_pixels(head))
        *from += CHUNK + big_endian(head);
    *to = *from;
    while (chunk_at(file, *to, head, &ignored) && is_pixels(head))
        *to += CHUNK + big_endian(head);
    return *to > *from;
}

/* The chunks' contents moved together; 0: one is damaged. */
static size_t join(unsigned char *chunks, size_t bytes)
{
    size_t joined = 0;
    for (size_t at = 0; at < bytes;) {
        const size_t length = big_endian(chunks + at);
        const unsigned char *const name = chunks + at + 4;
        if (bytes - at < CHUNK || length > bytes - at - CHUNK || /* the file has changed since */
            libdeflate_crc32(0, name, 4 + length) != big_endian(name + 4 + length))
            return 0;
        at += CHUNK + length;
        memmove(chunks + joined, name + 4, length);
        joined += length;
    }
    return joined;
}

static bool inflate_all(const unsigned char *from, size_t bytes, unsigned char *to, size_t raw)
{
    struct libdeflate_decompressor *const d = libdeflate_alloc_decompressor();
    size_t made = 0;
    const bool ok =
        d && bytes > 0 &&
        libdeflate_zlib_decompress(d, from, bytes, to, raw, &made) == LIBDEFLATE_SUCCESS &&
        made == raw;
    libdeflate_free_decompressor(d);
    return ok;
}

/* The chunk: its head, and before each block of the rows behind it that block's. Checksums are not asked for. */
static void wrap(unsigned char *to, size_t length, const unsigned char *rows, size_t raw)
{
    put_big_endian(to, (uint32_t)length);
    memcpy(to + 4, "IDAT\x78\x01", 4 + ZLIB_HEAD);
    to += HEAD + ZLIB_HEAD;
    for (size_t at = 0; at < raw;) {
        const size_t some = raw - at < BLOCK_MOST ? raw - at : BLOCK_MOST;
        memmove(to + BLOCK_HEAD, rows + at, some);
        to[0] = at + some == raw; /* the last one */
        to[1] = (unsigned char)(some & 0xff);
        to[2] = (unsigned char)(some >> 8);
        to[3] = (unsigned char)~to[1];
        to[4] = (unsigned char)~to[2];
        to += BLOCK_HEAD + some;
        at += some;
    }
    memset(to, 0, ZLIB_TAIL + CHUNK - HEAD);
}

bool wf_png_inflate(struct wf_png_inflated *in, const struct wf_infile *file, uint64_t raw)
{
    struct wf_err ignored = { 0 };
    uint64_t to;
    if (!find(file, &in->from, &to) || raw > INT32_MAX / 2)
        return false;
    const size_t bytes = (size_t)(to - in->from),
                 blocks = ((size_t)raw + BLOCK_MOST - 1) / BLOCK_MOST;
    const size_t length = ZLIB_HEAD + blocks * BLOCK_HEAD + (size_t)raw + ZLIB_TAIL;
    unsigned char *const packed = malloc(bytes), *const data = malloc(CHUNK + length);
    /* Behind the place where they are to be, by the heads of all blocks. */
    unsigned char *const rows = data ? data + HEAD + ZLIB_HEAD + blocks * BLOCK_HEAD : NULL;
    const bool ok = packed && data && wf_infile_read(file, in->from, packed, bytes, &ignored) &&
                    inflate_all(packed, join(packed, bytes), rows, (size_t)raw);
    free(packed);
    if (!ok) {
        free(data);
        return false;
    }
    wrap(data, length, rows, (size_t)raw);
    in->data = data;
    in->bytes = CHUNK + length;
    return true;
}

#endif
