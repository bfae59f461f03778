/*
 * Sparse tensors: rows of features, and where they are.
 *
 * Coordinates are int32 rows [capacity, 1, 1, 1, 1 + D], the batch index first; features are rows of the
 * same set [capacity, 1, 1, 1, C]. Pointwise operators, normalisation and losses take features as they
 * take an image of one position per sample. Which rows a convolution joins is known from the
 * coordinates alone: nodes of a coordinate pass make sets (coords_stride) and kernel maps (kernel_map), and
 * what reads features is given a map. So maps are values like others: planned, shared between layers,
 * kept for the backward pass.
 *
 * Capacity and count. Extents are capacities. How many rows a rank has is known when the step runs
 * (wf_call.rows); kernels take no more than these, and rows behind them hold anything.
 *
 * Order. Rows are in Z order of their lattice coordinates (coordinate / tensor stride) within each sample,
 * the first axis leading: neighbours in space are neighbours in memory, and the rows of a coarser set
 * are made in one pass.
 */
#pragma once

#include "graph/graph.h"
#include "ops/op.h"

struct wf_coords_stride_attrs {
    int64_t dims;
    int64_t from[WF_SPARSE_AXES];   /* tensor stride of the input */
    int64_t stride[WF_SPARSE_AXES]; /* and of the output, a multiple of it */
    int64_t rows;                   /* capacity */
    int64_t set;                    /* of the output */
};

/* in, out -> map [rows of out, K]: which row of `in` lies at (coordinate of out) + offset k, or -1. */
struct wf_kernel_map_attrs {
    int64_t dims;
    int64_t kernel[WF_SPARSE_AXES];
    int64_t step
        [WF_SPARSE_AXES]; /* of offsets: dilation times tensor stride; negative: of the mirror */
    int64_t in_stride[WF_SPARSE_AXES], out_stride[WF_SPARSE_AXES]; /* of the tensors */
    int64_t cross; /* offsets along the axes only; kernels are odd and equal */
};

/* sparse_conv, x, w [K, Cout, Cin], [map], [b], [order]: y[u] = sum over k of x[map[u, k]] w[k] + b. Without a
 * map K is 1 and rows stay where they are. `order` (map_order) is for kernels that take several rows at once. */
enum { WF_SPARSE_CONV_ORDER = 4 }; /* input */
struct wf_sparse_conv_attrs {
    int64_t back;     /* the sum is over Cout, for the gradient of x */
    int64_t mirrored; /* column k of the map is of the offset opposite to that of w[k] */
    int64_t reach;    /* of a cross kernel, for its order of offsets; 0: a hypercube */
};

extern const struct wf_op wf_op_coords_stride, wf_op_kernel_map, wf_op_map_order, wf_op_sparse_conv,
    wf_op_sparse_conv_wgrad;

/* --- coordinates on the host: packed rows of 1 + dims --- */

/* In the order of rows: negative, zero or positive. `stride` is the tensors'. */
int wf_coords_compare(const int32_t *a, const int32_t *b, int dims, const int64_t stride[]);
/* The n rows, of a tensor of stride 1, in that order; equal ones stay as they are. */
void wf_coords_sort(const int32_t *rows, int64_t n, int dims, int64_t order[]);
/* The row of n in order, or -1. */
int64_t wf_coords_find(const int32_t *rows, int64_t n, const int32_t *at, int dims,
                       const int64_t stride[]);
/* Whether it is coarser by the same power of two along all axes: then the order of rows stays. */
bool wf_coords_keeps_order(const struct wf_coords_stride_attrs *a);
/* Sorted, each once; `to` has room for n. Returns how many. */
int64_t wf_coords_coarsen(const struct wf_coords_stride_attrs *a, const int32_t *from, int64_t n,
                          int32_t *to);

/* Offsets of a kernel. */
int64_t wf_kernel_map_count(const struct wf_kernel_map_attrs *a);
/* Offset k, in steps, per axis. */
void wf_kernel_map_offset(const struct wf_kernel_map_attrs *a, int64_t k,
                          int64_t offset[WF_SPARSE_AXES]);
/* Which bits of a row's key a neighbour at offset k sets. */
unsigned wf_map_order_bits(const struct wf_kernel_map_attrs *a, int64_t k);
/* The weight that goes with column k of the map. */
int64_t wf_sparse_conv_weight(const struct wf_sparse_conv_attrs *a, int64_t k, int64_t count);

/* --- what operators on rows share --- */

/* `reads`: the rank's part of rows of another set is in the same place, as a fraction of the capacity. */
struct wf_region wf_sparse_reads(const struct wf_node *node, int input, struct wf_region work);
/* First element of the rank's rows; the view is packed. */
static inline int32_t *wf_sparse_coords(const struct wf_view *v)
{
    return (int32_t *)v->data;
}
/* Rows of that value on this rank. */
static inline int64_t wf_sparse_rows(const struct wf_call *call, const struct wf_value *v)
{
    return call->rows[v->set];
}

/* --- the builder, beside what is public (widefield_graph.h) --- */

/* The first result of the same node, if there is one: for nodes that depend on nothing but their inputs. */
struct wf_value *wf_sparse_find(const struct wf_graph *g, const struct wf_op *op, const void *attrs,
                                int n_in, struct wf_value *const in[]);
/* The map, made once. */
struct wf_value *wf_kernel_map(struct wf_graph *g, struct wf_value *in, struct wf_value *out,
                               const struct wf_kernel_map_attrs *a);
/* Its rows, those with like neighbours together; made once. NULL of NULL. */
struct wf_value *wf_map_order(struct wf_graph *g, struct wf_value *map);
/* The map of the opposite direction, for gradients; `mirrored` where that is the map itself with its columns
 * mirrored. NULL of NULL. */
struct wf_value *wf_kernel_map_back(struct wf_graph *g, struct wf_value *map, bool *mirrored);

/* The coordinates of x on a coarser lattice, made once. */
struct wf_value *wf_sparse_coarsen(struct wf_graph *g, const struct wf_sparse *x,
                                   const int64_t stride[]);

/* Features at the coordinates that the graph has as input. */
struct wf_sparse wf_sparse_of(struct wf_graph *g, struct wf_value *features, int dims);
