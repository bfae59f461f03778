/*
 * Points of other ranks within reach of a kernel.
 *
 * Along the mesh axis `space` points are cut into boxes of the grid: all ranks of one place along data have the same
 * samples, and each the points of its box. Cuts lie on multiples of every tensor's stride, so that a coarse row is
 * on the rank of its fine ones; and boxes between two others are at least as wide as a kernel reaches, so that
 * what a rank lacks is with its neighbours. The halo of a tensor is a tensor of its own: the rows that a kernel
 * reaches beyond the rank's box. A convolution is the sum of that of the rank's rows and that of the halo.
 *
 * How rows travel. Axis by axis (D, H, W, where the mesh cuts them) a rank makes a list of the rows that its neighbour
 * below and the one above lack (halo_list): of its own, and of those that came along earlier axes, so that
 * corners need no messages of their own. A box has the rows of a list one after the other, as many slots on all
 * ranks; it is a value with one element per rank, and to read that of the neighbour is an ordinary fetch. What
 * arrived is merged into the order of rows (halo_merge).
 *
 *   halo_list     boxes, coords, [coords in boxes]    list    [mesh, slots]: rows for one neighbour, in order
 *   halo_merge    coords in boxes                     order   rows of the halo's set: where each one is
 *   rows_gather   index, [x], [boxes]                 y       a box by a list, or rows of the halo by an order
 *   rows_scatter  dy, index, [add]                    dx      its gradient for one source
 *
 * H1. An element of a list or an order is row + WF_HALO_SOURCE * source; source 0 is the rank's rows, the others
 *     are boxes in the order of inputs. -1: none; those of a list are at its end.
 * H2. A list names a row once, and so does an order: nothing is added up twice, and ranks' threads do not meet.
 * H3. A box has the place of the rank that sends it, its gradient that of the rank that received it. Only
 *     rows_gather reads boxes, and only rows_scatter their gradients, each at the neighbour that `from` or `to` names.
 * H4. Coordinates of an empty slot have batch index -1.
 */
#pragma once

#include "ops/sparse.h"

enum {
    WF_HALO_AXES = 3,
    WF_HALO_BOXES = 2 * WF_HALO_AXES, /* that a rank sends, and that it receives */
    WF_HALO_SOURCE = 1 << 28,         /* H1 */
};

/* A direction is 1 + 2 * axis for the neighbour below along that axis (D, H, W), one more for the one above;
 * 0: none. */
static inline int wf_halo_axis(int64_t direction)
{
    return (int)(direction - 1) / 2;
}
static inline int64_t wf_halo_step(int64_t direction)
{
    return direction % 2 ? -1 : 1;
}

struct wf_halo_attrs { /* halo_list, halo_merge */
    int64_t dims;
    int64_t stride[WF_SPARSE_AXES];                   /* of the tensor */
    int64_t below[WF_HALO_AXES], above[WF_HALO_AXES]; /* reach beyond a box, along D, H, W */
    int64_t to;                                       /* halo_list: the neighbour */
    int64_t from[WF_HALO_BOXES]; /* where boxes went to, in the order of inputs; 0: no more */
    int64_t rows,
        set; /* halo_merge: capacity, and the set; halo_list: slots, and the number under which graphs'
                          capacities have them, times the ranks */
};

struct wf_gather_attrs { /* rows_gather, rows_scatter */
    int64_t mesh[WF_C];  /* ranks, along data and space */
    int64_t to;          /* where the box goes to; 0: it makes rows */
    int64_t has_rows;    /* the first source is rows of a set */
    int64_t from[WF_HALO_BOXES];
    int64_t channels;          /* of a row */
    int64_t source, rows, set; /* rows_scatter: which one, its capacity or slots, its set */
};

extern const struct wf_op wf_op_halo_list, wf_op_halo_merge, wf_op_rows_gather, wf_op_rows_scatter;

/* --- places of ranks --- */

/* The axis of coordinates that an axis of the mesh (D, H, W) cuts, or -1. Images have D, H, W as their last axes; points
 * of more dimensions are cut along the first three. */
static inline int wf_halo_coordinate(int axis, int64_t dims)
{
    return dims > WF_HALO_AXES ? axis : axis - (WF_HALO_AXES - (int)dims);
}

/* Ranks of the mesh. */
int64_t wf_halo_ranks(const int64_t mesh[WF_C]);
/* The places of ranks to which rows belong, of so many that all ranks have. */
struct wf_region wf_halo_place(const int64_t mesh[WF_C], int64_t rows, struct wf_region part);
/* Those of places, all ranks having so many. */
struct wf_region wf_halo_rows(const struct wf_value *rows, const int64_t mesh[WF_C],
                              struct wf_region places);
/* The neighbours' places, with all elements of `v`; may reach past the mesh. */
struct wf_region wf_halo_moved(const struct wf_value *v, struct wf_region places, int64_t direction,
                               int64_t times);
/* One element of the mesh, moved; false: there is no such rank. */
bool wf_halo_neighbour(const int64_t mesh[WF_C], const int64_t at[WF_AXES], int64_t direction,
                       int64_t times, int64_t to[WF_AXES]);

/* --- on the host --- */

/* Whether the rank whose box along the direction's axis is this sends a row at `place`. A box without an end has no
 * neighbour there: INT32_MIN, INT32_MAX. */
static inline bool wf_halo_sends(const struct wf_halo_attrs *a, int64_t low, int64_t high,
                                 int64_t place)
{
    const int axis = wf_halo_axis(a->to);
    return wf_halo_step(a->to) < 0 ? low > INT32_MIN && place < low + a->above[axis]
                                   : high < INT32_MAX && place >= high - a->below[axis];
}

/* --- the builder --- */

/* Whether points are cut along space. */
bool wf_halo_is_cut(const struct wf_graph *g);
/* The input that has each rank's box: lowest place and the one behind the highest, along D, H, W; without
 * ends on one rank that has all points. NULL where points are not cut. */
struct wf_value *wf_halo_boxes(struct wf_graph *g, int dims);
/* What the kernel reaches of other ranks' rows of x; without features where that is nothing. */
struct wf_sparse wf_halo(struct wf_graph *g, const struct wf_sparse *x,
                         const struct wf_kernel_map_attrs *a);
/* Begins to send: what is built before wf_halo() is done meanwhile. */
void wf_halo_begin(struct wf_graph *g, const struct wf_sparse *x,
                   const struct wf_kernel_map_attrs *a);
/* Fails where points are cut along space, for layers that want all points of a sample on one rank. */
bool wf_halo_refuse(struct wf_graph *g, const char *layer, const char *what);
