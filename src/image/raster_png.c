/* PNG, row by row through libpng. Bits are unpacked to bytes, nothing else is changed. Pixels of small files are inflated
 * at once, where libdeflate is there (png_inflate.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "image/png_inflate.h"
#include "image/raster_exif.h"
#include "image/raster_format.h"

static bool probe(const unsigned char *head, size_t bytes)
{
    return bytes >= 8 && memcmp(head, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef WF_HAVE_PNG
#include <png.h>

struct png {
    struct wf_guard guard;
    struct wf_raster *raster;
    png_structp png;
    png_infop info;
    uint64_t at; /* in the file */
    int64_t row; /* that libpng gives next; -1: it has to start again */
    void *dst;
    struct wf_raster_rows rows;
    bool interlaced;
    unsigned char *whole; /* interlaced files come only as a whole; decoded on the first read */
    struct wf_png_inflated inflated; /* in place of the file's pixels; or nothing */
};

static void on_error(png_structp png, png_const_charp message)
{
    wf_guard_leave(png_get_error_ptr(png), message);
}

static void on_warning(png_structp, png_const_charp)
{
}

static void on_read(png_structp png, png_bytep dst, size_t bytes)
{
    struct png *p = png_get_io_ptr(png);
    const struct wf_png_inflated *const in = &p->inflated;
    struct wf_err err = { 0 };
    if (in->data && p->at >= in->from) {
        if (p->at - in->from + bytes > in->bytes)
            png_error(png, "it ends too early");
        memcpy(dst, in->data + (p->at - in->from), bytes);
    } else if (!wf_infile_read(&p->raster->file, p->at, dst, bytes, &err))
        png_error(png, "it ends too early");
    p->at += bytes;
}

/* Chunks of which nothing is needed here, some of which can be bombs of their own. */
static const unsigned char unwanted[] =
    "iCCP\0zTXt\0iTXt\0tEXt\0sPLT\0hIST\0eXIf\0pCAL\0sCAL\0tIME\0"
    "tRNS\0bKGD\0cHRM\0gAMA\0sRGB\0sBIT\0oFFs";

static void start(void *arg)
{
    struct png *p = arg;
    png_set_read_fn(p->png, p, on_read);
    png_set_user_limits(p->png, INT32_MAX, INT32_MAX);
    png_set_chunk_malloc_max(p->png, 1 << 20);
    png_set_keep_unknown_chunks(p->png, PNG_HANDLE_CHUNK_NEVER, unwanted, sizeof unwanted / 5);
    if (p->inflated.data) { /* checksums were verified */
        png_set_crc_action(p->png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
        (void)png_set_option(p->png, PNG_IGNORE_ADLER32, PNG_OPTION_ON);
        png_set_compression_buffer_size(p->png, 1 << 16);
    }
    png_read_info(p->png, p->info);
    if (png_get_bit_depth(p->png, p->info) < 8)
        png_set_packing(p->png);
    if (png_get_bit_depth(p->png, p->info) == 16)
        png_set_swap(p->png);
    if (png_get_interlace_type(p->png, p->info) != PNG_INTERLACE_NONE)
        (void)png_set_interlace_handling(p->png);
}

/* Before the first row; allocates libpng's rows, so not before their size was checked. */
static void prepare(struct png *p)
{
    png_read_update_info(p->png, p->info);
    if (png_get_rowbytes(p->png, p->info) != p->rows.bytes)
        wf_guard_leave(&p->guard, "its rows have another size than its header says");
}

static bool restart(struct png *p, struct wf_err *err)
{
    if (p->png)
        png_destroy_read_struct(&p->png, &p->info, NULL);
    p->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &p->guard, on_error, on_warning);
    p->info = p->png ? png_create_info_struct(p->png) : NULL;
    p->at = 0;
    p->row = 0;
    if (!p->info)
        return wf_raster_no_memory(p->raster, err);
    if (!wf_guarded(&p->guard, start, p))
        return wf_raster_refuse(p->raster, err, "a damaged PNG header (%s): copy the file again",
                                p->guard.message);
    return true;
}

static void read_row(void *arg)
{
    struct png *p = arg;
    if (p->row == 0)
        prepare(p);
    png_read_row(p->png, p->dst, NULL);
}

static void read_whole(void *arg)
{
    struct png *p = arg;
    prepare(p);
    for (int pass = 0; pass < 7; pass++)
        for (int64_t row = 0; row < p->rows.count; row++)
            png_read_row(p->png, p->whole + (size_t)row * p->rows.bytes, NULL);
}

static bool refuse_pixels(const struct png *p, struct wf_err *err)
{
    return wf_raster_refuse(p->raster, err, "damaged pixels (%s): copy the file again",
                            p->guard.message);
}

static bool next_row(void *source, int64_t row, void *dst, struct wf_err *err)
{
    struct png *p = source;
    if (p->row != row && !restart(p, err))
        return false;
    p->dst = dst;
    const bool ok = wf_guarded(&p->guard, read_row, p) || refuse_pixels(p, err);
    p->row = ok ? row + 1 : -1;
    return ok;
}

/* A row as it is compressed: before unpacking, with its filter. */
static uint64_t row_bytes(const struct png *p)
{
    const uint64_t bits =
        (uint64_t)png_get_bit_depth(p->png, p->info) * png_get_channels(p->png, p->info);
    return ((uint64_t)p->raster->info.width * bits + 7) / 8 + 1;
}

static bool check_size(struct png *p, struct wf_err *err)
{
    const struct wf_raster *r = p->raster;
    if (p->rows.bytes > WF_RASTER_ROW_MAX)
        return wf_raster_refuse(r, err,
                                "rows of %zu bytes, at most %d are read: write it as a tiled "
                                "TIFF",
                                p->rows.bytes, (int)WF_RASTER_ROW_MAX);
    if (row_bytes(p) * (uint64_t)r->info.height / WF_DEFLATE_RATIO > r->file.size)
        return wf_raster_refuse(r, err,
                                "%" PRId64 " x %" PRId64 " pixels cannot be packed into %" PRIu64
                                " bytes: it is cut short or its header lies, copy it again",
                                r->info.height, r->info.width, r->file.size);
    const uint64_t whole = (uint64_t)p->rows.bytes * (uint64_t)r->info.height;
    p->interlaced = png_get_interlace_type(p->png, p->info) != PNG_INTERLACE_NONE;
    if (p->interlaced && (whole > WF_RASTER_BLOCK_MAX ||
                          (whole > WF_RASTER_WHOLE && whole / WF_RASTER_RATIO > r->file.size)))
        return wf_raster_refuse(r, err,
                                "an interlaced image of %" PRIu64 " bytes has to be decoded as a "
                                "whole and is too large: write it without interlacing",
                                whole);
    return true;
}

static bool decode_whole(struct png *p, struct wf_err *err)
{
    if (p->row != 0 && !restart(p, err))
        return false;
    p->whole = calloc((size_t)p->rows.count, p->rows.bytes);
    if (!p->whole)
        return wf_raster_no_memory(p->raster, err);
    p->row = -1;
    if (wf_guarded(&p->guard, read_whole, p))
        return true;
    free(p->whole);
    p->whole = NULL;
    return refuse_pixels(p, err);
}

static void read_palette(struct png *p)
{
    struct wf_raster_info *info = &p->raster->info;
    png_colorp colors = NULL;
    int count = 0;
    if (png_get_color_type(p->png, p->info) == PNG_COLOR_TYPE_PALETTE &&
        png_get_PLTE(p->png, p->info, &colors, &count))
        for (int i = 0; i < count && i < WF_RASTER_COLORS; i++, info->colors++) {
            info->palette[i][0] = colors[i].red;
            info->palette[i][1] = colors[i].green;
            info->palette[i][2] = colors[i].blue;
        }
    png_uint_32 x = 0, y = 0;
    int unit = 0;
    if (png_get_pHYs(p->png, p->info, &x, &y, &unit))
        p->raster->place = (struct wf_raster_place){
            .x = unit == PNG_RESOLUTION_METER ? x / 100.0 : x,
            .y = unit == PNG_RESOLUTION_METER ? y / 100.0 : y,
            .unit = unit == PNG_RESOLUTION_METER ? WF_UNIT_CM : WF_UNIT_NONE,
        };
}

static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* From chunk to chunk, without looking into them, up to the last or to the first of pixels; meanwhile,
 * the orientation of EXIF. libpng takes memory for such a chunk before it knows that it is there. */
static bool walk(struct wf_raster *r, bool to_the_end, int *orientation, struct wf_err *err)
{
    enum { EXIF_MAX = 1 << 16, PASSED = 1 << 12 };
    *orientation = 1;
    int passed = 0;
    for (uint64_t at = 8;;) {
        unsigned char head[8];
        if (!wf_infile_read(&r->file, at, head, sizeof head, err))
            return false;
        const uint32_t size = big_endian(head);
        const char *const name = (const char *)head + 4;
        if (memcmp(name, "IEND", 4) == 0 ||
            (!to_the_end && (memcmp(name, "IDAT", 4) == 0 || passed++ == PASSED)))
            return true;
        if (at + 12 + size > r->file.size)
            return wf_raster_refuse(r, err, "it is cut short: copy the file again");
        if (memcmp(name, "eXIf", 4) == 0) {
            const size_t bytes = size < EXIF_MAX ? size : EXIF_MAX;
            unsigned char *const block = malloc(bytes + 1);
            if (!block)
                return wf_raster_no_memory(r, err);
            const bool ok = wf_infile_read(&r->file, at + 8, block, bytes, err);
            *orientation = ok ? wf_exif_orientation(block, bytes) : 1;
            free(block);
            if (!ok)
                return false;
        }
        at += 12 + (uint64_t)size;
    }
}

/* EXIF may stand behind the pixels, where it is not looked for when the file is opened. */
static bool check_png(struct wf_raster *r, struct wf_err *err)
{
    int orientation;
    return walk(r, true, &orientation, err) &&
           (orientation == r->orientation ||
            wf_raster_refuse(r, err,
                             "its orientation stands behind its pixels: write it again, for "
                             "instance 'mogrify -auto-orient'"));
}

static bool open_png(struct wf_raster *r, struct wf_err *err)
{
    struct png *p = calloc(1, sizeof *p);
    if (!p)
        return wf_raster_no_memory(r, err);
    r->state = p;
    p->raster = r;
    if (!restart(p, err))
        return false;
    r->info.depth = 1;
    r->info.height = png_get_image_height(p->png, p->info);
    r->info.width = png_get_image_width(p->png, p->info);
    r->info.channels = png_get_channels(p->png, p->info);
    r->stored = png_get_bit_depth(p->png, p->info) == 16 ? WF_SAMPLE_U16 : WF_SAMPLE_U8;
    r->info.sample = r->stored;
    r->info.tile = WF_SHAPE(1, 1, 1, r->info.width, r->info.channels);
    r->info.in_order = true;
    p->rows = (struct wf_raster_rows){ .count = r->info.height, .next = next_row, .source = p };
    p->rows.bytes = (size_t)r->info.width * (size_t)r->info.channels * wf_sample_size(r->stored);
    r->info.alpha = png_get_color_type(p->png, p->info) & PNG_COLOR_MASK_ALPHA;
    if (!check_size(p, err))
        return false;
    read_palette(p);
    return walk(r, false, &r->orientation, err);
}

/* Before the first row. */
static bool inflate(struct png *p, struct wf_err *err)
{
#ifdef WF_HAVE_DEFLATE
    const uint64_t raw = row_bytes(p) * (uint64_t)p->rows.count;
    if (p->row == 0 && !p->inflated.data && !p->interlaced && raw <= WF_PNG_INFLATED_MAX &&
        p->raster->file.size <= 2 * (uint64_t)WF_PNG_INFLATED_MAX &&
        wf_png_inflate(&p->inflated, &p->raster->file, raw))
        return restart(p, err);
#else
    (void)p;
    (void)err;
#endif
    return true;
}

static bool read_png(const struct wf_raster_job *job, struct wf_err *err)
{
    struct png *p = job->raster->state;
    if (!inflate(p, err))
        return false;
    if (p->interlaced && !p->whole && !decode_whole(p, err))
        return false;
    return wf_raster_rows_put(&p->rows, p->whole, job, err);
}

static void close_png(struct wf_raster *r)
{
    struct png *p = r->state;
    if (!p)
        return;
    if (p->png)
        png_destroy_read_struct(&p->png, &p->info, NULL);
    wf_raster_rows_release(&p->rows);
    free(p->whole);
    free(p->inflated.data);
    free(p);
}

#endif

const struct wf_raster_format wf_raster_png = {
    .name = "PNG",
    .probe = probe,
#ifdef WF_HAVE_PNG
    .open = open_png,
    .read = read_png,
    .close = close_png,
    .check = check_png,
#else
    .lacks = "libpng-dev",
#endif
};
