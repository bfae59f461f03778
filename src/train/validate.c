#include "train/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Per sample and class, in this order: hits, truth or prediction (their sum less the hits). A
 * classifier has one pair per sample: how often it was seen, and by how many millionths it was wrong. */
enum { HIT, UNION, TALLIES };
enum { SEEN, MARGIN, MARGIN_UNITS = 1'000'000 };

struct wf_validator {
    struct wf_validator_options options;
    struct wf_plan *plan;
    struct wf_run *run;
    struct wf_host image, target, logits;
    struct wf_points_hosts points;
    const struct wf_cloud_batch *batch; /* of point clouds: that was loaded */
    int64_t needs[WF_SETS + 1];         /* rows; 0: they were enough */
    struct wf_metrics metrics, item;    /* of all; of one crop */
    int64_t *tallies;                   /* [sample][kinds][TALLIES] */
    int64_t kinds;                      /* the classes, or one */
    double *losses;                     /* per batch */
    int64_t *weights;                   /* per batch: what counted in it */
    int64_t batches;
    double loss;
    bool failed;
    struct wf_validator *next; /* of another domain */
};

static bool is_dense(const struct wf_network *net)
{
    return net->logits->set || wf_shape_count(net->logits->shape) / net->logits->shape.at[WF_C] >
                                   net->logits->shape.at[WF_N];
}

/* --- making --- */

/* Collective. Ranks without a loader go through as many batches. */
static bool count_batches(struct wf_validator *v, struct wf_err *err)
{
    if (v->options.whole) {
        v->batches = wf_loader_samples(v->options.whole->loader);
        return true;
    }
    const bool loads = v->options.loader != NULL;
    int64_t sums[] = { loads, loads ? wf_loader_batches(v->options.loader) : 0 };
    if (!wf_comm_sum(v->options.comm, sums, 2, WF_I64, err))
        return false;
    WF_BUG_ON(sums[0] == 0, "nobody validates domain %d", v->options.domain);
    v->batches = sums[1] / sums[0];
    return true;
}

/* Collective. */
static bool make_run(struct wf_validator *v, struct wf_err *err)
{
    const struct wf_validator_options *const o = &v->options;
    if (o->whole)
        return true;
    v->plan = wf_plan_new_on(o->global, wf_comm_rank(o->comm), o->context, err);
    if (!wf_comm_agree(o->comm, v->plan != NULL, err))
        return false;
    v->run = o->lender ? wf_run_new_beside(o->lender, v->plan, false, err)
                       : wf_run_new(v->plan, o->comm, o->seed, err);
    return v->run != NULL;
}

struct wf_validator *wf_validator_new(const struct wf_validator_options *options,
                                      struct wf_err *err)
{
    struct wf_validator *const v = wf_take_zeroed(1, sizeof *v);
    v->options = *options;
    const int classes = wf_metrics_classes(options->network->logits->shape.at[WF_C]);
    const bool counted = count_batches(v, err);
    const size_t batches = (size_t)v->batches;
    wf_metrics_init(&v->metrics, classes);
    wf_metrics_init(&v->item, classes);
    v->metrics.per_image = !is_dense(options->network);
    v->kinds = v->metrics.per_image ? 1 : classes;
    v->tallies =
        wf_take_zeroed((size_t)(options->samples * v->kinds * TALLIES) + 1, sizeof *v->tallies);
    v->losses = wf_take_zeroed(batches + 1, sizeof *v->losses);
    v->weights = wf_take_zeroed(batches + 1, sizeof *v->weights);
    if (counted && make_run(v, err))
        return v;
    (void)wf_err_wrap(err, "validation");
    wf_validator_free(v);
    return NULL;
}

static void free_one(struct wf_validator *v)
{
    wf_host_release(&v->image);
    wf_host_release(&v->target);
    wf_host_release(&v->logits);
    wf_points_hosts_release(&v->points);
    wf_run_free(v->run);
    wf_plan_free(v->plan);
    wf_metrics_release(&v->metrics);
    wf_metrics_release(&v->item);
    free(v->tallies);
    free(v->losses);
    free(v->weights);
    free(v);
}

void wf_validator_free(struct wf_validator *v)
{
    while (v) {
        struct wf_validator *const next = v->next;
        free_one(v);
        v = next;
    }
}

void wf_validator_append(struct wf_validator *v, struct wf_validator *last)
{
    while (v->next)
        v = v->next;
    v->next = last;
}

const struct wf_validator *wf_validator_next(const struct wf_validator *v)
{
    return v->next;
}

struct wf_run *wf_validator_own_run(const struct wf_validator *v)
{
    return v->run;
}

struct wf_whole *wf_validator_whole(const struct wf_validator *v)
{
    return v->options.whole;
}

int64_t wf_validator_batches(const struct wf_validator *v)
{
    return v->batches;
}

/* All weights and states by name; both runs share their device, and a rank that uses one here has it there. */
static void copy_weights(struct wf_run *to, const struct wf_run *from)
{
    const struct wf_graph *const g = wf_run_plan(to)->global->graph;
    const struct wf_graph *const other = wf_run_plan(from)->global->graph;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        if (v->kind != WF_PARAM && v->kind != WF_STATE)
            continue;
        const struct wf_value *const w = wf_graph_find(other, v->name);
        WF_BUG_ON(wf_run_context(to) != wf_run_context(from), "two devices");
        WF_BUG_ON(!w || !wf_shape_equal(w->shape, v->shape), "'%s' is not in both", v->name);
        const struct wf_view dst = wf_run_view(to, v), src = wf_run_view(from, w);
        WF_BUG_ON(dst.data && !src.data, "'%s' is not here", v->name);
        if (dst.data)
            wf_run_device(to)->memory.copy(wf_run_context(to), &dst, &src);
    }
}

bool wf_run_counts(const struct wf_run *run, const struct wf_value *value)
{
    const struct wf_plan *const plan = wf_run_plan(run);
    return wf_layout_is_first(&plan->global->geometry.layout, value, plan->rank);
}

/* --- one batch --- */

/* Where the row's pixels count, in the coordinates of `value`, which may be a prediction per image. */
static struct wf_region row_counts(const struct wf_validator *v, const struct wf_value *value,
                                   int64_t batch, int64_t row)
{
    const struct wf_value *const image = v->options.network->image;
    struct wf_region r = wf_loader_item(v->options.loader, 0, batch, row).counts;
    r.lo[WF_N] = row;
    r.hi[WF_N] = row + 1;
    r.lo[WF_C] = 0;
    r.hi[WF_C] = 1;
    if (wf_region_is_empty(r))
        return r;
    for (int axis = WF_D; axis <= WF_W; axis++)
        if (value->shape.at[axis] != image->shape.at[axis]) {
            r.lo[axis] = 0;
            r.hi[axis] = value->shape.at[axis];
        }
    return r;
}

static bool is_inside(const struct wf_region *r, int64_t d, int64_t h, int64_t w)
{
    return d >= r->lo[WF_D] && d < r->hi[WF_D] && h >= r->lo[WF_H] && h < r->hi[WF_H] &&
           w >= r->lo[WF_W] && w < r->hi[WF_W];
}

/* Labels of the row outside `counts` become `ignore`. */
static void ignore_rest(const struct wf_view *target, int64_t row, struct wf_region counts,
                        int32_t ignore)
{
    struct wf_region box = target->box;
    box.lo[WF_N] = row;
    box.hi[WF_N] = row + 1;
    const bool none = wf_region_is_empty(counts);
    if (wf_region_is_empty(box) || (!none && wf_region_contains(counts, box)))
        return;
    int32_t *const labels = target->data;
    for (int64_t d = box.lo[WF_D]; d < box.hi[WF_D]; d++)
        for (int64_t h = box.lo[WF_H]; h < box.hi[WF_H]; h++)
            for (int64_t w = box.lo[WF_W]; w < box.hi[WF_W]; w++)
                if (none || !is_inside(&counts, d, h, w))
                    labels[wf_view_offset(target, row, d, h, w, 0)] = ignore;
}

/* The loader's next batch as it is. */
static bool take(struct wf_validator *v, struct wf_err *err)
{
    wf_run_map(v->run, v->options.network->image, &v->image);
    wf_run_map(v->run, v->options.network->target, &v->target);
    return !v->options.loader ||
           wf_loader_next(v->options.loader, &v->image.view, &v->target.view, err);
}

static void send(struct wf_validator *v)
{
    wf_host_put(&v->image);
    wf_host_put(&v->target);
}

/* Collective. Of point clouds. */
static bool load_points(struct wf_validator *v, struct wf_err *err)
{
    const struct wf_validator_options *const o = &v->options;
    bool ok = wf_loader_next_points(o->loader, &v->batch, err);
    const bool fits = !ok || wf_points_fit(o->points, v->batch);
    if (ok && fits)
        wf_points_put(o->points, v->run, o->network, v->batch, &v->points);
    int64_t full = !fits;
    if (!wf_comm_agree(o->comm, ok, err) || !wf_comm_sum(o->comm, &full, 1, WF_I64, err))
        return false;
    if (full == 0)
        return true;
    ok = wf_points_needs(o->points, o->comm, v->batch, v->needs, err);
    return ok && wf_err_set(err, WF_ERR_STOPPED, "a batch has more points than was planned for");
}

static bool load(struct wf_validator *v, int64_t batch, struct wf_err *err)
{
    const struct wf_network *const net = v->options.network;
    if (v->options.points)
        return load_points(v, err);
    const bool ok = take(v, err);
    const struct wf_view target = v->target.view;
    if (ok && target.data && target.dtype == WF_I32 && net->has_ignore)
        for (int64_t row = target.box.lo[WF_N]; row < target.box.hi[WF_N]; row++)
            ignore_rest(&target, row, row_counts(v, net->target, batch, row), net->ignore);
    send(v);
    return wf_comm_agree(v->options.comm, ok, err);
}

static void tally(struct wf_validator *v, int64_t sample)
{
    const int n = v->item.classes;
    WF_BUG_ON(sample < 0 || sample >= v->options.samples, "sample %lld", (long long)sample);
    int64_t *const at = v->tallies + sample * n * TALLIES;
    for (int t = 0; t < n; t++)
        for (int p = 0; p < n; p++) {
            const int64_t count = v->item.confusion[(int64_t)t * n + p];
            if (t == p) {
                at[t * TALLIES + HIT] += count;
                at[t * TALLIES + UNION] += count;
            } else {
                at[t * TALLIES + UNION] += count;
                at[p * TALLIES + UNION] += count;
            }
        }
}

/* One image of a classifier; `at` is its row. */
static void count_image(struct wf_validator *v, int64_t batch, int64_t row, struct wf_region part)
{
    const struct wf_network *const net = v->options.network;
    const struct wf_view *const logits = &v->logits.view;
    const struct wf_view *const target =
        v->options.points ? &v->points.target.view : &v->target.view;
    const int64_t at[WF_AXES] = { row, part.lo[WF_D], part.lo[WF_H], part.lo[WF_W], 0 };
    const int64_t truth = wf_metrics_truth(target, at);
    const int64_t sample = wf_loader_item(v->options.loader, 0, batch, row).draw.sample;
    WF_BUG_ON(sample < 0 || sample >= v->options.samples, "sample %lld", (long long)sample);
    if (truth < 0 || truth >= v->metrics.classes || (net->has_ignore && truth == net->ignore))
        return;
    wf_metrics_count(&v->metrics, logits, target, part, NULL);
    v->weights[batch]++;
    const double margin = wf_metrics_margin(logits, at, truth) * MARGIN_UNITS;
    v->tallies[sample * TALLIES + SEEN]++;
    v->tallies[sample * TALLIES + MARGIN] += (int64_t)fmin(fmax(margin, -1e15), 1e15);
}

/* Every point of the clouds has the prediction of its voxel. */
static void count_points(struct wf_validator *v, int64_t number)
{
    const struct wf_network *const net = v->options.network;
    const struct wf_cloud_batch *const b = v->batch;
    const struct wf_view *const logits = &v->logits.view;
    int32_t *const said = wf_take((size_t)(b->n + 1) * sizeof *said);
    for (int64_t i = 0; i < b->n; i++)
        said[i] = -1; /* another rank has it */
    for (int64_t i = 0; i < b->here; i++) {
        const int64_t at[WF_AXES] = { logits->box.lo[WF_N] + i };
        said[b->order[i]] = wf_metrics_said(logits, at);
        v->weights[number] += !net->has_ignore || b->labels[b->order[i]] != net->ignore;
    }
    for (int64_t row = 0; row < b->rows; row++) {
        wf_metrics_clear(&v->item);
        for (int64_t p = b->row_points[row]; p < b->row_points[row + 1]; p++)
            if (said[b->point_voxels[p]] >= 0 &&
                (!net->has_ignore || b->point_labels[p] != net->ignore))
                wf_metrics_add_one(&v->item, b->point_labels[p], said[b->point_voxels[p]]);
        if (b->row_samples[row] < 0)
            continue;
        wf_metrics_add(&v->metrics, &v->item);
        tally(v, b->row_samples[row]);
    }
    free(said);
}

static bool count(struct wf_validator *v, int64_t batch, struct wf_err *err)
{
    const struct wf_network *const net = v->options.network;
    if (!wf_run_get_owned(v->run, net->logits, &v->logits, err))
        return false;
    const struct wf_view logits = v->logits.view;
    const struct wf_view target = v->options.points ? v->points.target.view : v->target.view;
    if (!logits.data || !target.data || !wf_run_counts(v->run, net->logits))
        return true;
    if (net->logits->set && net->has_classes) {
        count_points(v, batch);
        return true;
    }
    for (int64_t row = logits.box.lo[WF_N]; row < logits.box.hi[WF_N]; row++) {
        struct wf_region part = row_counts(v, net->logits, batch, row);
        struct wf_region owned = logits.box;
        owned.lo[WF_C] = 0;
        owned.hi[WF_C] = 1;
        part = wf_region_intersect(part, owned);
        if (wf_region_is_empty(part))
            continue;
        if (!net->has_classes) {
            v->weights[batch] += wf_region_count(part);
            continue;
        }
        if (v->metrics.per_image) {
            count_image(v, batch, row, part);
            continue;
        }
        wf_metrics_clear(&v->item);
        wf_metrics_count(&v->item, &logits, &target, part, net->has_ignore ? &net->ignore : NULL);
        v->weights[batch] += wf_metrics_total(&v->item);
        wf_metrics_add(&v->metrics, &v->item);
        tally(v, wf_loader_item(v->options.loader, 0, batch, row).draw.sample);
    }
    return true;
}

/* --- all of them --- */

/* Collective. */
static bool must_stop(const struct wf_validator *v, bool *stop, struct wf_err *err)
{
    int64_t requested = v->options.stops && v->options.stops(v->options.user);
    if (v->options.stops && !wf_comm_sum(v->options.comm, &requested, 1, WF_I64, err))
        return false;
    *stop = requested > 0;
    return true;
}

static bool go_over_batch(struct wf_validator *v, int64_t b, struct wf_err *err)
{
    if (!load(v, b, err) || !wf_run_step(v->run, err))
        return false;
    const bool ok = wf_run_get_number(v->run, v->options.network->loss, 0, &v->losses[b], err) &&
                    count(v, b, err);
    if (!ok)
        wf_comm_abort(v->options.comm, err); /* the others go on to the next batch */
    return ok;
}

/* What is counted of all ranks at once is rank 0's. */
static bool go_over_image(struct wf_validator *v, int64_t b, struct wf_err *err)
{
    struct wf_whole_score score;
    const int64_t sample = wf_loader_sample(v->options.whole->loader, b);
    if (!wf_whole_score(v->options.whole, sample, &v->item, &score, err))
        return false;
    v->losses[b] = score.loss;
    if (wf_comm_rank(v->options.comm) != 0)
        return true;
    v->weights[b] = score.weight;
    wf_metrics_add(&v->metrics, &v->item);
    if (v->options.network->has_classes)
        tally(v, sample);
    return true;
}

static bool go_over(struct wf_validator *v, struct wf_err *err)
{
    if (v->options.loader)
        wf_loader_seek(v->options.loader, 0, 0);
    for (int64_t b = 0; b < v->batches; b++) {
        bool stop = false;
        if (!must_stop(v, &stop, err))
            return false;
        if (stop)
            return wf_err_set(err, WF_ERR_STOPPED, "stopped during validation");
        if (!(v->options.whole ? go_over_image : go_over_batch)(v, b, err))
            return false;
    }
    return true;
}

static bool run_one(struct wf_validator *v, const struct wf_run *source, struct wf_err *err)
{
    const size_t batches = (size_t)v->batches;
    const size_t tallies = (size_t)(v->options.samples * v->kinds * TALLIES);
    wf_metrics_clear(&v->metrics);
    memset(v->tallies, 0, tallies * sizeof *v->tallies);
    memset(v->weights, 0, batches * sizeof *v->weights);
    memset(v->needs, 0, sizeof v->needs);
    if (source && !v->options.lender)
        copy_weights(v->run, source);
    if (!go_over(v, err) || !wf_metrics_sum(&v->metrics, v->options.comm, err) ||
        !wf_comm_sum(v->options.comm, v->tallies, tallies, WF_I64, err) ||
        !wf_comm_sum(v->options.comm, v->weights, batches, WF_I64, err))
        return wf_err_wrap(err, "validation");
    double sum = 0, weight = 0;
    for (size_t b = 0; b < batches; b++) {
        if (v->weights[b] == 0) /* nothing but ignored labels: its loss says nothing */
            continue;
        sum += v->losses[b] * (double)v->weights[b];
        weight += (double)v->weights[b];
    }
    v->loss = weight > 0 ? sum / weight : (double)NAN;
    v->failed = weight > 0 && !isfinite(v->loss);
    return true;
}

bool wf_validator_run(struct wf_validator *v, const struct wf_run *source, struct wf_err *err)
{
    for (; v; v = v->next)
        if (!run_one(v, source, err))
            return v->options.domain > 0 && wf_err_wrap(err, "domain %d", v->options.domain);
    return true;
}

double wf_validator_loss(const struct wf_validator *v)
{
    return v->loss;
}

bool wf_validator_is_full(const struct wf_validator *v, int64_t needs[WF_SETS + 1])
{
    if (v->needs[1] == 0)
        return false;
    memcpy(needs, v->needs, sizeof v->needs);
    return true;
}

bool wf_validator_failed(const struct wf_validator *v)
{
    return v->failed;
}

const struct wf_metrics *wf_validator_metrics(const struct wf_validator *v)
{
    return &v->metrics;
}

double wf_validator_metric(const struct wf_validator *v)
{
    if (!v->options.network->has_classes)
        return -v->loss;
    struct wf_arena arena = { 0 };
    const struct wf_scores s = wf_scores(&arena, &v->metrics);
    const double metric = s.per_image ? s.accuracy : s.mean_iou;
    wf_arena_release(&arena);
    return metric;
}

struct wf_domain_scores *wf_validator_domains(struct wf_arena *arena, const struct wf_validator *v,
                                              int *count)
{
    *count = 0;
    for (const struct wf_validator *one = v; one; one = one->next)
        ++*count;
    struct wf_domain_scores *const all = wf_arena_array(arena, *count, struct wf_domain_scores);
    for (int i = 0; i < *count; i++, v = v->next)
        all[i] =
            (struct wf_domain_scores){ v->options.domain, v->loss, wf_scores(arena, &v->metrics) };
    return all;
}

/* --- samples --- */

static int by_score(const void *a, const void *b)
{
    const struct wf_sample_score *const x = a, *const y = b;
    if (x->mean_iou != y->mean_iou)
        return x->mean_iou < y->mean_iou ? -1 : 1;
    if (x->margin != y->margin)
        return x->margin > y->margin ? -1 : 1;
    return (x->sample > y->sample) - (x->sample < y->sample);
}

const struct wf_sample_score *wf_validator_worst(struct wf_arena *arena,
                                                 const struct wf_validator *v, int64_t *n)
{
    struct wf_sample_score *const list =
        wf_arena_array(arena, v->options.samples + 1, struct wf_sample_score);
    *n = 0;
    for (int64_t s = 0; s < v->options.samples; s++) {
        const int64_t *const at = v->tallies + s * v->kinds * TALLIES;
        if (v->metrics.per_image) {
            const double margin = (double)at[MARGIN] / MARGIN_UNITS;
            if (at[SEEN] > 0)
                list[(*n)++] = (struct wf_sample_score){ s, margin < 0, margin };
            continue;
        }
        double sum = 0;
        int there = 0;
        for (int c = 0; c < v->metrics.classes; c++)
            if (at[c * TALLIES + UNION] > 0) {
                sum += (double)at[c * TALLIES + HIT] / (double)at[c * TALLIES + UNION];
                there++;
            }
        if (there > 0)
            list[(*n)++] = (struct wf_sample_score){ s, sum / there, 0 };
    }
    if (*n > 1)
        qsort(list, (size_t)*n, sizeof *list, by_score);
    return list;
}

bool wf_validator_show(struct wf_validator *v, int64_t sample, int64_t *row, struct wf_err *err)
{
    const struct wf_network *const net = v->options.network;
    const int64_t rows = net->graph->rows ? net->graph->samples : net->image->shape.at[WF_N];
    for (int64_t b = 0; b < v->batches; b++)
        for (int64_t r = 0; r < rows; r++) {
            const struct wf_loader_item item = wf_loader_item(v->options.loader, 0, b, r);
            if (item.draw.sample != sample)
                continue;
            *row = r;
            wf_loader_seek(v->options.loader, 0, b);
            if (v->options.points)
                return load_points(v, err) && wf_run_step(v->run, err) &&
                       wf_run_get_owned(v->run, v->options.network->logits, &v->logits, err);
            const bool ok = take(v, err);
            send(v);
            return wf_comm_agree(v->options.comm, ok, err) && wf_run_step(v->run, err);
        }
    return wf_err_set(err, WF_ERR_FAILED, "sample %lld is not in the validation part",
                      (long long)sample);
}

struct wf_shown_points wf_validator_points(const struct wf_validator *v)
{
    return (struct wf_shown_points){ v->batch, &v->logits.view };
}
