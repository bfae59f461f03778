/*
 * Sets of coordinates made of sets: what either of two has (coords_union), what a mask keeps (coords_prune), and
 * what a transposed convolution reaches (coords_expand).
 *
 * All are in the order of rows (ops/sparse.h), each place once. How many there are is known when the step runs.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/sparse_ops.h"

static const struct wf_field fields[] = {
    WF_INT(wf_coords_set_attrs, dims),
    WF_INTS(wf_coords_set_attrs, stride, WF_SPARSE_AXES),
    WF_INTS(wf_coords_set_attrs, from, WF_SPARSE_AXES),
    WF_INTS(wf_coords_set_attrs, kernel, WF_SPARSE_AXES),
    WF_INTS(wf_coords_set_attrs, step, WF_SPARSE_AXES),
    WF_INT(wf_coords_set_attrs, cross),
    WF_INT(wf_coords_set_attrs, rows),
    WF_INT(wf_coords_set_attrs, set),
    { 0 },
};

/* --- on the host --- */

static size_t row_bytes(const struct wf_coords_set_attrs *a)
{
    return (size_t)(1 + a->dims) * sizeof(int32_t);
}

static int by_order(const void *a, const void *b, void *attrs)
{
    const struct wf_coords_set_attrs *const s = attrs;
    return wf_coords_compare(a, b, (int)s->dims, s->stride);
}

static int64_t merge(const struct wf_coords_set_attrs *a, const int32_t *const from[],
                     const int64_t n[], int32_t *to)
{
    const int64_t width = 1 + a->dims;
    int64_t i = 0, k = 0, made = 0;
    while (i < n[0] || k < n[1]) {
        const int32_t *const x = from[0] + i * width, *const y = from[1] + k * width;
        const int order = i == n[0]   ? 1
                          : k == n[1] ? -1
                                      : wf_coords_compare(x, y, (int)a->dims, a->stride);
        memcpy(to + made++ * width, order <= 0 ? x : y, row_bytes(a));
        i += order <= 0;
        k += order >= 0;
    }
    return made;
}

static struct wf_kernel_map_attrs kernel_of(const struct wf_coords_set_attrs *a)
{
    struct wf_kernel_map_attrs k = { .dims = a->dims, .cross = a->cross };
    memcpy(k.kernel, a->kernel, sizeof k.kernel);
    return k;
}

/* A place beyond int32 is none. */
static int64_t expand(const struct wf_coords_set_attrs *a, const int32_t *from, int64_t n,
                      int32_t *to)
{
    const struct wf_kernel_map_attrs kernel = kernel_of(a);
    const int64_t width = 1 + a->dims, count = wf_kernel_map_count(&kernel);
    struct wf_coords_set_attrs order = *a;
    int64_t all = 0, made = 0;
    for (int64_t i = 0; i < n * count; i++) {
        const int32_t *const at = from + i / count * width;
        int64_t offset[WF_SPARSE_AXES];
        bool inside = true;
        wf_kernel_map_offset(&kernel, i % count, offset);
        to[all * width] = at[0];
        for (int64_t d = 1; d < width; d++) {
            const int64_t place = at[d] + offset[d - 1] * a->step[d - 1];
            inside = inside && place >= INT32_MIN && place <= INT32_MAX;
            to[all * width + d] = (int32_t)place;
        }
        all += inside;
    }
    qsort_r(to, (size_t)all, row_bytes(a), by_order, &order);
    for (int64_t i = 0; i < all; i++)
        if (made == 0 || memcmp(to + (made - 1) * width, to + i * width, row_bytes(a)) != 0)
            memmove(to + made++ * width, to + i * width, row_bytes(a));
    return made;
}

bool wf_coords_is_made(const struct wf_node *node)
{
    return (node->op->flags & WF_OP_COUNTS) != 0;
}

int64_t wf_coords_room(const struct wf_node *node, const int64_t n[])
{
    if (node->op == &wf_op_grid_coords)
        return wf_shape_count(node->in[0]->shape) / node->in[0]->shape.at[WF_C];
    if (node->op == &wf_op_coords_union)
        return n[0] + n[1];
    if (node->op != &wf_op_coords_expand)
        return n[0];
    const struct wf_kernel_map_attrs kernel = kernel_of(node->attrs);
    return n[0] * wf_kernel_map_count(&kernel);
}

int64_t wf_coords_make(const struct wf_node *node, const int32_t *const from[], const int64_t n[],
                       int32_t *to)
{
    if (node->op == &wf_op_coords_stride)
        return wf_coords_coarsen(node->attrs, from[0], n[0], to);
    if (node->op == &wf_op_coords_union)
        return merge(node->attrs, from, n, to);
    if (node->op == &wf_op_coords_expand)
        return expand(node->attrs, from[0], n[0], to);
    if (node->op == &wf_op_grid_coords)
        return wf_grid_rows(node->attrs, NULL, 0, node->in[0]->shape.at[WF_N], to);
    if (from[0]) /* a mask may keep all */
        memcpy(to, from[0], (size_t)n[0] * row_bytes(node->attrs));
    return n[0];
}

/* --- what the operators share --- */

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_coords_set_attrs *a = node->attrs;
    for (int i = 0; i < node->n_in && (i == 0 || node->op == &wf_op_coords_union); i++)
        if (a->dims < 1 || a->dims > WF_SPARSE_AXES || !node->in[i]->set ||
            node->in[i]->dtype != WF_I32 || node->in[i]->shape.at[WF_C] != 1 + a->dims)
            return wf_err_set(err, WF_ERR_USAGE,
                              "coordinates are rows of 1 + dims i32 of a set, dims from 1 to %d",
                              WF_SPARSE_AXES);
    for (int64_t d = 0; d < a->dims; d++)
        if (a->stride[d] < 1 || (node->op == &wf_op_coords_expand && a->kernel[d] < 1))
            return wf_err_set(err, WF_ERR_USAGE, "kernels and strides are at least 1");
    node->out[0]->shape.at[WF_N] = a->rows;
    node->out[0]->set = (int)a->set;
    return true;
}

static void put_rows(const struct wf_call *call, const int32_t *made, int64_t count)
{
    const struct wf_coords_set_attrs *a = call->node->attrs;
    const int64_t room = wf_region_extent(call->out[0].box, WF_N);
    WF_BUG_ON(count > room, "'%s': %" PRId64 " rows, and room for %" PRId64, call->node->name,
              count, room);
    memcpy(wf_sparse_coords(&call->out[0]), made, (size_t)count * row_bytes(a));
    call->rows[a->set] = (int32_t)count;
}

static void reference(const struct wf_call *call)
{
    const struct wf_coords_set_attrs *a = call->node->attrs;
    const int32_t *from[2] = { NULL };
    int64_t n[2] = { 0 };
    for (int i = 0; i < call->node->n_in; i++) {
        from[i] = wf_sparse_coords(&call->in[i]);
        n[i] = wf_sparse_rows(call, call->node->in[i]);
    }
    int32_t *const made = wf_take((size_t)(wf_coords_room(call->node, n) + 1) * row_bytes(a));
    put_rows(call, made, wf_coords_make(call->node, from, n, made));
    free(made);
}

const struct wf_op wf_op_coords_union = {
    .name = "coords_union",
    .n_in = 2,
    .flags = WF_OP_SETS | WF_OP_COUNTS,
    WF_ATTRS(wf_coords_set_attrs, fields),
    .infer = infer,
    .reads = wf_sparse_reads,
    .reference = reference,
    .flops_each = 4,
};

const struct wf_op wf_op_coords_expand = {
    .name = "coords_expand",
    .n_in = 1,
    .flags = WF_OP_SETS | WF_OP_COUNTS,
    WF_ATTRS(wf_coords_set_attrs, fields),
    .infer = infer,
    .reads = wf_sparse_reads,
    .reference = reference,
    .flops_each = 16,
};

/* --- coords_prune: coords, mask --- */

static bool prune_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *const mask = node->in[1];
    if (mask->set != node->in[0]->set || mask->shape.at[WF_C] != 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "the mask must be one number for each row of the coordinates' set");
    return infer(node, err);
}

static void prune_reference(const struct wf_call *call)
{
    const struct wf_coords_set_attrs *a = call->node->attrs;
    const int64_t n = wf_sparse_rows(call, call->node->in[0]), first = call->in[1].box.lo[WF_N];
    const int32_t *const from = wf_sparse_coords(&call->in[0]);
    int32_t *const made = wf_take((size_t)(n + 1) * row_bytes(a));
    int64_t count = 0;
    for (int64_t r = 0; r < n; r++)
        if (wf_view_get(&call->in[1], first + r, 0, 0, 0, 0) > 0)
            memcpy(made + count++ * (1 + a->dims), from + r * (1 + a->dims), row_bytes(a));
    put_rows(call, made, count);
    free(made);
}

const struct wf_op wf_op_coords_prune = {
    .name = "coords_prune",
    .n_in = 2,
    .flags = WF_OP_SETS | WF_OP_COUNTS,
    WF_ATTRS(wf_coords_set_attrs, fields),
    .infer = prune_infer,
    .reads = wf_sparse_reads,
    .reference = prune_reference,
};
