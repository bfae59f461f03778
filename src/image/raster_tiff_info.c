/* What a TIFF directory says, and whether it can be read. */
#include "image/raster_tiff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_TIFF
static const uint32_t geo_tags[WF_RASTER_GEO_TAGS] = {
    33550, /* ModelPixelScale */
    33922, /* ModelTiepoint */
    34264, /* ModelTransformation */
    34735, /* GeoKeyDirectory */
    34736, /* GeoDoubleParams */
    34737, /* GeoAsciiParams */
};

bool wf_tiff_layout(const struct wf_tiff *t, struct wf_tiff_layout *l, struct wf_err *err)
{
    *l = (struct wf_tiff_layout){ 0 };
    if (!TIFFGetField(t->tif, TIFFTAG_IMAGEWIDTH, &l->width) ||
        !TIFFGetField(t->tif, TIFFTAG_IMAGELENGTH, &l->height) || !l->width || !l->height)
        return wf_raster_refuse(t->raster, err, "its header has no size: write the file again");
    (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_BITSPERSAMPLE, &l->bits);
    (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_SAMPLESPERPIXEL, &l->samples);
    (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_SAMPLEFORMAT, &l->format);
    (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_COMPRESSION, &l->compression);
    (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_PLANARCONFIG, &l->planar);
    (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_ORIENTATION, &l->orientation);
    if (!TIFFGetField(t->tif, TIFFTAG_PHOTOMETRIC, &l->photometric))
        l->photometric = PHOTOMETRIC_MINISBLACK;
    l->tiled = TIFFIsTiled(t->tif);
    if (l->tiled) {
        uint32_t depth = 1;
        (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_TILEDEPTH, &depth);
        if (!TIFFGetField(t->tif, TIFFTAG_TILEWIDTH, &l->tile_w) ||
            !TIFFGetField(t->tif, TIFFTAG_TILELENGTH, &l->tile_h) || !l->tile_w || !l->tile_h ||
            l->tile_w > INT32_MAX || l->tile_h > INT32_MAX || depth != 1)
            return wf_raster_refuse(t->raster, err, "its tiles have no size: write the file again");
    } else {
        l->tile_w = l->width;
        (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_ROWSPERSTRIP, &l->tile_h);
        if (l->tile_h == 0 || l->tile_h > l->height)
            l->tile_h = l->height;
    }
    if (l->planar != PLANARCONFIG_SEPARATE || l->samples == 1)
        l->planar = PLANARCONFIG_CONTIG;
    return true;
}

static bool check_compression(const struct wf_tiff *t, struct wf_err *err)
{
    const struct wf_tiff_layout *l = &t->layout;
    static const uint16_t known[] = { COMPRESSION_NONE,     COMPRESSION_LZW,
                                      COMPRESSION_DEFLATE,  COMPRESSION_ADOBE_DEFLATE,
                                      COMPRESSION_PACKBITS, COMPRESSION_JPEG,
                                      COMPRESSION_ZSTD };
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        found = found || known[i] == l->compression;
    if (!found || !TIFFIsCODECConfigured(l->compression))
        return wf_raster_refuse(t->raster, err,
                                "TIFF compression %d is not read here: write it with "
                                "deflate, for instance 'tiffcp -c zip'",
                                l->compression);
    return true;
}

static bool check_colours(const struct wf_tiff *t, struct wf_err *err)
{
    const struct wf_tiff_layout *l = &t->layout;
    const bool jpeg = l->compression == COMPRESSION_JPEG;
    if (jpeg && l->bits != 8)
        return wf_raster_refuse(t->raster, err, "JPEG of %d bits in TIFF: write it with deflate",
                                l->bits);
    if ((l->photometric == PHOTOMETRIC_YCBCR && (!jpeg || l->samples != 3)) ||
        l->photometric == PHOTOMETRIC_LOGL || l->photometric == PHOTOMETRIC_LOGLUV ||
        l->photometric == PHOTOMETRIC_CFA || l->photometric == PHOTOMETRIC_SEPARATED ||
        l->photometric == PHOTOMETRIC_CIELAB || l->photometric == PHOTOMETRIC_ICCLAB ||
        l->photometric == PHOTOMETRIC_ITULAB)
        return wf_raster_refuse(t->raster, err,
                                "colours of kind %d%s are not read here: write it as RGB "
                                "or grey, for instance 'convert IN -colorspace sRGB OUT'",
                                l->photometric,
                                l->photometric == PHOTOMETRIC_SEPARATED ? " (CMYK)" : "");
    return true;
}

static bool sample_of(const struct wf_tiff_layout *l, enum wf_sample *sample)
{
    static const struct {
        uint16_t bits, format;
        enum wf_sample sample;
    } known[] = {
        { 8, SAMPLEFORMAT_UINT, WF_SAMPLE_U8 },     { 8, SAMPLEFORMAT_INT, WF_SAMPLE_I8 },
        { 16, SAMPLEFORMAT_UINT, WF_SAMPLE_U16 },   { 16, SAMPLEFORMAT_INT, WF_SAMPLE_I16 },
        { 32, SAMPLEFORMAT_UINT, WF_SAMPLE_U32 },   { 32, SAMPLEFORMAT_INT, WF_SAMPLE_I32 },
        { 64, SAMPLEFORMAT_UINT, WF_SAMPLE_U64 },   { 64, SAMPLEFORMAT_INT, WF_SAMPLE_I64 },
        { 16, SAMPLEFORMAT_IEEEFP, WF_SAMPLE_F16 }, { 32, SAMPLEFORMAT_IEEEFP, WF_SAMPLE_F32 },
        { 64, SAMPLEFORMAT_IEEEFP, WF_SAMPLE_F64 }, { 1, SAMPLEFORMAT_UINT, WF_SAMPLE_U8 },
        { 2, SAMPLEFORMAT_UINT, WF_SAMPLE_U8 },     { 4, SAMPLEFORMAT_UINT, WF_SAMPLE_U8 },
    };
    const uint16_t format = l->format == SAMPLEFORMAT_VOID ? SAMPLEFORMAT_UINT : l->format;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].bits == l->bits && known[i].format == format) {
            *sample = known[i].sample;
            return true;
        }
    return false;
}

bool wf_tiff_check_coding(const struct wf_tiff *t, struct wf_err *err)
{
    const struct wf_tiff_layout *l = &t->layout;
    if (!check_compression(t, err) || !check_colours(t, err))
        return false;
    if (l->samples < 1 || l->samples > WF_RASTER_CHANNELS || !sample_of(l, &t->raster->stored))
        return wf_raster_refuse(
            t->raster, err,
            "%d samples of %d bits and kind %d: write it as 8 or 16 bit whole numbers "
            "or 32 bit floats",
            l->samples, l->bits, l->format);
    return true;
}

bool wf_tiff_check_sizes(const struct wf_tiff *t, struct wf_err *err)
{
    const struct wf_tiff_layout *l = &t->layout;
    const uint64_t row = wf_tiff_row_bytes(l);
    uint64_t packed, unpacked;
    if (__builtin_mul_overflow(row, l->tile_h, &packed) ||
        __builtin_mul_overflow(packed, (uint64_t)(l->bits < 8 ? 8 / l->bits : 1), &unpacked) ||
        (l->tiled && unpacked > WF_RASTER_BLOCK_MAX))
        return wf_raster_refuse(t->raster, err,
                                "tiles of %" PRIu32 " x %" PRIu32 " are too large: "
                                "write it with tiles of 256 x 256",
                                l->tile_h, l->tile_w);
    if (!l->tiled && unpacked / l->tile_h > WF_RASTER_ROW_MAX)
        return wf_raster_refuse(t->raster, err,
                                "rows of %" PRIu64 " bytes, at most %d are read: write "
                                "it with tiles",
                                unpacked / l->tile_h, (int)WF_RASTER_ROW_MAX);
    if (l->tiled ? TIFFTileSize64(t->tif) != packed : TIFFScanlineSize64(t->tif) != row)
        return wf_raster_refuse(t->raster, err,
                                "its tiles do not have the size that its samples need: "
                                "write the file again");
    return true;
}

bool wf_tiff_same_layout(const struct wf_tiff_layout *a, const struct wf_tiff_layout *b)
{
    return a->width == b->width && a->height == b->height && a->tile_w == b->tile_w &&
           a->tile_h == b->tile_h && a->bits == b->bits && a->samples == b->samples &&
           a->format == b->format && a->compression == b->compression &&
           a->photometric == b->photometric && a->planar == b->planar && a->tiled == b->tiled &&
           a->orientation == b->orientation;
}

/* --- what else the first page says --- */
void wf_tiff_palette(const struct wf_tiff *t)
{
    struct wf_raster_info *info = &t->raster->info;
    uint16_t *red, *green, *blue;
    if (t->layout.photometric != PHOTOMETRIC_PALETTE || t->layout.bits > 8 ||
        !TIFFGetField(t->tif, TIFFTAG_COLORMAP, &red, &green, &blue))
        return;
    info->colors = 1 << t->layout.bits;
    /* Some writers put 8 bits where 16 belong. */
    bool wide = false;
    for (int i = 0; i < info->colors; i++)
        wide = wide || red[i] > 255 || green[i] > 255 || blue[i] > 255;
    for (int i = 0; i < info->colors; i++) {
        info->palette[i][0] = (uint8_t)(wide ? red[i] >> 8 : red[i]);
        info->palette[i][1] = (uint8_t)(wide ? green[i] >> 8 : green[i]);
        info->palette[i][2] = (uint8_t)(wide ? blue[i] >> 8 : blue[i]);
    }
}

/* Tags that libtiff has no name for come as count and data, in the type of the file. */
static bool take_geo(const struct wf_tiff *t, struct wf_err *err)
{
    struct wf_raster_place *place = &t->raster->place;
    for (int i = 0; i < WF_RASTER_GEO_TAGS; i++) {
        const TIFFField *field = TIFFFindField(t->tif, geo_tags[i], TIFF_ANY);
        if (!field || !TIFFFieldPassCount(field) || TIFFFieldReadCount(field) != TIFF_VARIABLE2)
            continue;
        uint32_t count = 0;
        const void *data = NULL;
        const TIFFDataType type = TIFFFieldDataType(field);
        const size_t size = type == TIFF_DOUBLE  ? 8
                            : type == TIFF_SHORT ? 2
                            : type == TIFF_ASCII ? 1
                                                 : 0;
        if (!size || !TIFFGetField(t->tif, geo_tags[i], &count, &data) || !count || !data)
            continue;
        void *copy = malloc(count * size);
        if (!copy)
            return wf_raster_no_memory(t->raster, err);
        memcpy(copy, data, count * size);
        place->geo[place->geo_count++] = (struct wf_raster_geo){
            .tag = geo_tags[i],
            .type = type == TIFF_DOUBLE  ? WF_GEO_DOUBLE
                    : type == TIFF_SHORT ? WF_GEO_SHORT
                                         : WF_GEO_TEXT,
            .count = count,
            .data = copy,
        };
    }
    return true;
}

bool wf_tiff_place(const struct wf_tiff *t, struct wf_err *err)
{
    struct wf_raster_place *place = &t->raster->place;
    float x = 0, y = 0;
    uint16_t unit = RESUNIT_INCH;
    if (TIFFGetField(t->tif, TIFFTAG_XRESOLUTION, &x) &&
        TIFFGetField(t->tif, TIFFTAG_YRESOLUTION, &y)) {
        (void)TIFFGetFieldDefaulted(t->tif, TIFFTAG_RESOLUTIONUNIT, &unit);
        place->x = (double)x;
        place->y = (double)y;
        place->unit = unit == RESUNIT_INCH         ? WF_UNIT_INCH
                      : unit == RESUNIT_CENTIMETER ? WF_UNIT_CM
                                                   : WF_UNIT_NONE;
    }
    return take_geo(t, err);
}
#endif
