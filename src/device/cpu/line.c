#include "device/cpu/cpu.h"

struct wf_cpu_lines wf_cpu_lines(struct wf_region work, int64_t block)
{
    struct wf_cpu_lines lines = { .work = work };
    if (wf_region_is_empty(work))
        return lines;
    lines.block = wf_max(1, block);
    lines.blocks = wf_ceil_div(wf_region_extent(work, WF_W), lines.block);
    lines.count = wf_region_extent(work, WF_N) * wf_region_extent(work, WF_D) *
                  wf_region_extent(work, WF_H) * lines.blocks;
    return lines;
}

struct wf_cpu_line wf_cpu_line_at(const struct wf_cpu_lines *lines, int64_t index)
{
    const struct wf_region *r = &lines->work;
    const int64_t rows = r->hi[WF_H] - r->lo[WF_H], slices = r->hi[WF_D] - r->lo[WF_D];
    struct wf_cpu_line line;
    line.w0 = r->lo[WF_W] + index % lines->blocks * lines->block;
    line.w1 = wf_min(line.w0 + lines->block, r->hi[WF_W]);
    index /= lines->blocks;
    line.h = r->lo[WF_H] + index % rows;
    index /= rows;
    line.d = r->lo[WF_D] + index % slices;
    line.n = r->lo[WF_N] + index / slices;
    return line;
}

struct wf_cpu_place wf_cpu_line_place(const struct wf_view *v, struct wf_cpu_line line)
{
    const int64_t size = (int64_t)wf_dtype_size(v->dtype);
    struct wf_cpu_place p = { .dtype = v->dtype,
                              .channels = wf_region_extent(v->box, WF_C),
                              .units = line.w1 - line.w0,
                              .step = v->stride[WF_W] * size,
                              .inner = v->stride[WF_C] * size,
                              .size = size };
    p.packed =
        (p.inner == size || p.channels == 1) && (p.step == p.channels * size || p.units == 1);
    p.start = (char *)v->data +
              wf_view_offset(v, line.n, line.d, line.h, line.w0, v->box.lo[WF_C]) * size;
    return p;
}

struct wf_view wf_cpu_channels(const struct wf_view *view, int64_t lo, int64_t hi)
{
    struct wf_region box = view->box;
    box.lo[WF_C] = lo;
    box.hi[WF_C] = hi;
    return wf_view_part(*view, box);
}

const float *wf_cpu_place_load(struct wf_cpu_place p, float *buffer)
{
    if (p.packed && p.dtype == WF_F32)
        return (const float *)(const void *)p.start;
    if (p.packed) {
        wf_cpu_to_f32(p.dtype, p.start, buffer, p.units * p.channels);
        return buffer;
    }
    const bool rows = p.inner == p.size;
    for (int64_t u = 0; u < p.units; u++)
        for (int64_t c = 0; c < (rows ? 1 : p.channels); c++)
            wf_cpu_to_f32(p.dtype, p.start + u * p.step + c * p.inner, buffer + u * p.channels + c,
                          rows ? p.channels : 1);
    return buffer;
}

float *wf_cpu_place_dest(struct wf_cpu_place p, float *buffer)
{
    return p.packed && p.dtype == WF_F32 ? (float *)(void *)p.start : buffer;
}

void wf_cpu_place_store(struct wf_cpu_place p, const float *values)
{
    if ((const void *)p.start == (const void *)values)
        return;
    if (p.packed) {
        wf_cpu_from_f32(p.dtype, values, p.start, p.units * p.channels);
        return;
    }
    const bool rows = p.inner == p.size;
    for (int64_t u = 0; u < p.units; u++)
        for (int64_t c = 0; c < (rows ? 1 : p.channels); c++)
            wf_cpu_from_f32(p.dtype, values + u * p.channels + c,
                            p.start + u * p.step + c * p.inner, rows ? p.channels : 1);
}

void wf_cpu_place_load_int(struct wf_cpu_place p, int32_t *buffer)
{
    if (p.packed && p.dtype == WF_U8) {
        const uint8_t *from = (const uint8_t *)p.start;
        WF_SIMD
        for (int64_t i = 0; i < p.units * p.channels; i++)
            buffer[i] = from[i];
        return;
    }
    for (int64_t u = 0; u < p.units; u++)
        for (int64_t c = 0; c < p.channels; c++) {
            const char *const from = p.start + u * p.step + c * p.inner;
            buffer[u * p.channels + c] =
                p.dtype == WF_I32 ? *(const int32_t *)(const void *)from : *(const uint8_t *)from;
        }
}

void wf_cpu_line_store_int(const struct wf_view *view, struct wf_cpu_line line,
                           const int32_t *values)
{
    const struct wf_cpu_place p = wf_cpu_line_place(view, line);
    if (p.packed && view->dtype == WF_U8) {
        uint8_t *to = (uint8_t *)p.start;
        WF_SIMD
        for (int64_t i = 0; i < p.units * p.channels; i++)
            to[i] = (uint8_t)values[i];
        return;
    }
    for (int64_t u = 0; u < p.units; u++)
        for (int64_t c = 0; c < p.channels; c++)
            wf_dtype_put(view->dtype, p.start + u * p.step + c * p.inner, 0,
                         values[u * p.channels + c]);
}
