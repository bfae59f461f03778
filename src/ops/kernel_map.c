/*
 * The coordinate pass: sets of coordinates made of sets, and which rows a kernel joins.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/sparse.h"

struct wf_region wf_sparse_reads(const struct wf_node *node, int input, struct wf_region work)
{
    const int64_t all = wf_op_domain(node)->shape.at[WF_N], mine = wf_region_extent(work, WF_N);
    struct wf_region r = wf_shape_region(node->in[input]->shape);
    const int64_t extent = r.hi[WF_N];
    /* Which of how many parts it is: parts differ by one row at most. */
    const int64_t parts = mine > 0 ? (all + mine / 2) / mine : 1;
    const int64_t part = wf_min((work.lo[WF_N] * parts + all / 2) / all, parts - 1);
    r.lo[WF_N] = wf_split_point(extent, parts, part);
    r.hi[WF_N] = wf_split_point(extent, parts, part + 1);
    return r;
}

static bool check_coords(const struct wf_value *v, int64_t dims, struct wf_err *err)
{
    if (dims >= 1 && dims <= WF_SPARSE_AXES && v->set && v->dtype == WF_I32 &&
        v->shape.at[WF_C] == 1 + dims)
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "coordinates are rows of 1 + dims i32 of a set, dims from 1 to %d",
                      WF_SPARSE_AXES);
}

/* --- coords_stride --- */

static const struct wf_field stride_fields[] = {
    WF_INT(wf_coords_stride_attrs, dims),
    WF_INTS(wf_coords_stride_attrs, from, WF_SPARSE_AXES),
    WF_INTS(wf_coords_stride_attrs, stride, WF_SPARSE_AXES),
    WF_INT(wf_coords_stride_attrs, rows),
    WF_INT(wf_coords_stride_attrs, set),
    { 0 },
};

static bool stride_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_coords_stride_attrs *a = node->attrs;
    if (!check_coords(node->in[0], a->dims, err))
        return false;
    for (int64_t d = 0; d < a->dims; d++)
        if (a->from[d] < 1 || a->stride[d] < 1 || a->stride[d] % a->from[d] != 0 ||
            a->stride[d] > INT32_MAX)
            return wf_err_set(err, WF_ERR_USAGE,
                              "tensor stride %" PRId64 " of a tensor of stride %" PRId64
                              ": use a multiple of it",
                              a->stride[d], a->from[d]);
    node->out[0]->shape.at[WF_N] = a->rows;
    node->out[0]->set = (int)a->set;
    return true;
}

static void stride_reference(const struct wf_call *call)
{
    const struct wf_coords_stride_attrs *a = call->node->attrs;
    const int64_t n = wf_sparse_rows(call, call->node->in[0]), width = 1 + a->dims;
    const int64_t room = wf_region_extent(call->out[0].box, WF_N);
    int32_t *const made = wf_take((size_t)(n * width + 1) * sizeof *made);
    const int64_t count = wf_coords_coarsen(a, wf_sparse_coords(&call->in[0]), n, made);
    WF_BUG_ON(count > room, "'%s': %" PRId64 " rows, and room for %" PRId64, call->node->name,
              count, room);
    memcpy(wf_sparse_coords(&call->out[0]), made, (size_t)(count * width) * sizeof *made);
    call->rows[a->set] = (int32_t)count;
    free(made);
}

const struct wf_op wf_op_coords_stride = {
    .name = "coords_stride",
    .n_in = 1,
    .flags = WF_OP_SETS | WF_OP_COUNTS,
    WF_ATTRS(wf_coords_stride_attrs, stride_fields),
    .infer = stride_infer,
    .reads = wf_sparse_reads,
    .reference = stride_reference,
    .flops_each = 4,
};

/* --- kernel_map --- */

static const struct wf_field map_fields[] = {
    WF_INT(wf_kernel_map_attrs, dims),
    WF_INTS(wf_kernel_map_attrs, kernel, WF_SPARSE_AXES),
    WF_INTS(wf_kernel_map_attrs, step, WF_SPARSE_AXES),
    WF_INTS(wf_kernel_map_attrs, in_stride, WF_SPARSE_AXES),
    WF_INTS(wf_kernel_map_attrs, out_stride, WF_SPARSE_AXES),
    WF_INT(wf_kernel_map_attrs, cross),
    { 0 },
};

static bool map_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_kernel_map_attrs *a = node->attrs;
    const struct wf_value *const to = node->in[1];
    if (!check_coords(node->in[0], a->dims, err) || !check_coords(to, a->dims, err))
        return false;
    for (int64_t d = 0; d < a->dims; d++) {
        if (a->kernel[d] < 1 || a->step[d] == 0 || a->in_stride[d] < 1 || a->out_stride[d] < 1)
            return wf_err_set(err, WF_ERR_USAGE, "kernels and strides are at least 1");
        if (a->cross && (a->kernel[d] % 2 == 0 || a->kernel[d] != a->kernel[0]))
            return wf_err_set(err, WF_ERR_USAGE, "a cross kernel is odd and equal along all axes");
    }
    const int64_t count = wf_kernel_map_count(a);
    if (count > 4096)
        return wf_err_set(err, WF_ERR_USAGE, "%" PRId64 " offsets: at most 4096", count);
    node->out[0]->shape = WF_SHAPE(to->shape.at[WF_N], 1, 1, 1, count);
    node->out[0]->set = to->set;
    return true;
}

static void map_reference(const struct wf_call *call)
{
    const struct wf_kernel_map_attrs *a = call->node->attrs;
    const int64_t count = wf_kernel_map_count(a), width = 1 + a->dims;
    const int64_t n = wf_sparse_rows(call, call->node->in[0]);
    const int32_t *const in = wf_sparse_coords(&call->in[0]), *out = wf_sparse_coords(&call->in[1]);
    for (int64_t r = call->work.lo[WF_N]; r < call->work.hi[WF_N]; r++, out += width)
        for (int64_t k = 0; k < count; k++) {
            int64_t offset[WF_SPARSE_AXES];
            int32_t at[1 + WF_SPARSE_AXES] = { out[0] };
            bool inside = true;
            wf_kernel_map_offset(a, k, offset);
            for (int64_t d = 0; d < a->dims; d++) {
                const int64_t place = out[1 + d] + offset[d] * a->step[d];
                inside = inside && place >= INT32_MIN && place <= INT32_MAX;
                at[1 + d] = (int32_t)place;
            }
            const int64_t row = inside ? wf_coords_find(in, n, at, (int)a->dims, a->in_stride) : -1;
            wf_view_put(&call->out[0], r, 0, 0, 0, k, (double)row);
        }
}

const struct wf_op wf_op_kernel_map = {
    .name = "kernel_map",
    .n_in = 2,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_kernel_map_attrs, map_fields),
    .infer = map_infer,
    .reads = wf_sparse_reads,
    .reference = map_reference,
    .flops_each = 8,
};
