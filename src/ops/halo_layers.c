/* The builder of halos (ops/halo.h). Nodes that are there already are taken again. */
#include <inttypes.h>
#include <string.h>

#include "ops/build.h"
#include "ops/halo.h"

static const char input_name[] = "boxes";

bool wf_halo_is_cut(const struct wf_graph *g)
{
    return g->mesh[WF_D] > 1 || g->mesh[WF_H] > 1 || g->mesh[WF_W] > 1;
}

bool wf_halo_refuse(struct wf_graph *g, const char *layer, const char *what)
{
    if (!wf_halo_is_cut(g))
        return false;
    wf_err_set(&g->err, WF_ERR_FIT,
               "mesh: layer '%s': %s wants all points of a sample on one rank: use data, not space",
               layer, what);
    return true;
}

struct wf_value *wf_halo_boxes(struct wf_graph *g, int dims)
{
    struct wf_value *boxes = wf_graph_find(g, input_name);
    if (boxes || !wf_halo_is_cut(g))
        return boxes;
    for (int a = 0; a < WF_HALO_AXES; a++)
        if (g->mesh[WF_D + a] > 1 && wf_halo_coordinate(a, dims) < 0) {
            wf_err_set(&g->err, WF_ERR_FIT,
                       "mesh: space cuts %d axes, and points have %d: name as many of them",
                       WF_HALO_AXES - a, dims);
            return NULL;
        }
    boxes = wf_input(
        g, input_name, WF_I32,
        WF_SHAPE(g->mesh[WF_N], g->mesh[WF_D], g->mesh[WF_H], g->mesh[WF_W], WF_HALO_BOXES));
    if (boxes)
        boxes->per_rank = true;
    return boxes;
}

/* --- how far a kernel reaches --- */

/* Rows of the result are on multiples of its stride, and so are cuts, of both. */
static void reach_along(const struct wf_kernel_map_attrs *a, int d, int64_t *below, int64_t *above)
{
    const int64_t first = a->kernel[d] % 2 ? -(a->kernel[d] / 2) : 0;
    const int64_t x = first * a->step[d], y = (first + a->kernel[d] - 1) * a->step[d];
    const int64_t low = wf_min(x, y), high = wf_max(x, y), stride = a->in_stride[d];
    *below = low < 0 ? -low / stride * stride : 0;
    *above = high >= a->out_stride[d] ? ((high - a->out_stride[d]) / stride + 1) * stride : 0;
}

static bool find_reach(const struct wf_graph *g, const struct wf_kernel_map_attrs *a,
                       struct wf_halo_attrs *halo)
{
    bool any = false;
    for (int axis = 0; axis < WF_HALO_AXES; axis++) {
        const int d = wf_halo_coordinate(axis, a->dims);
        if (g->mesh[WF_D + axis] < 2 || d < 0)
            continue;
        reach_along(a, d, &halo->below[axis], &halo->above[axis]);
        any = any || halo->below[axis] > 0 || halo->above[axis] > 0;
    }
    return any;
}

/* --- nodes --- */

struct builder {
    struct wf_graph *g;
    const struct wf_sparse *x;
    struct wf_halo_attrs halo; /* of the tensor and the kernel */
    struct wf_value *coords[WF_HALO_BOXES], *features[WF_HALO_BOXES]; /* boxes */
    int n;
};

static int64_t capacity_of(const struct wf_graph *g, int64_t set, int64_t ranks, int64_t otherwise)
{
    const int64_t known = set < g->n_capacities ? g->capacities[set] : 0;
    return wf_max(1, (known > 0 ? known : otherwise) / ranks);
}

static const char *name_of(const struct builder *b, const char *what)
{
    return wf_arena_printf(&b->g->arena, "%s.%s", b->x->coords->name, what);
}

/* Whether the node is of the same halo; and, where `whole`, the same in all but its size. */
static bool is_alike(const struct wf_node *n, const struct wf_op *op, const struct builder *b,
                     bool whole)
{
    const struct wf_halo_attrs *const a = n->attrs, *const of = &b->halo;
    return n->op == op && memcmp(a->below, of->below, sizeof a->below) == 0 &&
           memcmp(a->above, of->above, sizeof a->above) == 0 &&
           (!whole || (a->to == of->to && memcmp(a->from, of->from, sizeof a->from) == 0));
}

/* Lists of a halo have one size. */
static struct wf_value *list_for(struct builder *b, int64_t to)
{
    struct wf_graph *const g = b->g;
    struct wf_value *in[2 + WF_HALO_BOXES] = { wf_halo_boxes(g, b->x->dims), b->x->coords };
    b->halo.to = to;
    b->halo.set = 0;
    memcpy(in + 2, b->coords, (size_t)b->n * sizeof *in);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const n = g->nodes[i];
        if (!is_alike(n, &wf_op_halo_list, b, false) || n->in[1] != b->x->coords)
            continue;
        if (is_alike(n, &wf_op_halo_list, b, true))
            return n->out[0];
        b->halo.set = ((const struct wf_halo_attrs *)n->attrs)->set;
    }
    if (!in[0])
        return NULL;
    if (!b->halo.set)
        b->halo.set = wf_set_new(g);
    b->halo.rows =
        capacity_of(g, b->halo.set, wf_halo_ranks(g->mesh), b->x->coords->shape.at[WF_N]);
    return wf_append(g, &wf_op_halo_list, name_of(b, "list"), NULL, &b->halo, 2 + b->n, in);
}

static struct wf_value *order_of(struct builder *b)
{
    struct wf_graph *const g = b->g;
    b->halo.to = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (is_alike(g->nodes[i], &wf_op_halo_merge, b, true) && g->nodes[i]->in[0] == b->coords[0])
            return g->nodes[i]->out[0];
    b->halo.set = wf_set_new(g);
    b->halo.rows = wf_halo_ranks(g->mesh) * capacity_of(g, b->halo.set, wf_halo_ranks(g->mesh),
                                                        b->x->coords->shape.at[WF_N]);
    return wf_append(g, &wf_op_halo_merge, name_of(b, "order"), NULL, &b->halo, b->n, b->coords);
}

static struct wf_value *gather(const struct builder *b, const char *name, struct wf_value *index,
                               struct wf_value *rows, struct wf_value *const boxes[],
                               int64_t channels)
{
    struct wf_value *in[2 + WF_HALO_BOXES] = { index };
    int n = 1;
    struct wf_gather_attrs a = { .to = b->halo.to, .has_rows = rows != NULL, .channels = channels };
    if (rows)
        in[n++] = rows;
    for (int i = 0; i < b->n; i++)
        in[n++] = boxes[i];
    memcpy(a.mesh, b->g->mesh, sizeof a.mesh);
    memcpy(a.from, b->halo.from, sizeof a.from);
    struct wf_value *const made = wf_sparse_find(b->g, &wf_op_rows_gather, &a, n, in);
    return made ? made : wf_append(b->g, &wf_op_rows_gather, name, NULL, &a, n, in);
}

/* To the neighbours along an axis. Those that came along it are not sent further along it. */
static bool send(struct builder *b, int axis)
{
    const struct wf_sparse *const x = b->x;
    struct wf_value *coords[2], *features[2];
    int64_t to[2];
    int n = 0;
    for (int64_t direction = 1 + 2 * axis; direction <= 2 + 2 * axis; direction++) {
        const bool down = wf_halo_step(direction) < 0;
        if ((down ? b->halo.above : b->halo.below)[axis] == 0)
            continue;
        struct wf_value *const list = list_for(b, direction);
        if (!list)
            return false;
        coords[n] = gather(b, name_of(b, "sent"), list, x->coords, b->coords, 1 + x->dims);
        features[n] = gather(b, wf_arena_printf(&b->g->arena, "%s.sent", x->features->name), list,
                             x->features, b->features, x->features->shape.at[WF_C]);
        to[n++] = direction;
    }
    for (int i = 0; i < n; i++, b->n++) {
        b->coords[b->n] = coords[i];
        b->features[b->n] = features[i];
        b->halo.from[b->n] = to[i];
    }
    return true;
}

static struct builder begin(struct wf_graph *g, const struct wf_sparse *x,
                            const struct wf_kernel_map_attrs *a, bool *any)
{
    struct builder b = { .g = g, .x = x, .halo = { .dims = x->dims } };
    memcpy(b.halo.stride, x->stride, sizeof b.halo.stride);
    *any = wf_halo_is_cut(g) && x->features && find_reach(g, a, &b.halo);
    return b;
}

void wf_halo_begin(struct wf_graph *g, const struct wf_sparse *x,
                   const struct wf_kernel_map_attrs *a)
{
    bool any;
    struct builder b = begin(g, x, a, &any);
    for (int axis = 0; any && b.n == 0 && axis < WF_HALO_AXES; axis++)
        any = send(&b, axis);
}

struct wf_sparse wf_halo(struct wf_graph *g, const struct wf_sparse *x,
                         const struct wf_kernel_map_attrs *a)
{
    bool any;
    struct builder b = begin(g, x, a, &any);
    struct wf_sparse y = *x;
    y.features = NULL;
    if (!any)
        return y;
    for (int axis = 0; axis < WF_HALO_AXES; axis++)
        if (!send(&b, axis))
            return y;
    struct wf_value *const order = order_of(&b);
    if (!order)
        return y;
    y.coords = gather(&b, name_of(&b, "halo"), order, NULL, b.coords, 1 + x->dims);
    y.features = gather(&b, wf_arena_printf(&g->arena, "%s.halo", x->features->name), order, NULL,
                        b.features, x->features->shape.at[WF_C]);
    return y;
}
