/*
 * What travels: a rank's messages of a fetch, sums over ranks, and gradients gathered into buckets.
 *
 * A sum stands behind the item that made its parts, a fetch behind the item, or the sum, that made its
 * source. Gradients that nobody reads are summed in buckets, behind the item that makes the last of a
 * bucket; neighbours in the gradients' store are one sum. Every rank forms the same buckets, because
 * they follow from the program and the layout of the weights alone.
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
    x->instance = f->instance;
    x->messages = wf_arena_array(&plan->arena, count, struct wf_plan_message);
    x->n_messages = 0;
    for (int i = 0; i < count; i++)
        add_message(p, x, fetch, &f->transfers[f->of_rank[first + i]]);
    return plan->n_exchanges++;
}

static void fetch(struct wf_planner *p, const struct wf_node *node, int instance)
{
    const int fetch = p->geo->fetch_of[instance];
    const int exchange = fetch < 0 ? -1 : add_exchange(p, fetch);
    if (exchange < 0)
        return;
    wf_planner_add_step(p, WF_STEP_FETCH_BEGIN, node)->which = exchange;
    wf_planner_add_step(p, WF_STEP_FETCH_END, NULL)->which = exchange;
}

/* --- sums --- */

static void begin_sum(struct wf_planner *p, const struct wf_sum *sum, const struct wf_node *node)
{
    struct wf_plan *plan = p->plan;
    WF_GROW(plan->sums, p->room_sums, (size_t)plan->n_sums);
    plan->sums[plan->n_sums] = *sum;
    plan->reduce_bytes += wf_view_bytes(&sum->slot.view);
    wf_planner_add_step(p, WF_STEP_SUM_BEGIN, node)->which = plan->n_sums++;
}

static void begin_sum_of(struct wf_planner *p, int instance, int group, const struct wf_node *node)
{
    /* What the group's ranks made together: a halo that a rank also holds comes by a fetch. */
    const struct wf_slot slot =
        wf_slot_part(&p->slot[instance], wf_geometry_have(p->geo, p->rank, instance));
    WF_BUG_ON(!wf_view_is_dense(&slot.view), "a sum that does not lie packed");
    begin_sum(p,
              &(struct wf_sum){ .value = p->program->instances[instance].value,
                                .instance = instance,
                                .slot = slot,
                                .count = (size_t)wf_region_count(slot.view.box),
                                .group = group },
              node);
}

/* The newest ones, from sum number `first` on. */
static void end_sums(struct wf_planner *p, int first)
{
    for (int i = first; i < p->plan->n_sums; i++)
        wf_planner_add_step(p, WF_STEP_SUM_END, NULL)->which = i;
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
static void begin_sum_over(struct wf_planner *p, const int parts[], int n,
                           const struct wf_node *node)
{
    if (n == 1) {
        begin_sum_of(p, parts[0], group_of(p, parts[0]), node);
        return;
    }
    const struct wf_plan_buffer *first = buffer_of(p, parts[0]), *last = buffer_of(p, parts[n - 1]);
    const size_t offset = first->offset, bytes = last->offset + last->bytes - offset;
    const int64_t count = (int64_t)(bytes / sizeof(float));
    struct wf_sum sum = { .value = p->program->instances[parts[0]].value,
                          .instance = parts[0],
                          .parts = wf_arena_array(&p->plan->arena, n, int),
                          .n_parts = n,
                          .count = (size_t)count,
                          .group = group_of(p, parts[0]) };
    for (int i = 0; i < n; i++)
        sum.parts[i] = p->slot[parts[i]].buffer;
    sum.slot.view = wf_view_dense(NULL, WF_F32, wf_shape_region(WF_SHAPE(1, 1, 1, 1, count)));
    sum.slot.buffer = wf_planner_add_buffer(p, WF_STORE_GRAD, bytes, "bucket");
    p->plan->buffers[sum.slot.buffer].offset = offset;
    begin_sum(p, &sum, node);
}

static void sum_bucket(struct wf_planner *p, const struct wf_bucket *b, const struct wf_node *node)
{
    const int first = p->plan->n_sums;
    for (int i = 0, n; i < b->n_parts; i += n) {
        n = 1;
        while (i + n < b->n_parts && are_neighbours(p, b->parts[i + n - 1], b->parts[i + n]))
            n++;
        begin_sum_over(p, b->parts + i, n, node);
    }
    end_sums(p, first);
}

/* --- behind an item --- */

/* The item makes the last gradients of the output's bucket, of which this is its first. */
static bool completes_bucket(const struct wf_planner *p, int item, int output)
{
    const struct wf_item *const it = &p->program->items[item];
    const int bucket = p->program->instances[it->out[output]].bucket;
    for (int o = 0; o < output; o++)
        if (p->program->instances[it->out[o]].bucket == bucket)
            return false;
    return p->plan->global->buckets[bucket].last == item;
}

void wf_planner_emit_comm(struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    const int group = wf_geometry_group(p->geo, p->rank, item);
    for (int o = 0; o < it->node->n_out; o++) {
        const int out = it->out[o];
        const int bucket = p->program->instances[out].bucket, first = p->plan->n_sums;
        if (bucket >= 0 && group >= 0) {
            if (completes_bucket(p, item, o))
                sum_bucket(p, &p->plan->global->buckets[bucket], it->node);
        } else if (group >= 0 && p->slot[out].buffer >= 0) {
            begin_sum_of(p, out, group, it->node);
            end_sums(p, first);
        }
        fetch(p, it->node, out);
    }
}

/* All of it begins before any of it ends. */
void wf_planner_emit_transfers(struct wf_planner *p, int segment)
{
    const int first = p->plan->n_exchanges;
    for (int f = p->geo->first_into[segment]; f >= 0; f = p->geo->fetches[f].next_into) {
        const int exchange = add_exchange(p, f);
        if (exchange >= 0)
            wf_planner_add_step(p, WF_STEP_FETCH_BEGIN, NULL)->which = exchange;
    }
    for (int x = first; x < p->plan->n_exchanges; x++)
        wf_planner_add_step(p, WF_STEP_FETCH_END, NULL)->which = x;
}
