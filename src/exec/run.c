#include "exec/run_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static void *resolve(const struct wf_run *run, int buffer, size_t offset, int micro)
{
    if (buffer < 0)
        return NULL;
    const struct wf_plan_buffer *b = &run->plan->buffers[buffer];
    if (run->borrowed && run->borrowed[buffer])
        return run->borrowed[buffer] + offset;
    const size_t slot = b->slots > 1 ? (size_t)(micro % b->slots) * b->slot_bytes : 0;
    return run->store[b->store] + b->offset + slot + offset;
}

struct wf_view wf_run_resolve(const struct wf_run *run, const struct wf_slot *slot)
{
    struct wf_view view = slot->view;
    view.data = resolve(run, slot->buffer, slot->offset, run->micro);
    return view;
}

static void make_call(struct wf_run *run, int s)
{
    const struct wf_step *step = &run->plan->steps[s];
    struct wf_view *views =
        wf_arena_array(&run->plan_arena, step->n_in + step->n_out + 1, struct wf_view);
    struct wf_fused_input *const fused =
        step->n_fused ? wf_arena_array(&run->plan_arena, step->node->n_in, struct wf_fused_input)
                      : NULL;
    for (int f = 0; f < step->n_fused; f++)
        fused[step->fuses[f].input] =
            (struct wf_fused_input){ step->fuses[f].node, views + step->fuses[f].first };
    run->views[s] = views;
    run->calls[s] = (struct wf_call){ .node = step->node,
                                      .work = step->work,
                                      .in = views,
                                      .out = views + step->n_in,
                                      .fused = fused,
                                      .prepared = step->prepared,
                                      .seed = run->seed,
                                      .context = run->plan->context };
}

static void bind_step(struct wf_run *run, int s)
{
    const struct wf_step *step = &run->plan->steps[s];
    for (int k = 0; k < step->n_in; k++)
        run->views[s][k] = wf_run_resolve(run, &step->in[k]);
    for (int o = 0; o < step->n_out; o++)
        run->views[s][step->n_in + o] = wf_run_resolve(run, &step->out[o]);
    run->calls[s].scratch = resolve(run, step->scratch, 0, run->micro);
    const struct wf_value *const rows = run->plan->global->graph->rows;
    if (rows)
        run->calls[s].rows = wf_run_resolve(run, &run->plan->values[rows->id]).data;
}

static void make_exchange(struct wf_run *run, int x)
{
    const struct wf_exchange *exchange = &run->plan->exchanges[x];
    const int n = exchange->n_messages;
    run->messages[x] = wf_arena_array(&run->plan_arena, n, struct wf_message);
    run->packed[x] = wf_arena_array(&run->plan_arena, n, struct wf_view);
    run->spread[x] = wf_arena_array(&run->plan_arena, n, struct wf_view);
}

static void bind_exchange(struct wf_run *run, int x)
{
    const struct wf_exchange *exchange = &run->plan->exchanges[x];
    for (int i = 0; i < exchange->n_messages; i++) {
        const struct wf_plan_message *m = &exchange->messages[i];
        run->spread[x][i] = wf_run_resolve(run, &m->slot);
        run->packed[x][i] = run->spread[x][i];
        if (m->staging >= 0)
            run->packed[x][i] = wf_view_dense(resolve(run, m->staging, 0, run->micro),
                                              m->slot.view.dtype, m->slot.view.box);
        run->messages[x][i] =
            (struct wf_message){ .peer = m->peer, .tag = m->tag, .bytes = m->bytes };
        if (m->is_send)
            run->messages[x][i].send = run->packed[x][i].data;
        else
            run->messages[x][i].recv = run->packed[x][i].data;
    }
}

void wf_run_bind(struct wf_run *run, int first, int end)
{
    for (int s = first; s < end; s++) {
        bind_step(run, s);
        if (run->plan->steps[s].kind == WF_STEP_FETCH_BEGIN)
            bind_exchange(run, run->plan->steps[s].which);
    }
}

/* One sub-communicator for each group that the rank sums with. Every rank of a global plan has the same
 * groupings, so all of them split in the same order; a rank that takes no part goes with the others
 * of that kind. */
static bool make_groups(struct wf_run *run, struct wf_err *err)
{
    const struct wf_groups *const groups = &run->plan->global->geometry.groups;
    run->n_groups = groups->n;
    run->groups = wf_arena_array(&run->arena, groups->n, struct wf_comm *);
    for (int i = 0; i < groups->n_groupings; i++) {
        const int group = groups->groupings[i]->group_of[run->plan->rank];
        struct wf_comm *comm = NULL;
        if (!wf_comm_split(run->comm, group < 0 ? groups->n : group, &comm, err))
            return wf_err_wrap(err, "forming groups of ranks");
        if (group < 0 || run->groups[group])
            wf_comm_free(comm);
        else
            run->groups[group] = comm;
    }
    return true;
}

static bool take_memory(struct wf_run *run, struct wf_err *err)
{
    for (int i = 0; i < WF_STORES; i++) {
        const size_t bytes = run->plan->store_bytes[i];
        if (bytes <= run->store_bytes[i] || (run->store[i] && run->store_bytes[i] == 0))
            continue;
        run->device->memory.free(run->context, run->store[i], run->store_bytes[i]);
        run->store[i] = run->device->memory.alloc(run->context, bytes);
        run->store_bytes[i] = run->store[i] ? bytes : 0;
        if (!run->store[i])
            return wf_err_set(err, WF_ERR_FIT,
                              "rank %d needs %zu bytes in all and the device has not got them: use "
                              "more ranks (--mesh) or a smaller image",
                              run->plan->rank,
                              run->plan->arena_bytes + wf_plan_param_bytes(run->plan));
    }
    return true;
}

/* Pointers for all that the plan names. */
static void resolve_plan(struct wf_run *run)
{
    const struct wf_plan *plan = run->plan;
    struct wf_arena *arena = &run->plan_arena;
    run->calls = wf_arena_array(arena, plan->n_steps, struct wf_call);
    run->views = wf_arena_array(arena, plan->n_steps, struct wf_view *);
    run->step_seconds = wf_arena_array(arena, plan->n_steps + 1, double);
    run->step_starts = wf_arena_array(arena, plan->n_steps + 1, double);
    run->messages = wf_arena_array(arena, plan->n_exchanges, struct wf_message *);
    run->packed = wf_arena_array(arena, plan->n_exchanges, struct wf_view *);
    run->spread = wf_arena_array(arena, plan->n_exchanges, struct wf_view *);
    run->exchange_requests = wf_arena_array(arena, plan->n_exchanges, struct wf_request *);
    run->sum_requests = wf_arena_array(arena, plan->n_sums, struct wf_request *);
    run->is_held = wf_arena_array(arena, plan->n_sums + 1, bool);
    run->pending_micro = wf_arena_array(arena, plan->n_exchanges + 1, int);
    run->is_pending = wf_arena_array(arena, plan->n_exchanges + 1, bool);
    run->turn_starts = wf_arena_array(arena, plan->turns.n + 1, double);
    run->turn_seconds = wf_arena_array(arena, plan->turns.n + 1, double);
    for (int s = 0; s < plan->n_steps; s++)
        make_call(run, s);
    for (int x = 0; x < plan->n_exchanges; x++)
        make_exchange(run, x);
    wf_run_bind(run, 0, plan->n_steps);
    wf_run_make_parts(run);
    run->count = wf_pipe_micro_batches(&plan->global->options.pipe);
}

/* Where the lender has the weight of that name. */
static char *find_borrowed(const struct wf_run *lender, const struct wf_plan_buffer *b)
{
    const struct wf_graph *const g = lender->plan->global->graph;
    const size_t like = (size_t)b->weight->id; /* mostly: the graph is one for another batch */
    const struct wf_value *v = like < g->n_values ? g->values[like] : NULL;
    if (!v || v->kind != b->weight->kind || strcmp(v->name, b->weight->name) != 0)
        v = wf_graph_find(g, b->weight->name);
    const int buffer = v ? lender->plan->values[v->id].buffer : -1;
    WF_BUG_ON(buffer < 0 || !lender->store[b->store] || !wf_shape_equal(v->shape, b->weight->shape),
              "the other run holds no '%s' of that shape", b->weight->name);
    if (lender->borrowed)
        return lender->borrowed[buffer];
    return lender->store[b->store] + lender->plan->param_at[v->id] * sizeof(float);
}

/* Weights are shared by name, wherever they lie; those that a sum takes as one lie as in the plan. */
static void borrow_weights(struct wf_run *run, const struct wf_run *lender)
{
    const struct wf_plan *const plan = run->plan;
    run->borrowed = wf_arena_array(&run->arena, plan->n_buffers, char *);
    for (int i = 0; i < plan->n_buffers; i++)
        if (plan->buffers[i].weight)
            run->borrowed[i] = find_borrowed(lender, &plan->buffers[i]);
    for (int s = 0; s < plan->n_sums; s++) {
        const struct wf_sum *const sum = &plan->sums[s];
        for (int i = 0; i < sum->n_parts; i++) {
            const struct wf_plan_buffer *const all = &plan->buffers[sum->slot.buffer];
            const struct wf_plan_buffer *const b = &plan->buffers[sum->parts[i]];
            char *const begin = run->borrowed[sum->parts[i]] - (b->offset - all->offset);
            WF_BUG_ON(i > 0 && begin != run->borrowed[sum->slot.buffer],
                      "'%s' lies elsewhere in the other run", b->name);
            run->borrowed[sum->slot.buffer] = begin;
        }
    }
}

static struct wf_run *run_new(const struct wf_plan *plan, struct wf_comm *comm, uint64_t seed,
                              struct wf_run *lender, bool apart, struct wf_err *err)
{
    WF_BUG_ON(wf_comm_size(comm) != plan->global->geometry.n_ranks ||
                  wf_comm_rank(comm) != plan->rank,
              "rank %d of %d with the plan of rank %d", wf_comm_rank(comm), wf_comm_size(comm),
              plan->rank);
    struct wf_run *run = wf_take_zeroed(1, sizeof *run);
    run->plan = plan;
    run->device = plan->global->options.device;
    run->context = plan->context;
    WF_BUG_ON(!run->context && !wf_device_is_host(run->device),
              "a plan for '%s' without its context", run->device->name);
    run->comm = comm;
    run->seed = seed;
    run->owner = run;
    for (int i = 0; lender && i < WF_STORES; i++)
        if (i != WF_STORE_ARENA || (!apart && plan->store_bytes[i] <= lender->plan->store_bytes[i]))
            run->store[i] = lender->store[i];
    if (run->store[WF_STORE_ARENA])
        run->owner = lender->owner;
    if (lender)
        borrow_weights(run, lender);
    const bool ok = take_memory(run, err);
    if (!wf_comm_agree(comm, ok, err) || !make_groups(run, err)) {
        wf_run_free(run);
        return NULL;
    }
    if (!wf_device_is_host(run->device) && wf_comm_size(comm) > 1) {
        run->transport =
            wf_transport_new(run->context, comm, plan->n_exchanges + plan->n_sums, err);
        if (!wf_comm_agree(comm, run->transport != NULL, err)) {
            wf_run_free(run);
            return NULL;
        }
    }
    resolve_plan(run);
    return run;
}

struct wf_run *wf_run_new(const struct wf_plan *plan, struct wf_comm *comm, uint64_t seed,
                          struct wf_err *err)
{
    return run_new(plan, comm, seed, NULL, false, err);
}

struct wf_run *wf_run_new_beside(struct wf_run *lender, const struct wf_plan *plan, bool apart,
                                 struct wf_err *err)
{
    return run_new(plan, lender->comm, lender->seed, lender, apart, err);
}

struct wf_run *wf_run_new_alone(struct wf_run *lender, const struct wf_plan *plan,
                                struct wf_comm *self, struct wf_err *err)
{
    return run_new(plan, self, lender->seed, lender, false, err);
}

struct wf_run *wf_run_new_store(const struct wf_plan *plan, struct wf_err *err)
{
    struct wf_run *run = wf_take_zeroed(1, sizeof *run);
    run->plan = plan;
    run->device = plan->global->options.device;
    run->context = plan->context;
    run->owner = run;
    run->store_bytes[WF_STORE_ARENA] =
        plan->store_bytes[WF_STORE_ARENA]; /* enough: none is needed */
    const bool ok = take_memory(run, err);
    run->store_bytes[WF_STORE_ARENA] = 0;
    if (ok)
        return run;
    wf_run_free(run);
    return NULL;
}

/* --- parts of gradients --- */

static int by_first(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void wf_run_keep_parts(struct wf_run *run)
{
    const struct wf_plan *const plan = run->plan;
    const struct wf_groups *const groups = &plan->global->geometry.groups;
    WF_BUG_ON(!wf_device_is_host(run->device), "parts on device '%s'", run->device->name);
    run->keeps_parts = true;
    run->counted = wf_arena_array(&run->arena, plan->n_sums + 1, struct range);
    run->n_counted = 0;
    const bool all = plan->rank == 0; /* of what no sum covers, too */
    if (all)
        run->counted[run->n_counted++] = (struct range){ 0, plan->store_bytes[WF_STORE_GRAD] };
    for (int i = 0; !all && i < plan->n_sums; i++) {
        const struct wf_sum *const sum = &plan->sums[i];
        const struct wf_plan_buffer *const b = &plan->buffers[sum->slot.buffer];
        /* Ranks in other groups have the same sum: the first one counts. */
        if (b->store == WF_STORE_GRAD && wf_group_has(&groups->at[sum->group], 0))
            run->counted[run->n_counted++] =
                (struct range){ b->offset + sum->slot.offset, sum->count * sizeof(float) };
    }
    qsort(run->counted, (size_t)run->n_counted, sizeof *run->counted, by_first);
}

void wf_run_free(struct wf_run *run)
{
    if (!run)
        return;
    if (run->owner->fixed_of == run)
        run->owner->fixed_of = NULL;
    wf_run_forget(run);
    wf_transport_free(run->transport);
    for (int i = 0; i < run->n_groups; i++)
        if (run->groups[i])
            wf_comm_free(run->groups[i]);
    for (int i = 0; i < WF_STORES; i++)
        if (run->store[i] && run->store_bytes[i] > 0)
            run->device->memory.free(run->context, run->store[i], run->store_bytes[i]);
    wf_arena_release(&run->plan_arena);
    wf_arena_release(&run->arena);
    free(run);
}

struct wf_view wf_run_view(const struct wf_run *run, const struct wf_value *value)
{
    const struct wf_slot *const queued = &run->plan->queue[value->id];
    const bool is_weight = value->kind == WF_PARAM || value->kind == WF_STATE;
    /* It may be filled: a weight that fixed steps read, or an input where another run's results are. */
    if (is_weight || (value->kind == WF_INPUT && run->owner->fixed_of != run))
        run->owner->fixed_of = NULL;
    if (queued->buffer < 0)
        return wf_run_resolve(run, &run->plan->values[value->id]);
    struct wf_view view = queued->view;
    view.data = resolve(run, queued->buffer, 0, run->selected);
    return view;
}

struct wf_view wf_run_view_next(const struct wf_run *run, const struct wf_value *value)
{
    return wf_run_resolve(run, &run->plan->ahead[value->id]);
}

struct wf_view wf_run_owned(const struct wf_run *run, const struct wf_value *value)
{
    const struct wf_view view = wf_run_view(run, value);
    const struct wf_region owned =
        wf_geometry_owned(&run->plan->global->geometry, run->plan->rank, value);
    return view.data ? wf_view_part(view, owned) : view;
}

void wf_run_select(struct wf_run *run, int micro)
{
    run->selected = micro;
}

void wf_run_set_count(struct wf_run *run, int count)
{
    WF_BUG_ON(count < 1 || count > wf_pipe_micro_batches(&run->plan->global->options.pipe),
              "%d micro-batches", count);
    run->count = count;
}

void wf_run_set_carry(struct wf_run *run, const struct wf_run_carry *carry)
{
    run->carry = *carry;
}

const struct wf_device *wf_run_device(const struct wf_run *run)
{
    return run->device;
}

struct wf_context *wf_run_context(const struct wf_run *run)
{
    return run->context;
}

float *wf_run_params(struct wf_run *run)
{
    run->owner->fixed_of = NULL;
    return (float *)(void *)run->store[WF_STORE_PARAM];
}

float *wf_run_grads(struct wf_run *run)
{
    return (float *)(void *)run->store[WF_STORE_GRAD];
}

size_t wf_run_param_count(const struct wf_run *run)
{
    return run->plan->store_bytes[WF_STORE_PARAM] / sizeof(float);
}

size_t wf_run_trained_count(const struct wf_run *run)
{
    return run->plan->trained_count;
}

float *wf_run_states(struct wf_run *run)
{
    run->owner->fixed_of = NULL;
    return (float *)(void *)run->store[WF_STORE_STATE];
}

size_t wf_run_state_count(const struct wf_run *run)
{
    return run->plan->store_bytes[WF_STORE_STATE] / sizeof(float);
}

const struct wf_plan *wf_run_plan(const struct wf_run *run)
{
    return run->plan;
}

void wf_run_set_step(struct wf_run *run, uint64_t step)
{
    run->step = step;
}

struct wf_run_times wf_run_times(const struct wf_run *run)
{
    return run->times;
}

const double *wf_run_step_seconds(const struct wf_run *run)
{
    return run->step_seconds;
}

const double *wf_run_step_starts(const struct wf_run *run)
{
    return run->step_starts;
}

const double *wf_run_turn_starts(const struct wf_run *run)
{
    return run->turn_starts;
}

const double *wf_run_turn_seconds(const struct wf_run *run)
{
    return run->turn_seconds;
}

size_t wf_run_bytes(const struct wf_run *run)
{
    size_t bytes = 0;
    for (int i = 0; i < WF_STORES; i++)
        bytes += run->store_bytes[i];
    return bytes;
}
