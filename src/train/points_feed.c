#include "train/points_feed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/clouds.h"
#include "train/feed.h"

static_assert((int)WF_CLOUD_SETS == (int)WF_SETS + 1, "a count for each set");

/* Clouds that are looked at; draws of each, where they are augmented; and what is added to what they have. */
enum { DIMS = 3 };
enum { CLOUDS = 256, DRAWS = 2, PERCENT_AUGMENTED = 10, PERCENT_UNSEEN = 15, PERCENT_MORE = 25 };

/* --- a rank's share --- */

/* Of a rank: parts of a capacity differ by one row at most. */
static void find_capacity(struct wf_points_rank *r)
{
    const int64_t ranks = (int64_t)r->parts * wf_points_parts(&r->cut);
    for (size_t i = 0; i < r->graph->n_values; i++) {
        const struct wf_value *const v = r->graph->values[i];
        if (v->set)
            r->capacity[v->set] = v->shape.at[WF_N] / ranks;
    }
    for (size_t i = 0; i < r->graph->n_nodes; i++) {
        const struct wf_halo_attrs *const a = r->graph->nodes[i]->attrs;
        if (r->graph->nodes[i]->op == &wf_op_halo_list)
            r->capacity[a->set] = a->rows;
    }
}

struct wf_points_rank wf_points_rank(const struct wf_network *net, const struct wf_mesh *mesh,
                                     int rank)
{
    int at[WF_MESH_AXES];
    wf_mesh_coords(mesh, rank, at);
    struct wf_points_rank r = { .graph = net->graph,
                                .parts = mesh->at[WF_MESH_DATA],
                                .part = at[WF_MESH_DATA],
                                .cut = wf_points_cut(net->graph, DIMS) };
    r.cut.data = 1; /* the loader has the rows of this place along data */
    for (int axis = 0; axis < WF_HALO_AXES; axis++)
        r.box = r.box * mesh->at[WF_MESH_D + axis] + at[WF_MESH_D + axis];
    find_capacity(&r);
    return r;
}

/* What the rank has: its box, or the most that any has. */
static void take_box(const struct wf_points_rank *r, const struct wf_points_rows *rows,
                     int64_t (*counts)[WF_SETS + 1], struct wf_cloud_batch *b)
{
    const int box = r->box < 0 ? 0 : r->box;
    b->here = wf_rows_count(rows, box);
    memcpy(b->order, rows->point + rows->first[box], (size_t)b->here * sizeof *b->order);
    memcpy(b->box, rows->box[box], sizeof b->box);
    memcpy(b->places, counts[box], sizeof b->places);
    for (int k = 0; r->box < 0 && k < rows->parts; k++)
        for (int s = 0; s <= WF_SETS; s++)
            b->places[s] = wf_max(b->places[s], counts[k][s]);
}

/* The order of rows, and how many there are at each level. */
bool wf_points_arrange(void *rank, struct wf_cloud_batch *b, struct wf_err *err)
{
    const struct wf_points_rank *const r = rank;
    struct wf_arena arena = { 0 };
    const struct wf_points_of_step p = { .dims = DIMS,
                                         .n = b->n,
                                         .channels = b->channels,
                                         .samples = b->first + b->rows,
                                         .coords = b->coords,
                                         .features = b->features };
    struct wf_points_rows rows;
    const bool ok = wf_rows_make(&arena, &p, &r->cut, &rows, err);
    if (ok) {
        int64_t(*const counts)[WF_SETS + 1] =
            wf_arena_take_array(&arena, (size_t)rows.parts, sizeof *counts);
        wf_rows_sets(r->graph, &p, &r->cut, &rows, counts);
        take_box(r, &rows, counts, b);
    }
    wf_arena_release(&arena);
    return ok;
}

void wf_points_ask(struct wf_points_rank *r, struct wf_loader_options *o)
{
    /* The first ranks have one more, as the layout has it. */
    o->row_first = o->batch - wf_split_point(o->batch, r->parts, r->parts - r->part);
    o->row_end = o->batch - wf_split_point(o->batch, r->parts, r->parts - r->part - 1);
    o->arrange = wf_points_arrange;
    o->user = r;
}

bool wf_points_fit(const struct wf_points_rank *r, const struct wf_cloud_batch *b)
{
    for (int s = 1; s <= r->graph->n_sets; s++)
        if (b->places[s] > r->capacity[s])
            return false;
    return true;
}

bool wf_points_needs(const struct wf_points_rank *r, struct wf_comm *comm,
                     const struct wf_cloud_batch *b, int64_t needs[WF_SETS + 1], struct wf_err *err)
{
    const size_t ranks = (size_t)wf_comm_size(comm), each = WF_SETS + 1;
    int64_t *const all = wf_take_zeroed(ranks * each, sizeof *all);
    for (int s = 1; b && s <= r->graph->n_sets; s++)
        all[(size_t)wf_comm_rank(comm) * each + (size_t)s] = b->places[s];
    const bool ok = wf_comm_sum(comm, all, ranks * each, WF_I64, err);
    for (size_t i = 0; ok && i < ranks * each; i++) {
        const int64_t wanted = all[i] + all[i] * PERCENT_MORE / 100;
        needs[i % each] = wf_max(needs[i % each], wanted * (int64_t)ranks);
    }
    free(all);
    return ok;
}

/* --- into a run --- */

static void put_target(const struct wf_view *view, const struct wf_network *net,
                       const struct wf_cloud_batch *b)
{
    const struct wf_region box = view->box;
    const int64_t channels = wf_region_extent(box, WF_C);
    for (int64_t row = box.lo[WF_N]; row < box.hi[WF_N]; row++) {
        const int64_t i = row - box.lo[WF_N], sample = row - b->first;
        if (net->target->set ? i >= b->here : sample < 0 || sample >= b->rows)
            continue;
        const int32_t label = net->target->set ? b->labels[b->order[i]] : b->row_labels[sample];
        const bool direct = channels == 1 || (net->has_ignore && label == net->ignore);
        for (int64_t c = 0; c < channels; c++)
            wf_view_put(view, row, 0, 0, 0, c, direct ? label : label == c);
    }
}

/* Where samples are cut. */
static void put_box(struct wf_run *run, const struct wf_value *boxes,
                    const struct wf_cloud_batch *b, struct wf_points_hosts *h)
{
    if (!boxes)
        return;
    wf_run_map(run, boxes, &h->boxes);
    if (h->boxes.view.data)
        memcpy(h->boxes.view.data, b->box, sizeof b->box);
    wf_host_put(&h->boxes);
}

void wf_points_put(const struct wf_points_rank *r, struct wf_run *run, const struct wf_network *net,
                   const struct wf_cloud_batch *b, struct wf_points_hosts *h)
{
    const struct wf_value *const coords = wf_graph_find(r->graph, "coords");
    int32_t rows[WF_SETS + 1] = { 0 };
    rows[coords->set] = (int32_t)b->here;
    wf_run_map(run, coords, &h->coords);
    wf_run_map(run, net->image, &h->features);
    if (net->target)
        wf_run_map(run, net->target, &h->target);
    int32_t *const at = h->coords.view.data;
    float *const features = h->features.view.data;
    for (int64_t i = 0; i < b->here; i++) {
        if (at)
            memcpy(at + 4 * i, b->coords + 4 * b->order[i], 4 * sizeof *at);
        if (features)
            memcpy(features + b->channels * i, b->features + b->channels * b->order[i],
                   (size_t)b->channels * sizeof *features);
    }
    if (net->target && h->target.view.data)
        put_target(&h->target.view, net, b);
    wf_run_put(run, net->graph->rows, rows);
    put_box(run, wf_graph_find(r->graph, "boxes"), b, h);
    wf_host_put(&h->coords);
    wf_host_put(&h->features);
    if (net->target)
        wf_host_put(&h->target);
}

void wf_points_hosts_release(struct wf_points_hosts *h)
{
    wf_host_release(&h->coords);
    wf_host_release(&h->features);
    wf_host_release(&h->target);
    wf_host_release(&h->boxes);
}

/* --- a scan of the data --- */

struct scan {
    const struct wf_feed *feed;
    const struct wf_graph *graph;
    unsigned augment;
    int64_t (*counts)[WF_SETS + 1]; /* of each cloud that was looked at */
};

/* The largest of the draws of a cloud, at each level. */
static bool look_at(const struct scan *s, int64_t sample, int64_t counts[WF_SETS + 1],
                    struct wf_err *err)
{
    for (int draw = 0; draw < (s->augment ? DRAWS : 1); draw++) {
        const struct wf_cloud_rule rule = { .voxel = s->feed->settings->data.voxel,
                                            .augment = s->augment,
                                            .seed = s->feed->settings->train.seed,
                                            .epoch = -1 - draw,
                                            .item = sample };
        struct wf_cloud_sample one;
        if (!wf_cloud_sample_read(s->feed->dataset, sample, &rule, &one, err))
            return false;
        struct wf_cloud_batch b = { .n = one.voxels.n, .rows = 1 };
        b.coords = wf_take((size_t)(4 * b.n + 1) * sizeof *b.coords);
        b.order = wf_take((size_t)(b.n + 1) * sizeof *b.order);
        for (int64_t i = 0; i < b.n; i++) {
            b.coords[4 * i] = 0;
            memcpy(b.coords + 4 * i + 1, one.voxels.coords + 3 * i, 3 * sizeof *b.coords);
        }
        struct wf_points_rank any = { .graph = s->graph,
                                      .cut = wf_points_cut(s->graph, DIMS),
                                      .box = -1 };
        any.cut.data = 1;
        const bool ok = wf_points_arrange(&any, &b, err);
        for (int k = 0; k <= WF_SETS; k++)
            counts[k] = wf_max(counts[k], b.places[k]);
        free(b.coords);
        free(b.order);
        wf_cloud_sample_release(&one);
        if (!ok)
            return false;
    }
    return true;
}

static int downwards(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* What the largest clouds have together that one rank can meet in a batch. */
static int64_t largest(const struct scan *s, int64_t used, int set, int64_t rows)
{
    int64_t *const all = wf_take_zeroed((size_t)used + 1, sizeof *all), sum = 0;
    for (int64_t i = 0; i < used; i++)
        all[i] = s->counts[i][set];
    qsort(all, (size_t)used, sizeof *all, downwards);
    for (int64_t i = 0; used > 0 && i < rows; i++)
        sum += all[wf_min(i, used - 1)];
    free(all);
    return sum;
}

bool wf_points_scan(const struct wf_feed *feed, enum wf_part part, const struct wf_graph *g,
                    int64_t capacities[WF_SETS + 1], struct wf_err *err)
{
    const struct wf_points_cut cut = wf_points_cut(g, DIMS);
    const int parts = wf_points_parts(&cut);
    const struct wf_settings *const set = feed->settings;
    const bool trains = part == WF_PART_TRAIN;
    struct scan s = { .feed = feed, .graph = g, .augment = trains ? set->data.augment : 0 };
    struct wf_split split;
    wf_split_init(&split, feed->dataset, set->data.validation, set->train.seed);
    const int64_t *const samples = part == WF_PART_ALL ? NULL : trains ? split.train : split.valid;
    const int64_t n = feed->parts[part], used = wf_min(n, CLOUDS);
    s.counts = wf_take_zeroed((size_t)used + 1, sizeof *s.counts);
    bool ok = true;
    for (int64_t i = 0; ok && i < used; i++) {
        const int64_t at = used < n ? wf_sampler_order(set->train.seed, -3, n, i) : i;
        ok = look_at(&s, samples ? samples[at] : at, s.counts[i], err);
    }
    const int64_t rows = wf_ceil_div(feed->batch, cut.data);
    /* Samples that are cut together are cut elsewhere than each on its own. */
    const bool together = rows > 1 && parts > cut.data;
    const int64_t margin = (s.augment ? PERCENT_AUGMENTED : 0) + (used < n ? PERCENT_UNSEEN : 0) +
                           (together ? PERCENT_MORE : 0);
    for (int k = 1; ok && k <= g->n_sets; k++) {
        const int64_t most = largest(&s, used, k, rows);
        capacities[k] = wf_max(most + most * margin / 100, 1) * parts;
    }
    free(s.counts);
    wf_split_release(&split);
    return ok || wf_err_wrap(err, "counting voxels");
}
