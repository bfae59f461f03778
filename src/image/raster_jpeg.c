/*
 * JPEG, row by row through libjpeg(-turbo). Its plain interface, not turbojpeg's: that one decodes
 * whole images, and windows must not need one.
 *
 * libjpeg goes on after damage with a warning and grey pixels; here such a warning is the end.
 *
 * Ink (CMYK, YCCK) becomes RGB without regard to colour profiles, in the arithmetic of Pillow. Adobe's
 * programs store ink the other way round, and say that they made the file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/raster_exif.h"
#include "image/raster_format.h"

static bool probe(const unsigned char *head, size_t bytes)
{
    return bytes >= 3 && head[0] == 0xff && head[1] == 0xd8 && head[2] == 0xff;
}

#ifdef WF_HAVE_JPEG
#include <jerror.h>
#include <jpeglib.h>

enum { INPUT = 1 << 16, SCANS_MAX = 64 };

struct jpeg {
    struct wf_guard guard;
    struct jpeg_decompress_struct lib;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    struct wf_raster *raster;
    uint64_t at;   /* in the file */
    uint64_t scan; /* where its pixels begin */
    int64_t row;   /* that libjpeg gives next; -1: it has to start again */
    void *dst;
    bool is_ink;
    unsigned char *ink; /* a row of CMYK */
    struct wf_raster_rows rows;
    unsigned char input[INPUT];
};

static struct jpeg *of(j_common_ptr lib)
{
    return lib->client_data;
}

static void on_error(j_common_ptr lib)
{
    char text[JMSG_LENGTH_MAX];
    lib->err->format_message(lib, text);
    wf_guard_leave(&of(lib)->guard, text);
}

static void on_message(j_common_ptr lib, int level)
{
    /* Bytes between markers that nobody needs are no damage. */
    const int code = lib->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM)
        on_error(lib);
}

static void no_output(j_common_ptr)
{
}

static void source_nothing(j_decompress_ptr)
{
}

static boolean source_fill(j_decompress_ptr lib)
{
    struct jpeg *j = lib->client_data;
    const uint64_t left = j->raster->file.size - j->at;
    const size_t now = left < INPUT ? (size_t)left : INPUT;
    struct wf_err err = { 0 };
    if (!now || !wf_infile_read(&j->raster->file, j->at, j->input, now, &err))
        wf_guard_leave(&j->guard, "it ends too early");
    j->at += now;
    j->source.next_input_byte = j->input;
    j->source.bytes_in_buffer = now;
    return TRUE;
}

static void source_skip(j_decompress_ptr lib, long bytes)
{
    struct jpeg *j = lib->client_data;
    if (bytes <= 0)
        return;
    const size_t here = j->source.bytes_in_buffer;
    if ((unsigned long)bytes <= here) {
        j->source.next_input_byte += bytes;
        j->source.bytes_in_buffer -= (size_t)bytes;
        return;
    }
    const uint64_t beyond = (uint64_t)bytes - here, left = j->raster->file.size - j->at;
    j->at += beyond < left ? beyond : left;
    j->source.bytes_in_buffer = 0;
}

/* A progressive file may ask for any number of passes over all of its blocks. */
static void on_progress(j_common_ptr lib)
{
    if (lib->is_decompressor && ((j_decompress_ptr)lib)->input_scan_number > SCANS_MAX)
        wf_guard_leave(&of(lib)->guard, "too many scans");
}

static void start(void *arg)
{
    struct jpeg *j = arg;
    jpeg_create_decompress(&j->lib);
    j->lib.client_data = j;
    j->lib.src = &j->source;
    j->lib.progress = &j->progress;
    jpeg_save_markers(&j->lib, JPEG_APP0 + 1, 0xffff); /* EXIF */
    (void)jpeg_read_header(&j->lib, TRUE);
    if (j->lib.jpeg_color_space == JCS_YCCK)
        j->lib.out_color_space = JCS_CMYK;
}

static bool restart(struct jpeg *j, struct wf_err *err)
{
    if (j->lib.mem)
        jpeg_destroy_decompress(&j->lib);
    memset(&j->lib, 0, sizeof j->lib);
    j->lib.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = on_error;
    j->errors.emit_message = on_message;
    j->errors.output_message = no_output;
    j->source = (struct jpeg_source_mgr){ .init_source = source_nothing,
                                          .fill_input_buffer = source_fill,
                                          .skip_input_data = source_skip,
                                          .resync_to_restart = jpeg_resync_to_restart,
                                          .term_source = source_nothing };
    j->progress = (struct jpeg_progress_mgr){ .progress_monitor = on_progress };
    j->lib.client_data = j;
    j->at = 0;
    j->row = 0;
    if (!wf_guarded(&j->guard, start, j))
        return wf_raster_refuse(j->raster, err, "a damaged JPEG header (%s): copy the file again",
                                j->guard.message);
    return true;
}

/* a * b / 255, rounded. */
static int part_of(int a, int b)
{
    const int product = a * b + 128;
    return ((product >> 8) + product) >> 8;
}

static void to_rgb(const unsigned char *ink, size_t pixels, bool turned, unsigned char *rgb)
{
    for (size_t i = 0; i < pixels; i++) {
        const int light = turned ? ink[4 * i + 3] : 255 - ink[4 * i + 3];
        for (size_t c = 0; c < 3; c++) {
            const int color = turned ? 255 - ink[4 * i + c] : ink[4 * i + c];
            rgb[3 * i + c] = (unsigned char)(light - part_of(color, light));
        }
    }
}

static void read_row(void *arg)
{
    struct jpeg *j = arg;
    if (j->row == 0)
        (void)jpeg_start_decompress(&j->lib);
    const size_t width = j->lib.output_width, each = (size_t)j->lib.output_components;
    if (width * (j->is_ink ? each - 1 : each) != j->rows.bytes)
        wf_guard_leave(&j->guard, "its rows changed their size");
    JSAMPROW row = j->is_ink ? j->ink : j->dst;
    if (jpeg_read_scanlines(&j->lib, &row, 1) != 1)
        wf_guard_leave(&j->guard, "it ends too early");
    if (j->is_ink)
        to_rgb(j->ink, width, j->lib.saw_Adobe_marker, j->dst);
}

static bool next_row(void *source, int64_t row, void *dst, struct wf_err *err)
{
    struct jpeg *j = source;
    if (j->row != row && !restart(j, err))
        return false;
    j->dst = dst;
    if (!wf_guarded(&j->guard, read_row, j)) {
        j->row = -1;
        return wf_raster_refuse(j->raster, err,
                                "damaged at row %" PRId64 " (%s): copy the file again", row,
                                j->guard.message);
    }
    j->row = row + 1;
    return true;
}

/* Several scans mean that all coefficients are kept, two bytes each. */
static bool check_scans(struct jpeg *j, struct wf_err *err)
{
    if (!jpeg_has_multiple_scans(&j->lib))
        return true;
    uint64_t bytes = 0;
    for (int i = 0; i < j->lib.num_components; i++)
        bytes += (uint64_t)j->lib.comp_info[i].width_in_blocks *
                 j->lib.comp_info[i].height_in_blocks * DCTSIZE2 * sizeof(JCOEF);
    if (bytes > (uint64_t)4 * WF_RASTER_BLOCK_MAX ||
        (bytes > WF_RASTER_WHOLE && bytes / WF_RASTER_RATIO > j->raster->file.size))
        return wf_raster_refuse(j->raster, err,
                                "a progressive JPEG that needs %" PRIu64
                                " bytes at once is too large: "
                                "write it as a baseline JPEG or a tiled TIFF",
                                bytes);
    return true;
}

static void read_density(struct jpeg *j)
{
    if (j->lib.saw_JFIF_marker)
        j->raster->place = (struct wf_raster_place){
            .x = j->lib.X_density,
            .y = j->lib.Y_density,
            .unit = j->lib.density_unit == 1   ? WF_UNIT_INCH
                    : j->lib.density_unit == 2 ? WF_UNIT_CM
                                               : WF_UNIT_NONE,
        };
}

static void read_orientation(struct jpeg *j)
{
    enum { NAME = 6 };
    for (jpeg_saved_marker_ptr m = j->lib.marker_list; m; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && m->data_length > NAME &&
            memcmp(m->data, "Exif\0", NAME) == 0) {
            j->raster->orientation = wf_exif_orientation(m->data + NAME, m->data_length - NAME);
            return;
        }
}

/* The end of the image stands near the end of the file, where there is nothing behind it; what stands
 * before the pixels is that of a thumbnail. */
static bool check_jpeg(struct wf_raster *r, struct wf_err *err)
{
    struct jpeg *const j = r->state;
    const uint64_t left = r->file.size - j->scan;
    const size_t tail = left < INPUT ? (size_t)left : INPUT;
    unsigned char *const bytes = malloc(tail + 1);
    if (!bytes)
        return wf_raster_no_memory(r, err);
    bool ends = false;
    const bool ok = wf_infile_read(&r->file, r->file.size - tail, bytes, tail, err);
    for (size_t i = 1; ok && !ends && i < tail; i++)
        ends = bytes[tail - i - 1] == 0xff && bytes[tail - i] == 0xd9;
    free(bytes);
    return ok && (ends || wf_raster_rows_get(&j->rows, j->rows.count - 1, err));
}

static bool open_jpeg(struct wf_raster *r, struct wf_err *err)
{
    struct jpeg *j = calloc(1, sizeof *j);
    if (!j)
        return wf_raster_no_memory(r, err);
    r->state = j;
    j->raster = r;
    if (!restart(j, err))
        return false;
    j->scan = j->at - j->source.bytes_in_buffer;
    const J_COLOR_SPACE space = j->lib.out_color_space;
    r->info.depth = 1;
    r->info.height = j->lib.image_height;
    r->info.width = j->lib.image_width;
    r->info.channels = space == JCS_GRAYSCALE ? 1
                       : space == JCS_RGB     ? 3
                       : space == JCS_CMYK    ? 3
                                              : j->lib.num_components;
    r->stored = r->info.sample = WF_SAMPLE_U8;
    r->info.tile = WF_SHAPE(1, 1, 1, r->info.width, r->info.channels);
    r->info.in_order = true;
    j->rows = (struct wf_raster_rows){ .count = r->info.height,
                                       .bytes = (size_t)r->info.width * (size_t)r->info.channels,
                                       .next = next_row,
                                       .source = j };
    read_density(j);
    read_orientation(j);
    j->is_ink = space == JCS_CMYK;
    if (j->is_ink)
        j->ink = malloc((size_t)r->info.width * 4);
    if (j->is_ink && !j->ink)
        return wf_raster_no_memory(r, err);
    return check_scans(j, err);
}

static bool read_jpeg(const struct wf_raster_job *job, struct wf_err *err)
{
    struct jpeg *j = job->raster->state;
    return wf_raster_rows_put(&j->rows, NULL, job, err);
}

static void close_jpeg(struct wf_raster *r)
{
    struct jpeg *j = r->state;
    if (!j)
        return;
    if (j->lib.mem)
        jpeg_destroy_decompress(&j->lib);
    wf_raster_rows_release(&j->rows);
    free(j->ink);
    free(j);
}

#endif

const struct wf_raster_format wf_raster_jpeg = {
    .name = "JPEG",
    .probe = probe,
#ifdef WF_HAVE_JPEG
    .open = open_jpeg,
    .read = read_jpeg,
    .close = close_jpeg,
    .check = check_jpeg,
#else
    .lacks = "libjpeg62-turbo-dev",
#endif
};
