/* Samples: their types, and the one place where they become f32, f64 or i32. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "image/raster_format.h"

static const struct {
    const char *name;
    size_t size;
    bool whole;
} samples[WF_SAMPLES] = {
    [WF_SAMPLE_U8] = { "u8", 1, true },    [WF_SAMPLE_I8] = { "i8", 1, true },
    [WF_SAMPLE_U16] = { "u16", 2, true },  [WF_SAMPLE_I16] = { "i16", 2, true },
    [WF_SAMPLE_U32] = { "u32", 4, true },  [WF_SAMPLE_I32] = { "i32", 4, true },
    [WF_SAMPLE_U64] = { "u64", 8, true },  [WF_SAMPLE_I64] = { "i64", 8, true },
    [WF_SAMPLE_F16] = { "f16", 2, false }, [WF_SAMPLE_F32] = { "f32", 4, false },
    [WF_SAMPLE_F64] = { "f64", 8, false },
};

size_t wf_sample_size(enum wf_sample sample)
{
    WF_BUG_ON(sample < 0 || sample >= WF_SAMPLES, "sample %d", (int)sample);
    return samples[sample].size;
}

const char *wf_sample_name(enum wf_sample sample)
{
    WF_BUG_ON(sample < 0 || sample >= WF_SAMPLES, "sample %d", (int)sample);
    return samples[sample].name;
}

bool wf_sample_is_whole(enum wf_sample sample)
{
    WF_BUG_ON(sample < 0 || sample >= WF_SAMPLES, "sample %d", (int)sample);
    return samples[sample].whole;
}

void wf_sample_swap(void *data, size_t count, size_t size)
{
    unsigned char *at = data;
    for (; count; count--, at += size)
        for (size_t i = 0; i < size / 2; i++) {
            const unsigned char byte = at[i];
            at[i] = at[size - 1 - i];
            at[size - 1 - i] = byte;
        }
}

/* A number as it stands in the file: `whole` where it is one and fits, otherwise `real`. */
struct number {
    bool is_whole;
    int64_t whole;
    double real;
};

static struct number whole_number(int64_t value)
{
    return (struct number){ .is_whole = true, .whole = value, .real = (double)value };
}

static struct number number_at(enum wf_sample sample, const void *data, int64_t i)
{
    switch (sample) {
    case WF_SAMPLE_U8:
        return whole_number(((const uint8_t *)data)[i]);
    case WF_SAMPLE_I8:
        return whole_number(((const int8_t *)data)[i]);
    case WF_SAMPLE_U16:
        return whole_number(((const uint16_t *)data)[i]);
    case WF_SAMPLE_I16:
        return whole_number(((const int16_t *)data)[i]);
    case WF_SAMPLE_U32:
        return whole_number(((const uint32_t *)data)[i]);
    case WF_SAMPLE_I32:
        return whole_number(((const int32_t *)data)[i]);
    case WF_SAMPLE_I64:
        return whole_number(((const int64_t *)data)[i]);
    case WF_SAMPLE_U64: {
        /* Past int64 nothing is a pixel: the largest one is refused by either type. */
        const uint64_t value = ((const uint64_t *)data)[i];
        return whole_number(value > INT64_MAX ? INT64_MAX : (int64_t)value);
    }
    case WF_SAMPLE_F16:
        return (struct number){ .real = (double)wf_f16_to_f32(((const uint16_t *)data)[i]) };
    case WF_SAMPLE_F32:
        return (struct number){ .real = (double)((const float *)data)[i] };
    default:
        return (struct number){ .real = ((const double *)data)[i] };
    }
}

static bool store(struct number n, enum wf_dtype as, void *dst, int64_t i)
{
    if (as == WF_I64) {
        ((int64_t *)dst)[i] = n.whole;
        return n.is_whole;
    }
    if (as == WF_I32) {
        const double value = n.real;
        if (n.is_whole ? n.whole < INT32_MIN || n.whole > INT32_MAX
                       : !(value >= (double)INT32_MIN && value <= (double)INT32_MAX &&
                           value == nearbyint(value)))
            return false;
        ((int32_t *)dst)[i] = n.is_whole ? (int32_t)n.whole : (int32_t)value;
        return true;
    }
    if (as == WF_F64) {
        ((double *)dst)[i] = n.real;
        const int64_t exact = (int64_t)1 << 53;
        return !n.is_whole || (n.whole >= -exact && n.whole <= exact);
    }
    float *out = (float *)dst + i;
    if (n.is_whole) {
        /* Past 2^62 the way back to int64 might overflow; nothing there is a pixel. */
        *out = (float)n.whole;
        return n.whole <= (int64_t)1 << 62 && n.whole >= -((int64_t)1 << 62) &&
               (int64_t)*out == n.whole;
    }
    *out = (float)n.real;
    return !isinf(*out) || isinf(n.real);
}

/* `count` samples, `from` apart, to places `to` apart; returns how many went well. */
struct run {
    const void *src;
    void *dst;
    int64_t count, from, to;
};

/* The common ones, without a question per sample; false: not one of them. */
static bool convert_common(enum wf_sample stored, const struct run *run, enum wf_dtype as)
{
    float *f = run->dst;
    int32_t *whole = run->dst;
    const int64_t n = run->count, a = run->to, b = run->from;
    if (stored == WF_SAMPLE_U8 && as == WF_F32) {
        for (int64_t i = 0; i < n; i++)
            f[i * a] = ((const uint8_t *)run->src)[i * b];
    } else if (stored == WF_SAMPLE_U16 && as == WF_F32) {
        for (int64_t i = 0; i < n; i++)
            f[i * a] = ((const uint16_t *)run->src)[i * b];
    } else if (stored == WF_SAMPLE_F32 && as == WF_F32) {
        for (int64_t i = 0; i < n; i++)
            f[i * a] = ((const float *)run->src)[i * b];
    } else if (stored == WF_SAMPLE_I16 && as == WF_F32) {
        for (int64_t i = 0; i < n; i++)
            f[i * a] = ((const int16_t *)run->src)[i * b];
    } else if (stored == WF_SAMPLE_U8 && as == WF_U8) {
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)run->dst)[i * a] = ((const uint8_t *)run->src)[i * b];
    } else if (stored == WF_SAMPLE_U8 && as == WF_I32) {
        for (int64_t i = 0; i < n; i++)
            whole[i * a] = ((const uint8_t *)run->src)[i * b];
    } else {
        return false;
    }
    return true;
}

size_t wf_sample_convert(enum wf_sample sample, const void *src, size_t count, enum wf_dtype as,
                         void *dst)
{
    const struct run run = { .src = src, .dst = dst, .count = (int64_t)count, .from = 1, .to = 1 };
    if (convert_common(sample, &run, as))
        return count;
    for (size_t i = 0; i < count; i++)
        if (!store(number_at(sample, src, (int64_t)i), as, dst, (int64_t)i))
            return i;
    return count;
}

static const uint32_t hole_bits = 0x7fc57f57; /* quiet: copies and conversions keep it */

float wf_raster_hole(void)
{
    float value;
    memcpy(&value, &hole_bits, sizeof value);
    return value;
}

bool wf_raster_is_hole(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits == hole_bits;
}

/* Values that mean that nothing was measured become a NaN that no file has. */
static void hide_nodata(const struct wf_raster *r, const struct run *run)
{
    const float nodata = (float)r->info.nodata, hole = wf_raster_hole();
    const bool any = isnan(nodata);
    float *const f = run->dst;
    for (int64_t i = 0; i < run->count; i++)
        if (f[i * run->to] == nodata || (any && isnan(f[i * run->to])))
            f[i * run->to] = hole;
}

static bool is_nodata(const struct wf_raster *r, double value)
{
    return value == r->info.nodata || (isnan(value) && isnan(r->info.nodata));
}

static int64_t convert(const struct wf_raster *r, const struct run *run, enum wf_dtype as)
{
    const bool hides = as == WF_F32 && r->info.has_nodata;
    if (!r->scaled && convert_common(r->stored, run, as)) {
        if (hides)
            hide_nodata(r, run);
        return run->count;
    }
    for (int64_t i = 0; i < run->count; i++) {
        struct number n = number_at(r->stored, run->src, i * run->from);
        if (hides && is_nodata(r, n.real))
            n = (struct number){ .real = (double)wf_raster_hole() };
        else if (r->scaled && n.is_whole && wf_sample_is_whole(r->info.sample))
            n = whole_number((int64_t)r->inter - n.whole); /* white is zero */
        else if (r->scaled)
            n = (struct number){ .real = r->slope * n.real + r->inter };
        if (!store(n, as, run->dst, i * run->to))
            return i;
    }
    return run->count;
}

static bool refuse_value(const struct wf_raster_job *job, const struct wf_raster_block *b,
                         const int64_t at[WF_RASTER_AXES], struct wf_err *err)
{
    const struct wf_raster *r = job->raster;
    int64_t offset = 0;
    for (int i = 0; i < WF_RASTER_AXES; i++)
        offset += (at[i] - b->lo[i]) * b->stride[i];
    const struct number n = number_at(r->stored, b->data, offset);
    const double value = r->scaled ? r->slope * n.real + r->inter : n.real;
    return wf_raster_refuse(
        r, err,
        "the value %.17g at plane %" PRId64 ", row %" PRId64 ", column %" PRId64
        ", channel %" PRId64 " %s",
        value, at[WF_RASTER_D], at[WF_RASTER_H], at[WF_RASTER_W], at[WF_RASTER_C],
        job->as == WF_I32 ? "is not a whole number of 32 bits: labels must be, convert the file"
                          : "has no exact value in f32: scale the image or save it as float32");
}

/* One row of the part: all channels at once where they lie together on both sides. */
static bool put_row(const struct wf_raster_job *job, const struct wf_raster_block *b,
                    const int64_t lo[], const int64_t hi[], int64_t d, int64_t h,
                    struct wf_err *err)
{
    const struct wf_raster *r = job->raster;
    const size_t size = wf_sample_size(r->stored), wide = wf_dtype_size(job->as);
    const int64_t channels = job->hi[WF_RASTER_C] - job->lo[WF_RASTER_C];
    const int64_t height = job->hi[WF_RASTER_H] - job->lo[WF_RASTER_H];
    const int64_t width = job->hi[WF_RASTER_W] - job->lo[WF_RASTER_W];
    const int64_t mine = hi[WF_RASTER_C] - lo[WF_RASTER_C],
                  pixels = hi[WF_RASTER_W] - lo[WF_RASTER_W];
    const bool together = mine == channels && (mine == 1 || b->stride[WF_RASTER_C] == 1) &&
                          b->stride[WF_RASTER_W] == mine;
    for (int64_t c = lo[WF_RASTER_C]; c < hi[WF_RASTER_C]; c += together ? mine : 1) {
        const int64_t from = (d - b->lo[WF_RASTER_D]) * b->stride[WF_RASTER_D] +
                             (h - b->lo[WF_RASTER_H]) * b->stride[WF_RASTER_H] +
                             (lo[WF_RASTER_W] - b->lo[WF_RASTER_W]) * b->stride[WF_RASTER_W] +
                             (c - b->lo[WF_RASTER_C]) * b->stride[WF_RASTER_C];
        const int64_t to =
            (((d - job->lo[WF_RASTER_D]) * height + h - job->lo[WF_RASTER_H]) * width +
             lo[WF_RASTER_W] - job->lo[WF_RASTER_W]) *
                channels +
            c - job->lo[WF_RASTER_C];
        const struct run run = {
            .src = (const char *)b->data + (size_t)from * size,
            .dst = (char *)job->dst + (size_t)to * wide,
            .count = together ? pixels * mine : pixels,
            .from = together ? 1 : b->stride[WF_RASTER_W],
            .to = together ? 1 : channels,
        };
        const int64_t well = convert(r, &run, job->as);
        if (well < run.count)
            return refuse_value(
                job, b,
                (const int64_t[]){ d, h, lo[WF_RASTER_W] + (together ? well / mine : well),
                                   together ? c + well % mine : c },
                err);
    }
    return true;
}

bool wf_raster_put(const struct wf_raster_job *job, const struct wf_raster_block *b,
                   struct wf_err *err)
{
    int64_t lo[WF_RASTER_AXES], hi[WF_RASTER_AXES];
    for (int i = 0; i < WF_RASTER_AXES; i++) {
        lo[i] = wf_max(job->lo[i], b->lo[i]);
        hi[i] = wf_min(job->hi[i], b->hi[i]);
        if (lo[i] >= hi[i])
            return true;
    }
    for (int64_t d = lo[WF_RASTER_D]; d < hi[WF_RASTER_D]; d++)
        for (int64_t h = lo[WF_RASTER_H]; h < hi[WF_RASTER_H]; h++)
            if (!put_row(job, b, lo, hi, d, h, err))
                return false;
    return true;
}
