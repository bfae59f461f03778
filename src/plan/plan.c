#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plan/fit.h"
#include "plan/strips.h"

static bool find_kernels(struct wf_global_plan *s, struct wf_err *err)
{
    const struct wf_device *const device = s->options.device;
    for (int i = 0; i < s->program->n_items; i++) {
        const struct wf_node *n = s->program->items[i].node;
        s->program->items[i].kernel = device->find(n);
        if (!s->program->items[i].kernel &&
            (n->op->flags & WF_OP_COLLECTS)) /* done by copies and additions */
            s->program->items[i].kernel = device->fallback;
        if (!s->program->items[i].kernel)
            return wf_err_set(err, WF_ERR_FIT, "layer '%s': device '%s' has no kernel for %s of %s",
                              n->name, device->name, n->op->name, wf_dtype_name(n->out[0]->dtype));
    }
    return true;
}

struct wf_global_plan *wf_global_plan_make(const struct wf_graph *g, const struct wf_mesh *mesh,
                                           const struct wf_plan_options *options,
                                           const struct wf_requests *requests, struct wf_err *err)
{
    if (!wf_graph_ok(g, err))
        return NULL;
    struct wf_global_plan *s = wf_take_zeroed(1, sizeof *s);
    s->graph = g;
    s->mesh = *mesh;
    s->options = *options;
    s->options.window = NULL; /* the geometry keeps it */
    s->costs = wf_costs_of(options);
    s->requests = wf_requests_copy(&s->arena, requests);
    s->options.layout.stages = &s->stages;
    if (!wf_stages_init(&s->arena, &s->stages, g, mesh, &options->pipe, &s->costs, err)) {
        wf_global_plan_free(s);
        return NULL;
    }
    s->program =
        wf_program_new(&s->arena, g,
                       &(struct wf_program_options){ .cheap_too = !options->no_recompute,
                                                     .fixed_weights = options->fixed_weights,
                                                     .device = options->device,
                                                     .requests = &s->requests,
                                                     .stages = &s->stages });
    if (find_kernels(s, err) &&
        wf_geometry_init(
            &s->arena, &s->geometry, g, s->program, mesh,
            &(struct wf_geometry_options){ .layout = s->options.layout, .window = options->window },
            err))
        return s;
    wf_global_plan_free(s);
    return NULL;
}

static struct wf_global_plan *run_passes(struct wf_global_plan *s, struct wf_err *err)
{
    if (wf_passes_over_program(s, err))
        return s;
    wf_global_plan_free(s);
    return NULL;
}

struct wf_global_plan *wf_global_plan_of_rank(struct wf_global_plan *s, int rank,
                                              struct wf_err *err)
{
    if (!s)
        return NULL;
    wf_geometry_place(&s->arena, &s->geometry, rank);
    return run_passes(s, err);
}

struct wf_global_plan *wf_global_plan_of_all(struct wf_global_plan *s, struct wf_err *err)
{
    if (!s)
        return NULL;
    wf_geometry_find_fetches(&s->arena, &s->geometry);
    return run_passes(s, err);
}

struct wf_global_plan *wf_global_plan_new(const struct wf_graph *g, const struct wf_mesh *mesh,
                                          const struct wf_plan_options *given, struct wf_err *err)
{
    struct wf_plan_options own = *given;
    const struct wf_plan_options *const options = &own;
    if (!wf_graph_ok(g, err) || !wf_plan_choose_backlog(g, mesh, &own, err))
        return NULL;
    struct wf_global_plan *const s = wf_global_plan_of_all(
        wf_global_plan_make(g, mesh, options, &(struct wf_requests){ 0 }, err), err);
    return s && options->limit && !options->window ? wf_global_plan_fit(s, err) : s;
}

void wf_global_plan_free(struct wf_global_plan *global)
{
    if (!global)
        return;
    wf_geometry_release(&global->geometry);
    wf_arena_release(&global->arena);
    free(global);
}

int wf_planner_add_buffer(struct wf_planner *p, enum wf_store store, size_t bytes, const char *name)
{
    struct wf_plan *plan = p->plan;
    WF_GROW(plan->buffers, p->room_buffers, (size_t)plan->n_buffers);
    plan->buffers[plan->n_buffers] = (struct wf_plan_buffer){
        .store = store, .bytes = bytes, .first = -1, .last = -1, .name = name
    };
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

/* Weights lie flat in the order of the layout, each on a boundary of 64 bytes. */
static size_t weight_room(const struct wf_value *v)
{
    return ((size_t)wf_shape_count(v->shape) + 15) / 16 * 16;
}

size_t wf_plan_trained_count(const struct wf_graph *g)
{
    size_t count = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        count += v->kind == WF_PARAM && !v->frozen ? weight_room(v) : 0;
    }
    return count;
}

/* Those that the rank holds, frozen ones behind all others. */
static void lay_weights(struct wf_plan *plan, const struct wf_graph *g)
{
    const struct wf_layout *const l = &plan->global->geometry.layout;
    size_t *const bytes = plan->store_bytes;
    for (int frozen = 0; frozen < 2; frozen++) {
        for (int i = 0; i < l->n_weights; i++) {
            const struct wf_value *const v = g->values[l->weights[i]];
            if (v->frozen != frozen || !wf_layout_value_tiling(l, v, plan->rank))
                continue;
            size_t *const end = &bytes[v->kind == WF_PARAM ? WF_STORE_PARAM : WF_STORE_STATE];
            plan->param_at[v->id] = *end / sizeof(float);
            *end += weight_room(v) * sizeof(float);
        }
        if (!frozen)
            plan->trained_count = bytes[WF_STORE_PARAM] / sizeof(float);
    }
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->backward)
            bytes[WF_STORE_GRAD] = plan->trained_count * sizeof(float);
}

static void note_values(const struct wf_planner *p)
{
    for (size_t v = 0; v < p->geo->graph->n_values; v++) {
        const int i = p->program->of_value[v];
        p->plan->values[v].buffer = -1;
        if (i >= 0)
            p->plan->values[v] = p->slot[i];
    }
}

/* Of the steps that run without a primitive that was found wrong, the one with the most scratch; or NULL.
 * Plans that are only looked at check none, so they do not know of it. */
static const struct wf_step *largest_way_around(const struct wf_plan *plan)
{
    const struct wf_step *largest = NULL;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct wf_step *const s = &plan->steps[i];
        if (s->kind == WF_STEP_KERNEL && s->scratch >= 0 &&
            strstr(s->implementation, " is wrong)") &&
            (!largest || plan->buffers[s->scratch].bytes > plan->buffers[largest->scratch].bytes))
            largest = s;
    }
    return largest;
}

/* What runs has to fit; what is only looked at may show by how much it does not. */
static bool check_limit(const struct wf_plan *plan, struct wf_err *err)
{
    const size_t limit = plan->global->options.limit;
    if (!limit || wf_plan_total_bytes(plan) <= limit)
        return true;
    const struct wf_step *const step = largest_way_around(plan);
    (void)wf_err_set(err, WF_ERR_FIT,
                     "rank %d needs %zu bytes and memory.limit is %zu: raise it, or use more ranks "
                     "or a smaller image",
                     plan->rank, wf_plan_total_bytes(plan), limit);
    return !step ? false
                 : wf_err_wrap(err, "layer '%s' runs by %s, with %zu bytes of scratch",
                               step->node->name, step->implementation,
                               plan->buffers[step->scratch].bytes);
}

static bool fill_plan(struct wf_plan *plan, struct wf_plan_cache *cache, bool lives_only,
                      struct wf_err *err)
{
    const struct wf_global_plan *const global = plan->global;
    const struct wf_program *const program = global->program;
    struct wf_arena work = { 0 };
    struct wf_planner p = {
        .plan = plan,
        .geo = &global->geometry,
        .program = program,
        .device = global->options.device,
        .cache = cache,
        .rank = plan->rank,
        .strip = -1,
        .threads = global->options.threads > 0 ? global->options.threads : 1,
        .options = &global->options,
        .root = wf_arena_array(&work, program->n_instances, int),
        .n_inside = wf_arena_array(&work, program->n_instances, int),
        .shift = wf_arena_take_array(&work, (size_t)program->n_instances, sizeof *p.shift),
        .slot = wf_arena_array(&work, program->n_instances, struct wf_slot),
        .exchange = wf_arena_array(&work, program->n_instances, int),
        .sum = wf_arena_array(&work, program->n_instances, int),
        .arrives = wf_arena_array(&work, program->n_instances, double),
        .is_late = wf_arena_array(&work, program->n_items, bool),
    };
    for (int i = 0; i < program->n_instances; i++)
        p.exchange[i] = p.sum[i] = -1;
    wf_planner_cut(&p, &work);
    wf_planner_place(&p);
    note_values(&p);
    wf_planner_emit(&p);
    bool ok = wf_passes_over_steps(&p, err) && wf_planner_prepare(&p, err);
    if (ok) {
        wf_planner_live(&p);
        wf_cost_plan(plan);
    }
    if (ok && !lives_only) {
        wf_plan_pack(plan, cache);
        ok = wf_plan_check(plan, err) && (cache || check_limit(plan, err));
    }
    free(p.spare.at);
    wf_arena_release(&work);
    return ok;
}

static struct wf_plan *make_plan(const struct wf_global_plan *global, int rank,
                                 struct wf_context *context, struct wf_plan_cache *cache,
                                 bool lives_only, struct wf_err *err)
{
    WF_BUG_ON(rank < 0 || rank >= global->geometry.n_ranks, "rank %d of %d", rank,
              global->geometry.n_ranks);
    struct wf_plan *plan = wf_take_zeroed(1, sizeof *plan);
    plan->global = global;
    plan->rank = rank;
    plan->context = context;
    plan->values = wf_arena_array(&plan->arena, global->graph->n_values, struct wf_slot);
    plan->ahead = wf_arena_array(&plan->arena, global->graph->n_values, struct wf_slot);
    plan->queue = wf_arena_array(&plan->arena, global->graph->n_values, struct wf_slot);
    plan->param_at = wf_arena_array(&plan->arena, global->graph->n_values, size_t);
    lay_weights(plan, global->graph);
    if (fill_plan(plan, cache, lives_only, err))
        return plan;
    wf_plan_free(plan);
    return NULL;
}

struct wf_plan *wf_plan_estimate_on(const struct wf_global_plan *global, int rank,
                                    struct wf_context *context, struct wf_plan_cache *cache,
                                    struct wf_err *err)
{
    return make_plan(global, rank, context, cache, false, err);
}

struct wf_plan *wf_plan_estimate(const struct wf_global_plan *global, int rank,
                                 struct wf_plan_cache *cache, struct wf_err *err)
{
    return wf_plan_estimate_on(global, rank, NULL, cache, err);
}

struct wf_plan *wf_plan_estimate_lives(const struct wf_global_plan *global, int rank,
                                       struct wf_plan_cache *cache, struct wf_err *err)
{
    return make_plan(global, rank, NULL, cache, true, err);
}

struct wf_plan *wf_plan_new_on(const struct wf_global_plan *global, int rank,
                               struct wf_context *context, struct wf_err *err)
{
    return make_plan(global, rank, context, NULL, false, err);
}

struct wf_plan *wf_plan_new(const struct wf_global_plan *global, int rank, struct wf_err *err)
{
    return make_plan(global, rank, NULL, NULL, false, err);
}

bool wf_plan_fits(const struct wf_global_plan *global, int rank, struct wf_context *context,
                  struct wf_err *err)
{
    const struct wf_device *const device = global->options.device;
    if (!device->memory.room)
        return true;
    struct wf_plan *const plan = wf_plan_estimate(global, rank, NULL, err);
    if (!plan)
        return false;
    const size_t bytes = wf_plan_total_bytes(plan);
    wf_plan_free(plan);
    const size_t room = device->memory.room(context);
    return bytes <= room ||
           wf_err_set(err, WF_ERR_FIT,
                      "rank %d needs %zu bytes in all and the device has not got them (%zu are "
                      "free): use more ranks (--mesh) or a smaller image",
                      rank, bytes, room);
}

size_t wf_global_plan_least_bytes(const struct wf_global_plan *global, int rank)
{
    const struct wf_program *const p = global->program;
    size_t most = 0;
    for (int i = 0; i < p->n_instances; i++) {
        const struct wf_region box = wf_geometry_box(&global->geometry, rank, i);
        const size_t bytes =
            (size_t)wf_region_count(box) * wf_dtype_size(p->instances[i].value->dtype);
        if (!global->program->instances[i].is_fused &&
            !global->program->instances[i].is_strip_local)
            most = bytes > most ? bytes : most;
    }
    return most;
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

bool wf_plan_branches(const struct wf_plan *plan)
{
    if (!plan->global->options.device->stream.branch || !plan->global->graph->rows)
        return false;
    for (int s = 0; s < plan->n_steps; s++)
        if (!wf_step_computes(&plan->steps[s]))
            return false;
    return true;
}

size_t wf_plan_param_bytes(const struct wf_plan *plan)
{
    return plan->store_bytes[WF_STORE_PARAM] + plan->store_bytes[WF_STORE_GRAD] +
           plan->store_bytes[WF_STORE_STATE];
}

bool wf_step_is_for_limit(const struct wf_plan *plan, const struct wf_step *step)
{
    return step->item >= 0 && step->node && plan->global->program->items[step->item].is_for_limit;
}
