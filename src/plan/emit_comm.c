/*
 * What travels: a rank's messages of a fetch, sums over ranks, and gradients gathered into buckets.
 *
 * A fetch begins behind the item that made its source and ends in front of the first item for which
 * some rank reads the halo. A sum ends in front of its first reader. Gradients that nobody reads are
 * summed in buckets: the sums of a bucket begin when the last of its gradients is made and end at
 * the end of the step. Neighbours in the gradients' store are one sum. Every rank forms the same
 * buckets, because they follow from the program and the layout of the weights alone.
 *
 * No rank waits for another that waits for it: whatever a rank has waited for before it begins the
 * communication of an item was begun by an earlier item. (Where items run in strips: S1 of strips.h.)
 */
#include <stdlib.h>

#include "ops/op.h"
#include "plan/planner.h"

enum { MAX_TAG = 32'000 };

/* --- fetches --- */

static void add_message(struct wf_planner *p, struct wf_exchange *x, int fetch,
                        const struct wf_transfer *t)
{
    struct wf_plan_message *m = &x->messages[x->n_messages++];
    m->is_send = t->from == p->rank;
    m->peer = m->is_send ? t->to : t->from;
    m->tag = fetch % MAX_TAG;
    m->slot = wf_slot_part(&p->slot[p->geo->fetches[fetch].instance], t->box);
    m->bytes = wf_view_bytes(&m->slot.view);
    m->staging = wf_view_is_dense(&m->slot.view)
                     ? -1
                     : wf_planner_add_buffer(p, WF_STORE_ARENA, m->bytes, "message");
    if (!m->is_send)
        p->plan->fetch_bytes += m->bytes;
}

/* The rank's own messages of a fetch; -1 when it has none. */
static int add_exchange(struct wf_planner *p, int fetch)
{
    const struct wf_fetch *f = &p->geo->fetches[fetch];
    const int first = f->first_of[p->rank], count = f->first_of[p->rank + 1] - first;
    if (count == 0)
        return -1;
    struct wf_plan *plan = p->plan;
    WF_GROW(plan->exchanges, p->room_exchanges, (size_t)plan->n_exchanges);
    struct wf_exchange *x = &plan->exchanges[plan->n_exchanges];
    x->value = p->program->instances[f->instance].value;
    x->messages = wf_arena_array(&plan->arena, count, struct wf_plan_message);
    x->n_messages = 0;
    for (int i = 0; i < count; i++)
        add_message(p, x, fetch, &f->transfers[f->of_rank[first + i]]);
    return plan->n_exchanges++;
}

static void end_exchange(struct wf_planner *p, int instance)
{
    if (p->exchange[instance] < 0)
        return;
    wf_planner_add_step(p, WF_STEP_FETCH_END, NULL)->which = p->exchange[instance];
    p->exchange[instance] = -1;
    if (p->arrives[instance] > p->clock)
        p->clock = p->arrives[instance];
}

static void begin_fetch(struct wf_planner *p, const struct wf_node *node, int instance)
{
    const int fetch = p->geo->fetch_of[instance];
    const int exchange = fetch < 0 ? -1 : add_exchange(p, fetch);
    if (exchange < 0)
        return;
    wf_planner_add_step(p, WF_STEP_FETCH_BEGIN, node)->which = exchange;
    p->exchange[instance] = exchange;
    p->arrives[instance] =
        p->clock + wf_cost_exchange(p->plan->global, &p->plan->exchanges[exchange]);
    if (p->options->no_overlap)
        end_exchange(p, instance);
}

/* --- sums --- */

static int begin_sum(struct wf_planner *p, const struct wf_sum *sum, const struct wf_node *node)
{
    struct wf_plan *plan = p->plan;
    WF_GROW(plan->sums, p->room_sums, (size_t)plan->n_sums);
    plan->sums[plan->n_sums] = *sum;
    plan->reduce_bytes += wf_view_bytes(&sum->slot.view);
    wf_planner_add_step(p, WF_STEP_SUM_BEGIN, node)->which = plan->n_sums;
    return plan->n_sums++;
}

static int begin_sum_of(struct wf_planner *p, int instance, int group, const struct wf_node *node)
{
    /* What the group's ranks made together: a halo that a rank also holds comes by a fetch. */
    const struct wf_slot slot =
        wf_slot_part(&p->slot[instance], wf_geometry_have(p->geo, p->rank, instance));
    WF_BUG_ON(!wf_view_is_dense(&slot.view), "a sum that does not lie packed");
    return begin_sum(p,
                     &(struct wf_sum){ .value = p->program->instances[instance].value,
                                       .slot = slot,
                                       .count = (size_t)wf_region_count(slot.view.box),
                                       .group = group },
                     node);
}

static void end_sum(struct wf_planner *p, int instance)
{
    if (instance < 0 || p->sum[instance] < 0)
        return;
    wf_planner_add_step(p, WF_STEP_SUM_END, NULL)->which = p->sum[instance];
    p->sum[instance] = -1;
}

/* --- buckets --- */

static const struct wf_plan_buffer *buffer_of(const struct wf_planner *p, int instance)
{
    return &p->plan->buffers[p->slot[instance].buffer];
}

static int group_of(const struct wf_planner *p, int instance)
{
    return wf_geometry_group(p->geo, p->rank, p->program->instances[instance].maker);
}

/* Only what rounds a weight up to its boundary lies between them; it is zero on every rank. */
static bool are_neighbours(const struct wf_planner *p, int a, int b)
{
    const struct wf_plan_buffer *x = buffer_of(p, a), *y = buffer_of(p, b);
    return group_of(p, a) == group_of(p, b) && (x->offset + x->bytes + 63) / 64 * 64 == y->offset;
}

/* One sum over neighbours of the gradients' store. */
static int begin_sum_over(struct wf_planner *p, const int parts[], int n,
                          const struct wf_node *node)
{
    if (n == 1)
        return begin_sum_of(p, parts[0], group_of(p, parts[0]), node);
    const struct wf_plan_buffer *first = buffer_of(p, parts[0]), *last = buffer_of(p, parts[n - 1]);
    const size_t offset = first->offset, bytes = last->offset + last->bytes - offset;
    const int64_t count = (int64_t)(bytes / sizeof(float));
    struct wf_sum sum = { .value = p->program->instances[parts[0]].value,
                          .parts = wf_arena_array(&p->plan->arena, n, int),
                          .n_parts = n,
                          .count = (size_t)count,
                          .group = group_of(p, parts[0]) };
    for (int i = 0; i < n; i++)
        sum.parts[i] = p->slot[parts[i]].buffer;
    sum.slot.view = wf_view_dense(NULL, WF_F32, wf_shape_region(WF_SHAPE(1, 1, 1, 1, count)));
    sum.slot.buffer = wf_planner_add_buffer(p, WF_STORE_GRAD, bytes, "bucket");
    p->plan->buffers[sum.slot.buffer].offset = offset;
    return begin_sum(p, &sum, node);
}

static void end_bucket(struct wf_planner *p, int bucket)
{
    struct wf_bucket_sums *const b = &p->buckets[bucket];
    for (int i = 0; i < b->n; i++)
        wf_planner_add_step(p, WF_STEP_SUM_END, NULL)->which = b->sums[i];
    b->n = 0;
}

static void begin_bucket(struct wf_planner *p, int bucket, const struct wf_node *node)
{
    const struct wf_bucket *const b = &p->plan->global->buckets[bucket];
    struct wf_bucket_sums *const sums = &p->buckets[bucket];
    sums->sums = wf_arena_array(&p->plan->arena, b->n_parts, int);
    for (int i = 0, n; i < b->n_parts; i += n) {
        n = 1;
        while (i + n < b->n_parts && are_neighbours(p, b->parts[i + n - 1], b->parts[i + n]))
            n++;
        sums->sums[sums->n++] = begin_sum_over(p, b->parts + i, n, node);
    }
    if (p->options->no_overlap)
        end_bucket(p, bucket);
}

/* --- around an item --- */

void wf_planner_comm_init(struct wf_planner *p, struct wf_arena *work)
{
    const int n = p->program->n_instances;
    p->exchange = wf_arena_array(work, n, int);
    p->sum = wf_arena_array(work, n, int);
    p->arrives = wf_arena_array(work, n, double);
    for (int i = 0; i < n; i++)
        p->exchange[i] = p->sum[i] = -1;
    p->buckets = wf_arena_array(work, p->plan->global->n_buckets + 1, struct wf_bucket_sums);
}

void wf_planner_begin_after(struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    const int group = wf_geometry_group(p->geo, p->rank, item);
    for (int o = 0; o < it->node->n_out; o++) {
        const int out = it->out[o];
        const int bucket = p->program->instances[out].bucket;
        if (bucket >= 0 && group >= 0) {
            if (p->plan->global->buckets[bucket].last == item && !p->buckets[bucket].sums)
                begin_bucket(p, bucket, it->node);
        } else if (group >= 0 && p->slot[out].buffer >= 0) {
            p->sum[out] = begin_sum_of(p, out, group, it->node);
            if (p->geo->fetch_of[out] >= 0 || p->options->no_overlap)
                end_sum(p, out);
        }
        begin_fetch(p, it->node, out);
    }
}

void wf_planner_end_sums_before(struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    for (int k = 0; k < it->node->n_in; k++)
        end_sum(p, it->in[k]);
}

void wf_planner_end_before(struct wf_planner *p, int item)
{
    for (int f = p->geo->first_before[item]; f >= 0; f = p->geo->fetches[f].next_before)
        end_exchange(p, p->geo->fetches[f].instance);
    wf_planner_end_sums_before(p, item);
}

void wf_planner_end_all(struct wf_planner *p)
{
    for (int f = p->geo->first_before[p->program->n_items]; f >= 0;
         f = p->geo->fetches[f].next_before)
        end_exchange(p, p->geo->fetches[f].instance);
    for (int b = 0; b < p->plan->global->n_buckets; b++)
        end_bucket(p, b);
    for (int i = 0; i < p->program->n_instances; i++)
        end_sum(p, i);
}
