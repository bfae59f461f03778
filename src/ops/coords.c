/*
 * Coordinates of sparse tensors on the host: their order, and sets made of sets.
 *
 * Z order needs no key and no box: of two rows the axis decides whose lattice coordinates differ in the
 * highest bit. Adding 2^31 makes them unsigned, and commutes with halving.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/sparse.h"

static uint32_t lattice(int32_t at, int64_t stride)
{
    return (uint32_t)(at / (int32_t)stride) ^ 0x80000000u;
}

static bool has_lower_top_bit(uint32_t a, uint32_t b)
{
    return a < b && a < (a ^ b);
}

int wf_coords_compare(const int32_t *a, const int32_t *b, int dims, const int64_t stride[])
{
    uint32_t widest = 0, decides[2] = { 0 };
    if (a[0] != b[0])
        return a[0] < b[0] ? -1 : 1;
    for (int d = 0; d < dims; d++) {
        const uint32_t x = lattice(a[1 + d], stride[d]), y = lattice(b[1 + d], stride[d]);
        if (!has_lower_top_bit(widest, x ^ y))
            continue;
        widest = x ^ y;
        decides[0] = x;
        decides[1] = y;
    }
    return (decides[0] > decides[1]) - (decides[0] < decides[1]);
}

int64_t wf_coords_find(const int32_t *rows, int64_t n, const int32_t *at, int dims,
                       const int64_t stride[])
{
    int64_t low = 0, high = n;
    for (int d = 0; d < dims; d++)
        if (at[1 + d] % stride[d] != 0)
            return -1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const int order = wf_coords_compare(rows + middle * (1 + dims), at, dims, stride);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

bool wf_coords_keeps_order(const struct wf_coords_stride_attrs *a)
{
    const int64_t factor = a->stride[0] / a->from[0];
    for (int d = 0; d < a->dims; d++)
        if (a->stride[d] / a->from[d] != factor)
            return false;
    return (factor & (factor - 1)) == 0;
}

static int by_order(const void *a, const void *b, void *attrs)
{
    const struct wf_coords_stride_attrs *const s = attrs;
    return wf_coords_compare(a, b, (int)s->dims, s->stride);
}

int64_t wf_coords_coarsen(const struct wf_coords_stride_attrs *a, const int32_t *from, int64_t n,
                          int32_t *to)
{
    const int64_t width = 1 + a->dims;
    struct wf_coords_stride_attrs order = *a;
    int64_t made = 0;
    int32_t *const all = wf_take((size_t)(n * width + 1) * sizeof *all);
    for (int64_t i = 0; i < n; i++) {
        all[i * width] = from[i * width];
        for (int64_t d = 1; d < width; d++)
            all[i * width + d] =
                (int32_t)(wf_floor_div(from[i * width + d], a->stride[d - 1]) * a->stride[d - 1]);
    }
    if (!wf_coords_keeps_order(a))
        qsort_r(all, (size_t)n, (size_t)width * sizeof *all, by_order, &order);
    for (int64_t i = 0; i < n; i++) {
        const size_t bytes = (size_t)width * sizeof *all;
        if (made == 0 || memcmp(to + (made - 1) * width, all + i * width, bytes) != 0)
            memcpy(to + made++ * width, all + i * width, bytes);
    }
    free(all);
    return made;
}

/* --- kernels --- */

int64_t wf_kernel_map_count(const struct wf_kernel_map_attrs *a)
{
    int64_t count = 1;
    if (a->cross)
        return 1 + a->dims * (a->kernel[0] - 1);
    for (int d = 0; d < a->dims; d++)
        count *= a->kernel[d];
    return count;
}

/* Odd kernels are centred, even ones begin at 0. The first axis is the fastest. Of a cross: the centre, then
 * for each axis +1 .. +r, -r .. -1. */
void wf_kernel_map_offset(const struct wf_kernel_map_attrs *a, int64_t k,
                          int64_t offset[WF_SPARSE_AXES])
{
    memset(offset, 0, WF_SPARSE_AXES * sizeof *offset);
    if (a->cross) {
        const int64_t reach = a->kernel[0] / 2, within = k > 0 ? (k - 1) % (2 * reach) : 0;
        if (k > 0)
            offset[(k - 1) / (2 * reach)] = within < reach ? within + 1 : within - 2 * reach;
        return;
    }
    for (int d = 0; d < a->dims; d++) {
        offset[d] = k % a->kernel[d] - (a->kernel[d] % 2 ? a->kernel[d] / 2 : 0);
        k /= a->kernel[d];
    }
}

int64_t wf_sparse_conv_weight(const struct wf_sparse_conv_attrs *a, int64_t k, int64_t count)
{
    if (!a->mirrored)
        return k;
    if (!a->reach)
        return count - 1 - k;
    const int64_t each = 2 * a->reach;
    return k == 0 ? 0 : (k - 1) / each * each + each - (k - 1) % each;
}
