/* What cases of sparse layers are filled with: the whole batch, or a rank's share of it. */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "support_sparse.h"

/* Element c of row r of the whole batch. */
static double number_of(const struct support_cloud *p, const struct wf_value *v, int64_t r,
                        int64_t c)
{
    const struct wf_random random = wf_random(9, wf_random_stream(v->name));
    const uint64_t index = (uint64_t)(r * v->shape.at[WF_C] + c);
    const int32_t place = p ? p->coords[r * (1 + p->dims) + wf_min(c, p->dims)] : 0;
    if (strncmp(v->name, "coords", 6) == 0)
        return place;
    if (strcmp(v->name, "points") == 0) /* some on places, most between */
        return c == 0 || r % 5 == 0 ? place
                                    : place + 0.9 * (double)wf_random_uniform(random, index);
    if (v->dtype == WF_I32)
        return wf_random_below(random, index, strcmp(v->name, "mask") == 0 ? 2 : 3);
    const double u = 2.0 * (double)wf_random_uniform(random, index) - 1.0;
    return u + (u < 0 ? -0.05 : 0.05);
}

/* Rows of the share, as many as there are; behind them what must not be read. */
static void fill_rows(const struct support_cloud *p, const struct wf_value *v,
                      const struct wf_view *view, const struct support_share *share)
{
    wf_view_fill(view, v->dtype == WF_I32 ? 1e6 : (double)NAN);
    for (int64_t i = 0, r; (r = support_share_row(p, share, i)) >= 0; i++)
        for (int64_t c = 0; c < v->shape.at[WF_C]; c++)
            wf_view_put(view, view->box.lo[WF_N] + i, 0, 0, 0, c, number_of(p, v, r, c));
}

/* Of an image, a row per sample, or a weight: elements by their place in the whole. */
static void fill_dense(const struct wf_value *v, const struct wf_view *view)
{
    const struct wf_random random = wf_random(9, wf_random_stream(v->name));
    const bool has_holes = strcmp(v->name, "image") == 0;
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);) {
        int64_t index = 0;
        for (int a = 0; a < WF_AXES; a++)
            index = index * v->shape.at[a] + c.at[a];
        const double u = 2.0 * (double)wf_random_uniform(random, (uint64_t)index) - 1.0;
        const bool hole = has_holes && index / v->shape.at[WF_C] % 3 == 0;
        const bool scale = v->kind == WF_STATE || (v->kind == WF_PARAM && v->border_dims < 0);
        wf_view_set(view, c.at, hole ? 0.0 : scale ? 0.5 + fabs(u) : u + (u < 0 ? -0.05 : 0.05));
    }
}

/* Of the samples that part k of `parts` has. */
static int64_t sample_point(int k, int parts)
{
    return SUPPORT_SPARSE_SAMPLES - wf_split_point(SUPPORT_SPARSE_SAMPLES, parts, parts - k);
}

/* Cuts are on multiples of all strides, and as far from each other as a kernel reaches. */
static int32_t width_along(const struct support_sparse *c, int axis)
{
    int64_t stride = 1, reach = 1;
    for (size_t i = 0; i < c->g->n_nodes; i++) {
        const struct wf_node *const n = c->g->nodes[i];
        const struct wf_halo_attrs *const halo = n->attrs;
        if (n->op == &wf_op_coords_stride)
            stride = wf_max(stride, ((const struct wf_coords_stride_attrs *)n->attrs)->stride[0]);
        if (n->op == &wf_op_halo_list)
            reach = wf_max(reach, wf_max(halo->below[axis], halo->above[axis]));
    }
    return (int32_t)(wf_ceil_div(reach, stride) * stride);
}

struct support_share support_share(const struct support_sparse *c, const struct wf_mesh *mesh,
                                   int rank)
{
    int at[WF_MESH_AXES];
    wf_mesh_coords(mesh, rank, at);
    struct support_share s = { .part = at[WF_MESH_DATA], .parts = mesh->at[WF_MESH_DATA] };
    for (int axis = 0; axis < WF_HALO_AXES; axis++) {
        const int k = at[WF_MESH_D + axis], width = width_along(c, axis);
        s.box[2 * axis] = k ? (k - 1) * width : INT32_MIN;
        s.box[2 * axis + 1] = k + 1 < mesh->at[WF_MESH_D + axis] ? k * width : INT32_MAX;
    }
    return s;
}

int64_t support_share_row(const struct support_cloud *p, const struct support_share *share,
                          int64_t i)
{
    const int64_t end = p->first[sample_point(share->part + 1, share->parts)];
    for (int64_t r = p->first[sample_point(share->part, share->parts)]; r < end; r++) {
        bool is_in = true;
        for (int axis = 0; axis < WF_HALO_AXES; axis++) {
            const int d = wf_halo_coordinate(axis, p->dims);
            const int32_t place = d < 0 ? 0 : p->coords[r * (1 + p->dims) + 1 + d];
            is_in = is_in &&
                    (d < 0 || (place >= share->box[2 * axis] && place < share->box[2 * axis + 1]));
        }
        if (is_in && i-- == 0)
            return r;
    }
    return -1;
}

static void fill(const struct support_sparse *c, const struct wf_value *v,
                 const struct wf_view *view, const struct support_share *share)
{
    const struct support_cloud *const p = support_sparse_cloud(c, v->set);
    if (!view->data || v->kind == WF_TEMP)
        return;
    if (v == c->g->rows) {
        int32_t *const rows = view->data;
        for (int s = 0; s <= WF_SETS; s++) {
            const struct support_cloud *const of = support_sparse_cloud(c, s);
            rows[s] = of ? 0 : -1;
            while (of && support_share_row(of, share, rows[s]) >= 0)
                rows[s]++;
        }
    } else if (v->per_rank) {
        for (struct wf_cursor at = wf_cursor(view->box); wf_cursor_next(&at);)
            wf_view_set(view, at.at, share->box[at.at[WF_C]]);
    } else if (p) {
        fill_rows(p, v, view, share);
    } else if (!v->set)
        fill_dense(v, view);
}

static struct support_share of_samples(int part, int parts)
{
    return (struct support_share){
        part, parts, { INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX }
    };
}

/* dy of a set that the step makes: by the row in the whole, which needs the counts of ranks before. */
static void fill_dy(const struct support_sparse *c, const struct wf_view *view)
{
    if (c->dy->set && !support_sparse_cloud(c, c->dy->set))
        for (struct wf_cursor p = wf_cursor(view->box); wf_cursor_next(&p);)
            wf_view_set(view, p.at, 0.25 * (double)(1 + p.at[WF_C]));
}

void support_sparse_fill(const struct support_sparse *c, const struct support_values *v)
{
    const struct support_share all = of_samples(0, 1);
    for (size_t i = 0; i < c->g->n_values; i++)
        fill(c, c->g->values[i], &v->views[i], &all);
    fill_dy(c, &v->views[c->dy->id]);
}

void support_sparse_fill_share(const struct support_sparse *c, struct wf_run *run,
                               const struct support_share *share)
{
    for (size_t i = 0; i < c->g->n_values; i++) {
        const struct wf_value *const v = c->g->values[i];
        struct wf_host host = { 0 };
        if (v->kind == WF_TEMP)
            continue;
        wf_run_map(run, v, &host);
        fill(c, v, &host.view, share);
        if (v == c->dy)
            fill_dy(c, &host.view);
        wf_host_put(&host);
        wf_host_release(&host);
    }
}

void support_sparse_fill_run(const struct support_sparse *c, struct wf_run *run, int rank,
                             int ranks)
{
    const struct support_share share = of_samples(rank, ranks);
    support_sparse_fill_share(c, run, &share);
}

struct wf_region support_sparse_there(const struct support_sparse *c,
                                      const struct support_values *v, const struct wf_value *value)
{
    struct wf_region r = wf_shape_region(value->shape);
    const int32_t *const rows = v->views[c->g->rows->id].data;
    if (value->set)
        r.hi[WF_N] = wf_min(r.hi[WF_N], rows[value->set]);
    return r;
}
