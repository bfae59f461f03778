/* What a TIFF's samples mean (alpha, white-is-zero, orientation, nodata), and whether all of it is
 * there. */
#include "image/raster_tiff.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_TIFF
/* --- T5 --- */

static uint64_t number(const unsigned char *at, int bytes, bool big)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[big ? i : bytes - 1 - i];
    return value;
}

/* The values that entry `tag` of a directory has: libtiff fills up what is missing and does not
 * tell. 0: there is no such entry. */
static bool count_of(const struct wf_tiff *t, uint32_t tag, uint64_t *count, struct wf_err *err)
{
    const bool wide = TIFFIsBigTIFF(t->tif), big = TIFFIsBigEndian(t->tif);
    const uint64_t at = TIFFCurrentDirOffset(t->tif);
    const size_t head = wide ? 8 : 2, entry = wide ? 20 : 12;
    unsigned char bytes[20];
    *count = 0;
    if (!wf_infile_read(&t->raster->file, at, bytes, head, err))
        return false;
    const uint64_t entries = number(bytes, (int)head, big);
    for (uint64_t i = 0; i < entries && i < UINT16_MAX; i++) {
        if (!wf_infile_read(&t->raster->file, at + head + i * entry, bytes, entry, err))
            return false;
        if (number(bytes, 2, big) == tag) {
            *count = number(bytes + 4, wide ? 8 : 4, big);
            return true;
        }
    }
    return true;
}

static uint32_t tiles_of(const struct wf_tiff *t)
{
    return TIFFIsTiled(t->tif) ? TIFFNumberOfTiles(t->tif) : TIFFNumberOfStrips(t->tif);
}

bool wf_tiff_check_table(const struct wf_tiff *t, struct wf_err *err)
{
    const bool tiled = t->layout.tiled;
    const uint64_t wanted = tiles_of(t);
    uint64_t places = 0, sizes = 0;
    if (!count_of(t, tiled ? TIFFTAG_TILEOFFSETS : TIFFTAG_STRIPOFFSETS, &places, err) ||
        !count_of(t, tiled ? TIFFTAG_TILEBYTECOUNTS : TIFFTAG_STRIPBYTECOUNTS, &sizes, err))
        return false;
    /* Some writers put the places of tiles where those of strips belong; libtiff reads them. */
    if (places == 0 &&
        !count_of(t, tiled ? TIFFTAG_STRIPOFFSETS : TIFFTAG_TILEOFFSETS, &places, err))
        return false;
    if (places >= wanted && (sizes == 0 || sizes >= wanted))
        return true;
    return wf_raster_refuse(t->raster, err,
                            "it has places for %" PRIu64 " of its %" PRIu64
                            " %s: it is damaged, write the file again",
                            places < wanted ? places : sizes, wanted, tiled ? "tiles" : "strips");
}

bool wf_tiff_check_places(const struct wf_tiff *t, struct wf_err *err)
{
    const uint64_t size = t->raster->file.size;
    const uint32_t tiles = tiles_of(t);
    for (uint32_t i = 0; i < tiles; i++) {
        int bad_offset = 0, bad_count = 0;
        const uint64_t offset = TIFFGetStrileOffsetWithErr(t->tif, i, &bad_offset);
        const uint64_t count = TIFFGetStrileByteCountWithErr(t->tif, i, &bad_count);
        if (bad_offset || bad_count || offset > size || count > size - offset)
            return wf_raster_refuse(
                t->raster, err,
                "%s %" PRIu32 " of page %" PRId64
                " lies past the end of the file: it is cut short, copy it again",
                t->layout.tiled ? "tile" : "strip", i, t->page);
    }
    return true;
}

/* --- meaning --- */

/* Alpha that is the last channel is marked as such; elsewhere nobody could tell the channels
 * apart. */
static bool find_alpha(const struct wf_tiff *t, struct wf_err *err)
{
    uint16_t count = 0;
    const uint16_t *kinds = NULL;
    if (!TIFFGetField(t->tif, TIFFTAG_EXTRASAMPLES, &count, &kinds) || !count || !kinds)
        return true;
    for (int i = 0; i < count; i++) {
        const bool alpha = kinds[i] == EXTRASAMPLE_ASSOCALPHA || kinds[i] == EXTRASAMPLE_UNASSALPHA;
        if (alpha && (i < count - 1 || t->planes.layers > 1))
            return wf_raster_refuse(t->raster, err,
                                    "its alpha channel is not the last: write it without, for "
                                    "instance 'gdal_translate -b 1 -b 2 -b 3 IN OUT'");
        t->raster->info.alpha = alpha;
    }
    return true;
}

static bool is_unsigned(enum wf_sample s)
{
    return s == WF_SAMPLE_U8 || s == WF_SAMPLE_U16 || s == WF_SAMPLE_U32;
}

static bool turn_white(const struct wf_tiff *t, struct wf_err *err)
{
    struct wf_raster *const r = t->raster;
    if (t->layout.photometric != PHOTOMETRIC_MINISWHITE)
        return true;
    if (!is_unsigned(r->stored))
        return wf_raster_refuse(r, err,
                                "white is zero, but its samples are %s, which have no brightest "
                                "value: write it with black as zero",
                                wf_sample_name(r->stored));
    r->scaled = true;
    r->slope = -1;
    r->inter = (double)(((uint64_t)1 << t->layout.bits) - 1);
    return true;
}

static bool turn_upright(const struct wf_tiff *t, struct wf_err *err)
{
    const int orientation = t->layout.orientation;
    if (orientation < 2 || orientation > 8)
        return true;
    if (t->raster->place.geo_count)
        return wf_raster_refuse(
            t->raster, err,
            "orientation %d beside a place on the earth, of which programs make "
            "different things: write it upright, for instance with gdalwarp",
            orientation);
    t->raster->orientation = orientation;
    return true;
}

/* The number of GDAL's text. Old ones of Windows write NaN so: -1.#IND, 1.#QNAN. */
static bool nodata_number(const char *text, double *value)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    /* The largest f64 is often written with too few digits, and rounded up. */
    if (errno == ERANGE && isinf(*value))
        *value = copysign(DBL_MAX, *value);
    if (strstr(text, "#IND") || strstr(text, "#QNAN")) {
        *value = NAN;
        return true;
    }
    while (isspace((unsigned char)*end))
        end++;
    return end != text && *end == '\0';
}

/* The nearest value that the samples can have; false if there is none. */
static bool nodata_as_sample(enum wf_sample s, double *v)
{
    static const struct {
        double low, high;
    } ranges[WF_SAMPLES] = {
        [WF_SAMPLE_U8] = { 0, UINT8_MAX },
        [WF_SAMPLE_I8] = { INT8_MIN, INT8_MAX },
        [WF_SAMPLE_U16] = { 0, UINT16_MAX },
        [WF_SAMPLE_I16] = { INT16_MIN, INT16_MAX },
        [WF_SAMPLE_U32] = { 0, UINT32_MAX },
        [WF_SAMPLE_I32] = { INT32_MIN, INT32_MAX },
        [WF_SAMPLE_U64] = { 0, 9007199254740992.0 }, /* past 2^53 a double is no sample */
        [WF_SAMPLE_I64] = { -9007199254740992.0, 9007199254740992.0 },
    };
    if (wf_sample_is_whole(s))
        return *v >= ranges[s].low && *v <= ranges[s].high && *v == nearbyint(*v);
    /* The largest f32 is often written with too few digits. */
    if (s == WF_SAMPLE_F32 && isfinite(*v))
        *v = fabs(*v) > 3.4028e38 ? copysign((double)FLT_MAX, *v) : (double)(float)*v;
    return true;
}

static void put_sample(enum wf_sample s, double v, unsigned char *at)
{
    const int64_t whole = wf_sample_is_whole(s) ? (int64_t)v : 0;
    const float f = (float)v;
    if (wf_sample_is_whole(s))
        memcpy(at, &whole, wf_sample_size(s)); /* little-endian, as all machines that we know */
    else if (s == WF_SAMPLE_F64)
        memcpy(at, &v, sizeof v);
    else if (s == WF_SAMPLE_F32)
        memcpy(at, &f, sizeof f);
}

static bool find_nodata(struct wf_tiff *t, struct wf_err *err)
{
    enum { GDAL_NODATA = 42113, LONGEST = 64 };
    struct wf_raster_info *const info = &t->raster->info;
    const TIFFField *const field = TIFFFindField(t->tif, GDAL_NODATA, TIFF_ANY);
    uint32_t count = 0;
    const char *data = NULL;
    if (!field || TIFFFieldDataType(field) != TIFF_ASCII || !TIFFFieldPassCount(field) ||
        TIFFFieldReadCount(field) != TIFF_VARIABLE2 ||
        !TIFFGetField(t->tif, GDAL_NODATA, &count, &data) || !count || !data)
        return true;
    char text[LONGEST] = "";
    memcpy(text, data, count < LONGEST ? count : LONGEST - 1);
    if (!nodata_number(text, &info->nodata)) {
        wf_raster_printable(text);
        return wf_raster_refuse(t->raster, err,
                                "its nodata value '%s' is no number: set one, for instance "
                                "'gdal_edit.py -a_nodata 0'",
                                text);
    }
    info->has_nodata = nodata_as_sample(t->raster->stored, &info->nodata);
    if (info->has_nodata)
        put_sample(t->raster->stored, info->nodata, t->empty);
    return true;
}

bool wf_tiff_meaning(struct wf_tiff *t, struct wf_err *err)
{
    return find_alpha(t, err) && turn_white(t, err) && turn_upright(t, err) && find_nodata(t, err);
}
#endif
