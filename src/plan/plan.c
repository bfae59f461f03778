#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "plan/planner.h"

struct wf_scheme *wf_scheme_new(const struct wf_graph *g, const struct wf_mesh *mesh,
                                const struct wf_plan_options *options, struct wf_err *err)
{
    if (!wf_graph_ok(g, err))
        return NULL;
    struct wf_scheme *s = calloc(1, sizeof *s);
    WF_BUG_ON(!s, "out of memory");
    s->graph = g;
    s->mesh = *mesh;
    s->options = *options;
    s->options.window = NULL; /* the geometry keeps it */
    s->program = wf_program_new(&s->arena, g, !options->no_recompute);
    if (wf_geometry_init(&s->arena, &s->geometry, g, s->program, mesh, options->window, err))
        return s;
    wf_scheme_free(s);
    return NULL;
}

void wf_scheme_free(struct wf_scheme *scheme)
{
    if (!scheme)
        return;
    wf_arena_release(&scheme->arena);
    free(scheme);
}

int wf_planner_add_buffer(struct wf_planner *p, enum wf_store store, size_t bytes, const char *name)
{
    struct wf_plan *plan = p->plan;
    WF_GROW(plan->buffers, p->room_buffers, (size_t)plan->n_buffers);
    plan->buffers[plan->n_buffers] =
        (struct wf_buffer){ .store = store, .bytes = bytes, .first = -1, .last = -1, .name = name };
    return plan->n_buffers++;
}

struct wf_slot wf_slot_part(const struct wf_slot *slot, struct wf_region box)
{
    struct wf_slot part = *slot;
    if (slot->buffer < 0 || wf_region_is_empty(box)) {
        part.view.box = box;
        return part;
    }
    WF_BUG_ON(!wf_region_contains(slot->view.box, box), "a part reaches past its slot");
    int64_t elements = 0;
    for (int a = 0; a < WF_AXES; a++)
        elements += (box.lo[a] - slot->view.box.lo[a]) * slot->view.stride[a];
    part.offset += (size_t)elements * wf_dtype_size(slot->view.dtype);
    part.view.box = box;
    return part;
}

/* Weights lie flat in the order of the graph's values, each on a boundary of 64 bytes. */
static void lay_weights(struct wf_plan *plan, const struct wf_graph *g)
{
    size_t elements[2] = { 0, 0 };
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        if (v->kind != WF_PARAM && v->kind != WF_STATE)
            continue;
        size_t *end = &elements[v->kind == WF_STATE];
        plan->param_at[i] = *end;
        *end += ((size_t)wf_shape_count(v->shape) + 15) / 16 * 16;
    }
    plan->store_bytes[WF_STORE_PARAM] = elements[0] * sizeof(float);
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->backward)
            plan->store_bytes[WF_STORE_GRAD] = plan->store_bytes[WF_STORE_PARAM];
    plan->store_bytes[WF_STORE_STATE] = elements[1] * sizeof(float);
}

static void touch(struct wf_plan *plan, int buffer, int step)
{
    if (buffer < 0)
        return;
    struct wf_buffer *b = &plan->buffers[buffer];
    if (b->first < 0 || step < b->first)
        b->first = step;
    if (step > b->last)
        b->last = step;
}

static void touch_messages(struct wf_plan *plan, const struct wf_exchange *x, int step)
{
    for (int i = 0; i < x->n_messages; i++) {
        touch(plan, x->messages[i].slot.buffer, step);
        touch(plan, x->messages[i].staging, step);
    }
}

static void touch_sum(struct wf_plan *plan, const struct wf_sum *sum, int step)
{
    touch(plan, sum->slot.buffer, step);
    for (int i = 0; i < sum->n_parts; i++)
        touch(plan, sum->parts[i], step);
}

static void find_lives(struct wf_plan *plan)
{
    for (int s = 0; s < plan->n_steps; s++) {
        const struct wf_step *step = &plan->steps[s];
        for (int k = 0; k < step->n_in; k++)
            touch(plan, step->in[k].buffer, s);
        for (int o = 0; o < step->n_out; o++)
            touch(plan, step->out[o].buffer, s);
        touch(plan, step->scratch, s);
        if (step->kind == WF_STEP_FETCH_BEGIN || step->kind == WF_STEP_FETCH_END)
            touch_messages(plan, &plan->exchanges[step->which], s);
        if (step->kind == WF_STEP_SUM_BEGIN || step->kind == WF_STEP_SUM_END)
            touch_sum(plan, &plan->sums[step->which], s);
    }
}

/* Inputs are there before the first step and stay; outputs stay to the end. */
static void note_values(struct wf_planner *p)
{
    struct wf_plan *plan = p->plan;
    const struct wf_program *program = p->program;
    const int end = plan->n_steps;
    for (size_t v = 0; v < p->geo->graph->n_values; v++) {
        const int i = program->of_value[v];
        plan->values[v].buffer = -1;
        if (i < 0 || p->slot[i].buffer < 0)
            continue;
        plan->values[v] = p->slot[i];
        if (p->geo->graph->values[v]->kind != WF_TEMP)
            touch(plan, p->slot[i].buffer, 0);
        touch(plan, p->slot[i].buffer, end);
    }
}

static void pack_arena(struct wf_plan *plan)
{
    int n = 0;
    struct wf_arena scratch = { 0 };
    size_t *bytes = wf_arena_array(&scratch, plan->n_buffers + 1, size_t);
    size_t *offset = wf_arena_array(&scratch, plan->n_buffers + 1, size_t);
    int *first = wf_arena_array(&scratch, plan->n_buffers + 1, int);
    int *last = wf_arena_array(&scratch, plan->n_buffers + 1, int);
    int *which = wf_arena_array(&scratch, plan->n_buffers + 1, int);
    for (int i = 0; i < plan->n_buffers; i++) {
        const struct wf_buffer *b = &plan->buffers[i];
        if (b->store != WF_STORE_ARENA || b->first < 0)
            continue;
        bytes[n] = b->bytes;
        first[n] = b->first;
        last[n] = b->last;
        which[n++] = i;
    }
    plan->arena_bytes = wf_memory_pack(n, bytes, first, last, offset);
    plan->live_bytes = wf_memory_live(n, bytes, first, last, plan->n_steps);
    plan->store_bytes[WF_STORE_ARENA] = plan->arena_bytes;
    for (int i = 0; i < n; i++)
        plan->buffers[which[i]].offset = offset[i];
    wf_arena_release(&scratch);
}

static bool find_kernels(struct wf_planner *p, struct wf_err *err)
{
    for (int i = 0; i < p->program->n_items; i++) {
        const struct wf_node *n = p->program->items[i].node;
        p->kernel[i] = p->device->find(n);
        if (!p->kernel[i])
            return wf_err_set(err, WF_ERR_FIT, "layer '%s': device '%s' has no kernel for %s of %s",
                              n->name, p->device->name, n->op->name,
                              wf_dtype_name(n->out[0]->dtype));
    }
    return true;
}

struct wf_plan *wf_plan_new(const struct wf_scheme *scheme, int rank, struct wf_err *err)
{
    WF_BUG_ON(rank < 0 || rank >= scheme->geometry.n_ranks, "rank %d of %d", rank,
              scheme->geometry.n_ranks);
    struct wf_plan *plan = calloc(1, sizeof *plan);
    WF_BUG_ON(!plan, "out of memory");
    plan->scheme = scheme;
    plan->rank = rank;
    plan->values = wf_arena_array(&plan->arena, scheme->graph->n_values, struct wf_slot);
    plan->param_at = wf_arena_array(&plan->arena, scheme->graph->n_values, size_t);
    lay_weights(plan, scheme->graph);
    struct wf_arena work = { 0 };
    const struct wf_program *program = scheme->program;
    struct wf_planner p = {
        .plan = plan,
        .geo = &scheme->geometry,
        .program = program,
        .device = scheme->options.device,
        .rank = rank,
        .threads = scheme->options.threads > 0 ? scheme->options.threads : 1,
        .options = &scheme->options,
        .kernel = wf_arena_array(&work, program->n_items, const struct wf_kernel *),
        .root = wf_arena_array(&work, program->n_instances, int),
        .shift = wf_arena_take_array(&work, (size_t)program->n_instances, sizeof *p.shift),
        .slot = wf_arena_array(&work, program->n_instances, struct wf_slot),
    };
    bool ok = find_kernels(&p, err);
    if (ok) {
        wf_planner_place(&p);
        wf_planner_comm_init(&p, &work);
        ok = wf_planner_emit(&p, err);
    }
    if (ok) {
        find_lives(plan);
        note_values(&p);
        pack_arena(plan);
        plan->seconds = wf_cost_plan(plan);
        ok = wf_plan_check(plan, err);
    }
    free(p.buckets);
    wf_arena_release(&work);
    if (ok)
        return plan;
    wf_plan_free(plan);
    return NULL;
}

void wf_plan_free(struct wf_plan *plan)
{
    if (!plan)
        return;
    for (int s = 0; s < plan->n_steps; s++)
        if (plan->steps[s].prepared && plan->steps[s].kernel->release)
            plan->steps[s].kernel->release(plan->steps[s].prepared);
    free(plan->steps);
    free(plan->buffers);
    free(plan->exchanges);
    free(plan->sums);
    wf_arena_release(&plan->arena);
    free(plan);
}

size_t wf_plan_param_bytes(const struct wf_plan *plan)
{
    return plan->store_bytes[WF_STORE_PARAM] + plan->store_bytes[WF_STORE_GRAD] +
           plan->store_bytes[WF_STORE_STATE];
}
