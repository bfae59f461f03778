/*
 * Copies for the forms that oneDNN cannot take in place: padding written out, groups apart, channels
 * filled up, bf16 widened. In parallel over rows along W.
 */
#include "device/cpu/dnnl.h"

#include <string.h>

#include "device/cpu/cpu.h"

size_t wf_dnnl_pack_bytes(const struct wf_dnnl_pack *pack)
{
    int64_t count = pack->channels;
    for (int i = WF_N; i <= WF_W; i++)
        count *= wf_region_extent(pack->box, i);
    return (size_t)count * wf_dtype_size(pack->dtype);
}

/* One row of the pack and the stretch of it that the view has too. */
struct row {
    int64_t lo, hi; /* along W; empty where the view has nothing of the row */
    char *inner;    /* the view's element at lo, first common channel */
    char *packed;   /* the pack's first element of the row */
};

static struct row row_at(const struct wf_dnnl_pack *pack, char *packed, const struct wf_view *v,
                         int64_t index)
{
    const struct wf_region *box = &pack->box;
    const int64_t width = wf_region_extent(*box, WF_W);
    int64_t at[WF_AXES] = { 0 }, rest = index;
    bool there = true;
    for (int i = WF_H; i >= WF_N; i--) {
        at[i] = box->lo[i] + rest % wf_region_extent(*box, i);
        rest /= wf_region_extent(*box, i);
        there = there && at[i] >= v->box.lo[i] && at[i] < v->box.hi[i];
    }
    struct row r = { .packed = packed + (size_t)(index * width * pack->channels) *
                                            wf_dtype_size(pack->dtype) };
    if (!there)
        return r;
    r.lo = wf_max(box->lo[WF_W], v->box.lo[WF_W]);
    r.hi = wf_min(box->hi[WF_W], v->box.hi[WF_W]);
    if (r.hi > r.lo)
        r.inner = (char *)v->data +
                  (size_t)wf_view_offset(v, at[WF_N], at[WF_D], at[WF_H], r.lo, box->lo[WF_C]) *
                      wf_dtype_size(v->dtype);
    return r;
}

static int64_t count_rows(const struct wf_dnnl_pack *pack)
{
    return wf_region_extent(pack->box, WF_N) * wf_region_extent(pack->box, WF_D) *
           wf_region_extent(pack->box, WF_H);
}

/* Runs of `n` elements at given distances; one of the sides may be f32 where the other is bf16. */
struct runs {
    int64_t count, n, from_step, to_step;
};

static void copy_runs(struct runs r, void *to, enum wf_dtype to_type, const void *from,
                      enum wf_dtype from_type)
{
    const size_t to_size = wf_dtype_size(to_type), from_size = wf_dtype_size(from_type);
    if (r.from_step == r.n && r.to_step == r.n) {
        r.n *= r.count;
        r.count = 1;
    }
    for (int64_t i = 0; i < r.count; i++) {
        const char *p = (const char *)from + (size_t)(i * r.from_step) * from_size;
        char *q = (char *)to + (size_t)(i * r.to_step) * to_size;
        if (to_type == from_type)
            memcpy(q, p, (size_t)r.n * to_size);
        else if (to_type == WF_F32)
            wf_cpu_to_f32(from_type, p, (float *)(void *)q, r.n);
        else
            wf_cpu_from_f32(to_type, (const float *)(const void *)p, q, r.n);
    }
}

static void gather_row(const struct wf_dnnl_pack *pack, struct row r, const struct wf_view *v)
{
    const size_t size = wf_dtype_size(pack->dtype), pixel = (size_t)pack->channels * size;
    const int64_t width = wf_region_extent(pack->box, WF_W);
    const int64_t channels = wf_region_extent(pack->box, WF_C);
    if (r.hi <= r.lo) {
        memset(r.packed, 0, (size_t)width * pixel);
        return;
    }
    const int64_t before = r.lo - pack->box.lo[WF_W], n = r.hi - r.lo;
    char *first = r.packed + (size_t)before * pixel;
    memset(r.packed, 0, (size_t)before * pixel);
    memset(first + (size_t)n * pixel, 0, (size_t)(width - before - n) * pixel);
    for (int64_t i = 0; channels < pack->channels && i < n; i++)
        memset(first + (size_t)i * pixel + (size_t)channels * size, 0,
               (size_t)(pack->channels - channels) * size);
    copy_runs((struct runs){ n, channels, v->stride[WF_W], pack->channels }, first, pack->dtype,
              r.inner, v->dtype);
}

void wf_dnnl_gather(const struct wf_dnnl_pack *pack, void *to, const struct wf_view *from)
{
    const int64_t rows = count_rows(pack);
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < rows; i++)
        gather_row(pack, row_at(pack, to, from, i), from);
}

static void scatter_row(const struct wf_dnnl_pack *pack, struct row r, const struct wf_view *v)
{
    if (r.hi <= r.lo)
        return;
    const size_t pixel = (size_t)pack->channels * wf_dtype_size(pack->dtype);
    const char *first = r.packed + (size_t)(r.lo - pack->box.lo[WF_W]) * pixel;
    copy_runs((struct runs){ r.hi - r.lo, wf_region_extent(pack->box, WF_C), pack->channels,
                             v->stride[WF_W] },
              r.inner, v->dtype, first, pack->dtype);
}

void wf_dnnl_scatter(const struct wf_dnnl_pack *pack, void *from, const struct wf_view *to)
{
    const int64_t rows = count_rows(pack);
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < rows; i++)
        scatter_row(pack, row_at(pack, from, to, i), to);
}

static void add_bias_f32(float *y, const float *b, int64_t positions, int64_t channels)
{
    for (int64_t i = 0; i < positions; i++, y += channels) {
        WF_SIMD
        for (int64_t c = 0; c < channels; c++)
            y[c] += b[c];
    }
}

static void add_bias_bf16(uint16_t *y, const float *b, int64_t positions, int64_t channels)
{
    for (int64_t i = 0; i < positions; i++, y += channels) {
        WF_SIMD
        for (int64_t c = 0; c < channels; c++)
            y[c] = wf_f32_to_bf16(wf_bf16_to_f32(y[c]) + b[c]);
    }
}

void wf_dnnl_add_bias(const struct wf_view *y, const float *b)
{
    enum { PART = 512 }; /* positions */
    const int64_t channels = wf_region_extent(y->box, WF_C);
    const int64_t positions = wf_region_count(y->box) / channels;
    const int64_t parts = wf_ceil_div(positions, PART);
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < parts; i++) {
        const int64_t n = wf_min(PART, positions - i * PART), at = i * PART * channels;
        if (y->dtype == WF_F32)
            add_bias_f32((float *)y->data + at, b, n, channels);
        else
            add_bias_bf16((uint16_t *)y->data + at, b, n, channels);
    }
}

void wf_dnnl_add_rows(double *sum, const float *padded, const struct wf_dnnl_rows *r, bool add)
{
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < r->count; i++) {
        double *const to = sum + i * r->n;
        const float *const from = padded + i * r->padded_n;
        WF_SIMD
        for (int64_t k = 0; k < r->n; k++)
            to[k] = (add ? to[k] : 0.0) + (double)from[k];
    }
}

void wf_dnnl_round(float *dw, const double *sum, int64_t n)
{
#ifdef _OPENMP
#pragma omp parallel for simd schedule(static)
#endif
    for (int64_t i = 0; i < n; i++)
        dw[i] = (float)sum[i];
}
