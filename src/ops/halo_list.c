/*
 * Which rows a neighbour lacks (halo_list), and the order of those that arrived (halo_merge): see ops/halo.h.
 *
 * Both take rows of several sources, each in order, and name the chosen ones in the order of all.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/halo.h"

static const struct wf_field fields[] = {
    WF_INT(wf_halo_attrs, dims),
    WF_INTS(wf_halo_attrs, stride, WF_SPARSE_AXES),
    WF_INTS(wf_halo_attrs, below, 3),
    WF_INTS(wf_halo_attrs, above, 3),
    WF_INT(wf_halo_attrs, to),
    WF_INTS(wf_halo_attrs, from, WF_HALO_BOXES),
    WF_INT(wf_halo_attrs, rows),
    WF_INT(wf_halo_attrs, set),
    { 0 },
};

static bool check(const struct wf_node *node, int first_box, struct wf_err *err)
{
    const struct wf_halo_attrs *a = node->attrs;
    if (a->dims < 1 || a->dims > WF_SPARSE_AXES || a->rows < 1 || node->n_in < first_box ||
        node->n_in > first_box + WF_HALO_BOXES)
        return wf_err_set(err, WF_ERR_USAGE, "wants coordinates of 1 to %d dimensions, and room",
                          WF_SPARSE_AXES);
    for (int i = first_box; i < node->n_in; i++)
        if (!node->in[i]->per_rank || node->in[i]->dtype != WF_I32 || !a->from[i - first_box] ||
            node->in[i]->shape.at[WF_C] % (1 + a->dims) != 0)
            return wf_err_set(err, WF_ERR_USAGE, "input %d is not a box of coordinates", i);
    return true;
}

/* --- choosing, in order --- */

struct chosen {
    const int32_t *at;
    int64_t index;
};

struct chooser {
    const struct wf_halo_attrs *a;
    struct chosen *rows;
    size_t n, room;
};

static int by_order(const void *a, const void *b, void *attrs)
{
    const struct chosen *const x = a, *const y = b;
    const struct wf_halo_attrs *const halo = attrs;
    return wf_coords_compare(x->at, y->at, (int)halo->dims, halo->stride);
}

/* Up to the first empty slot (H4). `box`: of the rank, along the list's axis; NULL: all are chosen. */
static void choose(struct chooser *c, const int32_t *rows, int64_t n, int source,
                   const int32_t box[2])
{
    const struct wf_halo_attrs *const a = c->a;
    const int64_t width = 1 + a->dims;
    const int d = box ? 1 + wf_halo_coordinate(wf_halo_axis(a->to), a->dims) : 0;
    for (int64_t i = 0; i < n && rows[i * width] >= 0; i++) {
        if (box && !wf_halo_sends(a, box[0], box[1], rows[i * width + d]))
            continue;
        WF_GROW(c->rows, c->room, c->n);
        c->rows[c->n++] = (struct chosen){ rows + i * width, i + (int64_t)source * WF_HALO_SOURCE };
    }
}

/* Coordinates that arrived at this place in one of the boxes. */
static void choose_box(struct chooser *c, const struct wf_call *call, int first_box, int box,
                       const int64_t place[WF_AXES], const int32_t bounds[2])
{
    const struct wf_view *const v = &call->in[first_box + box];
    const struct wf_shape *const shape = &call->node->in[first_box + box]->shape;
    int64_t at[WF_AXES];
    if (!wf_halo_neighbour(shape->at, place, c->a->from[box], -1, at))
        return;
    const int32_t *const rows =
        (const int32_t *)v->data + wf_view_offset(v, at[0], at[1], at[2], at[3], 0);
    choose(c, rows, shape->at[WF_C] / (1 + c->a->dims), 1 + box, bounds);
}

static void sort(struct chooser *c)
{
    struct wf_halo_attrs order = *c->a;
    if (c->n > 0)
        qsort_r(c->rows, c->n, sizeof *c->rows, by_order, &order);
}

/* --- halo_list: boxes, coords, [coords in boxes] --- */

enum { BOUNDS, COORDS, BOXES };

static bool list_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_halo_attrs *a = node->attrs;
    const struct wf_value *const coords = node->in[COORDS];
    if (!check(node, BOXES, err))
        return false;
    if (!coords->set || coords->dtype != WF_I32 || coords->shape.at[WF_C] != 1 + a->dims ||
        !node->in[BOUNDS]->per_rank || a->to < 1 || a->to > WF_HALO_BOXES)
        return wf_err_set(err, WF_ERR_USAGE, "wants the boxes of ranks, and coordinates");
    node->out[0]->shape.at[WF_C] = a->rows;
    return true;
}

static struct wf_region list_reads(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_halo_attrs *a = node->attrs;
    const struct wf_value *const v = node->in[input];
    if (input == COORDS)
        return wf_halo_rows(v, node->out[0]->shape.at, work);
    return wf_halo_moved(v, work, input == BOUNDS ? 0 : a->from[input - BOXES], -1);
}

static void list_one(const struct wf_call *call, struct chooser *c, const int64_t place[WF_AXES])
{
    const struct wf_halo_attrs *a = call->node->attrs;
    int32_t bounds[2];
    int64_t at[WF_AXES];
    memcpy(at, place, sizeof at);
    for (int i = 0; i < 2; i++) {
        at[WF_C] = 2 * wf_halo_axis(a->to) + i;
        bounds[i] = (int32_t)wf_view_at(&call->in[BOUNDS], at);
    }
    c->n = 0;
    choose(c, wf_sparse_coords(&call->in[COORDS]), wf_sparse_rows(call, call->node->in[COORDS]), 0,
           bounds);
    for (int b = 0; b < call->node->n_in - BOXES; b++)
        choose_box(c, call, BOXES, b, place, bounds);
    sort(c);
    const int64_t n = (int64_t)c->n;
    WF_BUG_ON(n > a->rows, "'%s': %" PRId64 " rows, and room for %" PRId64, call->node->name, n,
              a->rows);
    for (at[WF_C] = 0; at[WF_C] < a->rows; at[WF_C]++)
        wf_view_set(&call->out[0], at, at[WF_C] < n ? (double)c->rows[at[WF_C]].index : -1);
}

static void list_reference(const struct wf_call *call)
{
    struct chooser c = { .a = call->node->attrs };
    struct wf_region places = call->work;
    places.hi[WF_C] = wf_min(places.hi[WF_C], 1);
    for (struct wf_cursor p = wf_cursor(places); wf_cursor_next(&p);)
        list_one(call, &c, p.at);
    free(c.rows);
}

const struct wf_op wf_op_halo_list = {
    .name = "halo_list",
    .n_in = -1,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_halo_attrs, fields),
    .infer = list_infer,
    .reads = list_reads,
    .reference = list_reference,
    .flops_each = 8,
};

/* --- halo_merge: coords in boxes --- */

static bool merge_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_halo_attrs *a = node->attrs;
    if (!check(node, 0, err))
        return false;
    if (node->n_in < 1 || a->set < 1)
        return wf_err_set(err, WF_ERR_USAGE, "wants boxes, and a set");
    node->out[0]->shape = WF_SHAPE(a->rows, 1, 1, 1, 1);
    node->out[0]->set = (int)a->set;
    node->out[0]->per_rank = false;
    return true;
}

static struct wf_region merge_reads(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_halo_attrs *a = node->attrs;
    const struct wf_value *const v = node->in[input];
    return wf_halo_moved(v, wf_halo_place(v->shape.at, node->out[0]->shape.at[WF_N], work),
                         a->from[input], -1);
}

static void merge_reference(const struct wf_call *call)
{
    const struct wf_halo_attrs *a = call->node->attrs;
    struct chooser c = { .a = a };
    const struct wf_region box = call->out[0].box;
    const struct wf_region place =
        wf_halo_place(call->node->in[0]->shape.at, call->node->out[0]->shape.at[WF_N], box);
    const int64_t room = wf_region_extent(box, WF_N);
    const bool has_all = wf_region_count(place) > 1; /* then nothing travels */
    for (int b = 0; !has_all && b < call->node->n_in; b++)
        choose_box(&c, call, 0, b, place.lo, NULL);
    sort(&c);
    const int64_t n = (int64_t)c.n;
    WF_BUG_ON(n > room, "'%s': %" PRId64 " rows, and room for %" PRId64, call->node->name, n, room);
    for (int64_t i = 0; i < n; i++)
        wf_view_put(&call->out[0], box.lo[WF_N] + i, 0, 0, 0, 0, (double)c.rows[i].index);
    call->rows[a->set] = (int32_t)n;
    free(c.rows);
}

const struct wf_op wf_op_halo_merge = {
    .name = "halo_merge",
    .n_in = -1,
    .flags = WF_OP_SETS | WF_OP_COUNTS,
    WF_ATTRS(wf_halo_attrs, fields),
    .infer = merge_infer,
    .reads = merge_reads,
    .reference = merge_reference,
    .flops_each = 8,
};
