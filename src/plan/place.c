/*
 * Which instances share memory.
 *
 * Four ways, each an instance that lies inside another one's buffer at a shift:
 *   - a concatenation's input is made straight into its slice of the result;
 *   - a slice is a window on what it was cut from;
 *   - a result takes the place of an input that nobody reads afterwards;
 *   - the next of a state that nobody reads afterwards is made over it.
 * What shares no memory gets a buffer of its own, packed, over its box: own part and halo.
 */
#include <string.h>

#include "ops/op.h"
#include "plan/strips.h"

static struct wf_region box_of(const struct wf_planner *p, int instance)
{
    return wf_geometry_box(p->geo, p->rank, instance);
}

/* Nothing of the box has to come from elsewhere. */
static bool is_all_made_here(const struct wf_planner *p, int instance)
{
    return wf_region_equal(box_of(p, instance), wf_geometry_have(p->geo, p->rank, instance)) &&
           !p->geo->is_fetched[instance];
}

static bool is_dense_kernel(const struct wf_planner *p, int item)
{
    return (p->program->items[item].kernel->flags & WF_KERNEL_DENSE) != 0;
}

static bool has_dense_reader(const struct wf_planner *p, int instance)
{
    const struct wf_instance *in = &p->program->instances[instance];
    for (int item = in->maker + 1; item <= in->last_use; item++)
        for (int k = 0; k < p->program->items[item].node->n_in; k++)
            if (p->program->items[item].in[k] == instance && is_dense_kernel(p, item))
                return true;
    return false;
}

static bool shifted_box_fits(const struct wf_planner *p, int inner, int outer,
                             const int64_t shift[WF_AXES])
{
    return wf_region_contains(box_of(p, outer), wf_region_shift(box_of(p, inner), shift));
}

/* Strips (strips.h): what is strip-local shares with strip-local instances of the same strips only, where it fits
 * in each of them. */
static bool shifted_strips_fit(const struct wf_planner *p, int inner, int outer,
                               const int64_t shift[WF_AXES], bool exactly)
{
    const struct wf_instance *const a = &p->program->instances[inner];
    const struct wf_instance *const b = &p->program->instances[outer];
    if (!a->is_strip_local || !b->is_strip_local)
        return a->is_strip_local == b->is_strip_local;
    const struct wf_strips *const s = wf_strips_of(p->plan->global, a->maker);
    if (wf_strips_of(p->plan->global, b->maker) != s)
        return false;
    for (int at = 0; at < s->count; at++) {
        const struct wf_region in = wf_region_shift(wf_planner_strip_box(p, inner, at), shift);
        const struct wf_region out = wf_planner_strip_box(p, outer, at);
        if (exactly ? !wf_region_equal(in, out) : !wf_region_contains(out, in))
            return false;
    }
    return true;
}

static bool reads(const struct wf_planner *p, int item, int instance)
{
    const struct wf_item *const it = &p->program->items[item];
    for (int k = 0; k < it->node->n_in; k++) {
        const int in = it->in[k];
        if (in == instance || (in >= 0 && p->program->instances[in].is_fused &&
                               reads(p, p->program->instances[in].maker, instance)))
            return true;
    }
    return false;
}

/* A strip of the item would overwrite what the next one still reads. */
static bool is_read_beside(const struct wf_planner *p, int instance, int item)
{
    const struct wf_strips *const s = wf_strips_of(p->plan->global, item);
    if (!s || p->program->instances[instance].is_strip_local)
        return false;
    for (int i = s->first; i <= s->last; i++)
        if (i != item && !p->program->instances[p->program->items[i].out[0]].is_fused &&
            reads(p, i, instance))
            return true;
    return false;
}

static void share(struct wf_planner *p, int inner, int outer, const int64_t shift[WF_AXES])
{
    p->root[inner] = outer;
    p->n_inside[outer]++;
    memcpy(p->shift[inner], shift, sizeof p->shift[inner]);
}

/* A slice becomes a window when all who read it can read a window. */
static void place_part(struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    int64_t shift[WF_AXES] = { 0 };
    const int out = it->out[0], in = it->in[0];
    if (!it->node->op->part || !it->node->op->part(it->node, shift))
        return;
    if (p->program->instances[out].is_fused || p->program->instances[out].keep ||
        !is_all_made_here(p, out) || has_dense_reader(p, out) ||
        wf_region_is_empty(box_of(p, out)) || !shifted_box_fits(p, out, in, shift) ||
        !shifted_strips_fit(p, out, in, shift, false))
        return;
    share(p, out, in, shift);
}

/* The inputs cover the result without gaps: it can be put together by placing alone. */
static bool is_covered_by_inputs(const struct wf_node *n)
{
    int64_t count = 0, shift[WF_AXES];
    for (int k = 0; k < n->n_in; k++) {
        if (!n->op->place || !n->op->place(n, k, shift))
            return false;
        count += wf_shape_count(n->in[k]->shape);
    }
    return n->n_in > 0 && count == wf_shape_count(n->out[0]->shape);
}

/* Strips of a sum are added up where they lie packed. */
static bool is_added_up(const struct wf_planner *p, int item)
{
    return p->program->items[item].strips >= 0 && wf_op_sums_over(p->program->items[item].node);
}

/* Nobody else reads it, or others do so earlier and can read a slice. The result has its memory from then on: in a step of
 * training that would be when most is live. */
static bool ends_in_slice(const struct wf_planner *p, int item, int in)
{
    const struct wf_instance *const instance = &p->program->instances[in];
    const struct wf_item *const it = &p->program->items[item];
    int times = 0;
    for (int k = 0; k < it->node->n_in; k++)
        times += it->in[k] == in;
    return instance->n_uses == 1 || (p->geo->is_windowed && times == 1 &&
                                     instance->last_use == item && !has_dense_reader(p, in));
}

static void place_inputs(struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    if (!is_covered_by_inputs(it->node) || !is_all_made_here(p, it->out[0]))
        return;
    for (int k = 0; k < it->node->n_in; k++) {
        const int in = it->in[k];
        const struct wf_instance *instance = &p->program->instances[in];
        int64_t shift[WF_AXES] = { 0 };
        (void)it->node->op->place(it->node, k, shift);
        if (p->program->instances[in].is_fused || instance->maker < 0 || instance->keep ||
            !ends_in_slice(p, item, in) || p->root[in] != in ||
            is_dense_kernel(p, instance->maker) || p->geo->grouping[instance->maker] ||
            is_added_up(p, instance->maker) || !is_all_made_here(p, in) ||
            wf_region_is_empty(box_of(p, in)) || !shifted_box_fits(p, in, it->out[0], shift) ||
            !shifted_strips_fit(p, in, it->out[0], shift, false))
            continue;
        share(p, in, it->out[0], shift);
    }
}

static bool is_shared(const struct wf_planner *p, int instance)
{
    return p->n_inside[instance] > 0;
}

/* The result takes the place of an input that ends here. */
static void place_inplace(struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    if (!it->node->op->inplace || is_dense_kernel(p, item))
        return;
    const int out = it->out[0];
    const struct wf_instance *made = &p->program->instances[out];
    if (p->root[out] != out || made->keep || is_shared(p, out))
        return;
    for (int k = 0; k < it->node->n_in; k++) {
        const int in = it->in[k];
        if (in < 0 || !(it->node->op->inplace & (1u << k)))
            continue;
        const struct wf_instance *used = &p->program->instances[in];
        const int64_t none[WF_AXES] = { 0 };
        if (p->program->instances[in].is_fused || used->maker < 0 || used->keep ||
            p->geo->crosses[in] || used->last_use != item || p->root[in] != in ||
            is_shared(p, in) || used->value->dtype != made->value->dtype ||
            !wf_region_equal(box_of(p, in), box_of(p, out)) || wf_region_is_empty(box_of(p, in)) ||
            is_read_beside(p, in, item) || !shifted_strips_fit(p, out, in, none, true))
            continue;
        share(p, out, in, none);
        return;
    }
}

/* Who makes the next of a state is the last to read it. */
static void place_next_state(struct wf_planner *p, const struct wf_state_update *update)
{
    const int next = p->program->of_value[update->next->id];
    const int state = p->program->of_value[update->state->id];
    const int item = next < 0 ? -1 : p->program->instances[next].maker;
    if (state < 0 || item < 0 || p->root[next] != next || is_shared(p, next) ||
        is_shared(p, state) || p->program->instances[state].keep ||
        p->program->instances[state].last_use != item || is_read_beside(p, state, item))
        return;
    const struct wf_item *it = &p->program->items[item];
    const int64_t none[WF_AXES] = { 0 };
    for (int o = 0; o < it->node->n_out && it->node->op->renews; o++)
        if (it->out[o] == next && it->in[it->node->op->renews + o] == state &&
            wf_region_equal(box_of(p, state), box_of(p, next)))
            share(p, next, state, none);
}

static int find_root(const struct wf_planner *p, int instance, int64_t shift[WF_AXES])
{
    memset(shift, 0, WF_AXES * sizeof *shift);
    while (p->root[instance] != instance) {
        for (int a = 0; a < WF_AXES; a++)
            shift[a] += p->shift[instance][a];
        instance = p->root[instance];
    }
    return instance;
}

/* The weight whose place in a flat store a root takes: its own, or that of the parameter whose gradient
 * it is; NULL: none. */
static const struct wf_value *weight_of(const struct wf_planner *p, int instance,
                                        enum wf_store *store)
{
    const struct wf_instance *const in = &p->program->instances[instance];
    *store = WF_STORE_GRAD;
    if (in->value->grad_of && in->keep)
        return in->value->grad_of;
    *store = in->value->kind == WF_PARAM   ? WF_STORE_PARAM
             : in->value->kind == WF_STATE ? WF_STORE_STATE
                                           : WF_STORE_ARENA;
    return *store == WF_STORE_ARENA ? NULL : in->value;
}

/* Of what is strip-local: those of the largest strip. */
static size_t bytes_of(const struct wf_planner *p, int instance)
{
    const struct wf_instance *const in = &p->program->instances[instance];
    int64_t most = in->is_strip_local ? 0 : wf_region_count(box_of(p, instance));
    const struct wf_strips *const s = wf_strips_of(p->plan->global, in->maker);
    for (int at = 0; in->is_strip_local && at < s->count; at++)
        most = wf_max(most, wf_region_count(wf_planner_strip_box(p, instance, at)));
    return (size_t)most * wf_dtype_size(in->value->dtype);
}

static void give_buffers(struct wf_planner *p)
{
    for (int i = 0; i < p->program->n_instances; i++) {
        const struct wf_value *v = p->program->instances[i].value;
        struct wf_slot *slot = &p->slot[i];
        slot->buffer = -1;
        if (p->program->instances[i].is_fused || p->root[i] != i ||
            wf_region_is_empty(box_of(p, i)))
            continue;
        enum wf_store store;
        const struct wf_value *const weight = weight_of(p, i, &store);
        slot->view = wf_view_dense(NULL, v->dtype, box_of(p, i));
        slot->buffer = wf_planner_add_buffer(p, store, bytes_of(p, i), v->name);
        struct wf_plan_buffer *const buffer = &p->plan->buffers[slot->buffer];
        buffer->weight = weight;
        buffer->offset = weight ? p->plan->param_at[weight->id] * sizeof(float) : 0;
        buffer->strip_local = p->program->instances[i].is_strip_local;
    }
    for (int i = 0; i < p->program->n_instances; i++) {
        int64_t shift[WF_AXES];
        const int root = find_root(p, i, shift);
        if (root == i)
            continue;
        p->slot[i] = wf_slot_part(&p->slot[root], wf_region_shift(box_of(p, i), shift));
        p->slot[i].view.box = box_of(p, i);
        p->slot[i].view.dtype = p->program->instances[i].value->dtype;
    }
}

void wf_planner_place_strip(struct wf_planner *p, const struct wf_strips *s, int at)
{
    for (int i = 0; i < p->program->n_instances; i++) {
        const int maker = p->program->instances[i].maker;
        if (!p->program->instances[i].is_strip_local || maker < s->first || maker > s->last)
            continue;
        int64_t shift[WF_AXES];
        const int root = find_root(p, i, shift);
        const struct wf_region box = wf_planner_strip_box(p, i, at);
        struct wf_slot slot = p->slot[root];
        slot.view = wf_view_dense(NULL, p->program->instances[root].value->dtype,
                                  wf_planner_strip_box(p, root, at));
        p->slot[i] = wf_slot_part(&slot, wf_region_shift(box, shift));
        p->slot[i].view.box = box;
        p->slot[i].view.dtype = p->program->instances[i].value->dtype;
    }
}

void wf_planner_place(struct wf_planner *p)
{
    for (int i = 0; i < p->program->n_instances; i++)
        p->root[i] = i;
    for (int item = 0; item < p->program->n_items; item++) {
        place_part(p, item);
        place_inputs(p, item);
    }
    for (int item = 0; item < p->program->n_items; item++)
        place_inplace(p, item);
    const struct wf_graph *g = p->geo->graph;
    for (size_t i = 0; i < g->n_updates; i++)
        place_next_state(p, &g->updates[i]);
    give_buffers(p);
}
