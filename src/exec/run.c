#include "exec/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/watch.h"
#include "exec/wire.h"

struct wf_run {
    const struct wf_plan *plan;
    const struct wf_device *device;
    struct wf_context *context;
    struct wf_comm *comm;
    struct wf_comm **groups;           /* per mask of mesh axes; NULL: not used */
    struct wf_arena arena, plan_arena; /* the second: what belongs to the plan that is run now */
    char *store[WF_STORES];
    size_t store_bytes[WF_STORES]; /* that were taken; 0: another run's */
    struct wf_call *calls;         /* per step: kernels and copies, with their pointers resolved */
    struct wf_message **messages;  /* per exchange */
    struct wf_view **packed;       /* per exchange and message: the packed side */
    struct wf_view **spread;       /* per exchange and message: the side in the value's buffer */
    struct wf_request **exchange_requests, **sum_requests;
    struct wf_wire *wire; /* where buffers do not lie in the host's memory; sums follow exchanges */
    void *recording;      /* of a whole pass; NULL: none */
    bool plain;           /* passes are not recorded */
    bool profiled;        /* the device marks each step */
    int in_flight;        /* exchanges and sums that have begun and not ended */
    struct wf_run_times times;
    double *step_seconds, *step_starts;
    uint64_t seed, step;
    bool keeps_parts;
    struct range {
        size_t first, bytes;
    } * counted; /* of the gradients: this rank's part, where keeps_parts */
    int n_counted;
    int64_t passes; /* over this plan */
};

enum { GROUPS = 1 << WF_MESH_AXES };

static void *resolve(const struct wf_run *run, int buffer, size_t offset)
{
    if (buffer < 0)
        return NULL;
    const struct wf_plan_buffer *b = &run->plan->buffers[buffer];
    return run->store[b->store] + b->offset + offset;
}

static struct wf_view resolve_slot(const struct wf_run *run, const struct wf_slot *slot)
{
    struct wf_view view = slot->view;
    view.data = resolve(run, slot->buffer, slot->offset);
    return view;
}

static void resolve_step(struct wf_run *run, int s)
{
    const struct wf_step *step = &run->plan->steps[s];
    struct wf_view *views =
        wf_arena_array(&run->plan_arena, step->n_in + step->n_out + 1, struct wf_view);
    for (int k = 0; k < step->n_in; k++)
        views[k] = resolve_slot(run, &step->in[k]);
    for (int o = 0; o < step->n_out; o++)
        views[step->n_in + o] = resolve_slot(run, &step->out[o]);
    struct wf_folded *const folded =
        step->n_folds ? wf_arena_array(&run->plan_arena, step->node->n_in, struct wf_folded) : NULL;
    for (int f = 0; f < step->n_folds; f++)
        folded[step->folds[f].input] =
            (struct wf_folded){ step->folds[f].node, views + step->folds[f].first };
    run->calls[s] = (struct wf_call){ .node = step->node,
                                      .work = step->work,
                                      .in = views,
                                      .out = views + step->n_in,
                                      .folded = folded,
                                      .scratch = resolve(run, step->scratch, 0),
                                      .prepared = step->prepared,
                                      .seed = run->seed,
                                      .context = run->plan->context };
}

static void resolve_exchange(struct wf_run *run, int x)
{
    const struct wf_exchange *exchange = &run->plan->exchanges[x];
    const int n = exchange->n_messages;
    run->messages[x] = wf_arena_array(&run->plan_arena, n, struct wf_message);
    run->packed[x] = wf_arena_array(&run->plan_arena, n, struct wf_view);
    run->spread[x] = wf_arena_array(&run->plan_arena, n, struct wf_view);
    for (int i = 0; i < n; i++) {
        const struct wf_plan_message *m = &exchange->messages[i];
        run->spread[x][i] = resolve_slot(run, &m->slot);
        run->packed[x][i] = run->spread[x][i];
        if (m->staging >= 0)
            run->packed[x][i] =
                wf_view_dense(resolve(run, m->staging, 0), m->slot.view.dtype, m->slot.view.box);
        run->messages[x][i] =
            (struct wf_message){ .peer = m->peer, .tag = m->tag, .bytes = m->bytes };
        if (m->is_send)
            run->messages[x][i].send = run->packed[x][i].data;
        else
            run->messages[x][i].recv = run->packed[x][i].data;
    }
}

/* One sub-communicator for each kind of group that some sum needs. Every rank of a scheme has the
 * same program, so all of them split in the same order. */
static bool make_groups(struct wf_run *run, struct wf_err *err)
{
    const struct wf_scheme *scheme = run->plan->scheme;
    bool used[GROUPS] = { false };
    for (int i = 0; i < scheme->program->n_items; i++)
        used[scheme->geometry.reduce[i]] = true;
    for (unsigned axes = 1; axes < GROUPS; axes++) {
        if (!used[axes])
            continue;
        int at[WF_MESH_AXES];
        wf_mesh_coords(&scheme->mesh, run->plan->rank, at);
        for (int a = 0; a < WF_MESH_AXES; a++)
            if (axes & (1u << a))
                at[a] = 0;
        if (!wf_comm_split(run->comm, wf_mesh_rank(&scheme->mesh, at), &run->groups[axes], err))
            return wf_err_wrap(err, "forming groups of ranks");
    }
    return true;
}

static bool take_memory(struct wf_run *run, struct wf_err *err)
{
    for (int i = 0; i < WF_STORES; i++) {
        const size_t bytes = run->plan->store_bytes[i];
        if (bytes <= run->store_bytes[i] || (run->store[i] && run->store_bytes[i] == 0))
            continue;
        run->device->free(run->context, run->store[i], run->store_bytes[i]);
        run->store[i] = run->device->alloc(run->context, bytes);
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
    run->step_seconds = wf_arena_array(arena, plan->n_steps + 1, double);
    run->step_starts = wf_arena_array(arena, plan->n_steps + 1, double);
    run->messages = wf_arena_array(arena, plan->n_exchanges, struct wf_message *);
    run->packed = wf_arena_array(arena, plan->n_exchanges, struct wf_view *);
    run->spread = wf_arena_array(arena, plan->n_exchanges, struct wf_view *);
    run->exchange_requests = wf_arena_array(arena, plan->n_exchanges, struct wf_request *);
    run->sum_requests = wf_arena_array(arena, plan->n_sums, struct wf_request *);
    for (int s = 0; s < plan->n_steps; s++)
        resolve_step(run, s);
    for (int x = 0; x < plan->n_exchanges; x++)
        resolve_exchange(run, x);
}

static struct wf_run *run_new(const struct wf_plan *plan, struct wf_comm *comm, uint64_t seed,
                              const struct wf_run *lender, struct wf_err *err)
{
    WF_BUG_ON(wf_comm_size(comm) != plan->scheme->geometry.n_ranks ||
                  wf_comm_rank(comm) != plan->rank,
              "rank %d of %d with the plan of rank %d", wf_comm_rank(comm), wf_comm_size(comm),
              plan->rank);
    struct wf_run *run = wf_take_zeroed(1, sizeof *run);
    run->plan = plan;
    run->device = plan->scheme->options.device;
    run->context = plan->context;
    WF_BUG_ON(!run->context && !wf_device_is_host(run->device),
              "a plan for '%s' without its context", run->device->name);
    run->comm = comm;
    run->seed = seed;
    run->groups = wf_arena_array(&run->arena, GROUPS, struct wf_comm *);
    for (int i = 0; lender && i < WF_STORES; i++)
        if (plan->store_bytes[i] <= lender->plan->store_bytes[i])
            run->store[i] = lender->store[i];
    const bool ok = take_memory(run, err);
    if (!wf_comm_agree(comm, ok, err) || !make_groups(run, err)) {
        wf_run_free(run);
        return NULL;
    }
    if (!wf_device_is_host(run->device) && wf_comm_size(comm) > 1) {
        run->wire = wf_wire_new(run->context, comm, plan->n_exchanges + plan->n_sums, err);
        if (!wf_comm_agree(comm, run->wire != NULL, err)) {
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
    return run_new(plan, comm, seed, NULL, err);
}

struct wf_run *wf_run_new_beside(struct wf_run *lender, const struct wf_plan *plan,
                                 struct wf_err *err)
{
    for (int i = 0; i < WF_STORES; i++)
        WF_BUG_ON(i != WF_STORE_ARENA && plan->store_bytes[i] != lender->plan->store_bytes[i],
                  "weights of %zu bytes beside some of %zu", plan->store_bytes[i],
                  lender->plan->store_bytes[i]);
    return run_new(plan, lender->comm, lender->seed, lender, err);
}

struct wf_run *wf_run_new_store(const struct wf_plan *plan, struct wf_err *err)
{
    struct wf_run *run = wf_take_zeroed(1, sizeof *run);
    run->plan = plan;
    run->device = plan->scheme->options.device;
    run->context = plan->context;
    run->groups = wf_arena_array(&run->arena, GROUPS, struct wf_comm *);
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

/* Along axes that a sum does not go over all ranks have the same: one of them counts. */
static bool is_counted(const struct wf_run *run, unsigned axes)
{
    int at[WF_MESH_AXES];
    bool counted = true;
    wf_mesh_coords(&run->plan->scheme->mesh, run->plan->rank, at);
    for (int a = 0; a < WF_MESH_AXES; a++)
        counted = counted && (at[a] == 0 || axes & (1u << a));
    return counted;
}

void wf_run_keep_parts(struct wf_run *run)
{
    const struct wf_plan *const plan = run->plan;
    WF_BUG_ON(!wf_device_is_host(run->device), "parts on device '%s'", run->device->name);
    run->keeps_parts = true;
    run->counted = wf_arena_array(&run->arena, plan->n_sums + 1, struct range);
    run->n_counted = 0;
    const bool all = is_counted(run, 0); /* of what no sum covers, too */
    if (all)
        run->counted[run->n_counted++] = (struct range){ 0, plan->store_bytes[WF_STORE_GRAD] };
    for (int i = 0; !all && i < plan->n_sums; i++) {
        const struct wf_sum *const sum = &plan->sums[i];
        const struct wf_plan_buffer *const b = &plan->buffers[sum->slot.buffer];
        if (b->store == WF_STORE_GRAD && is_counted(run, sum->axes))
            run->counted[run->n_counted++] =
                (struct range){ b->offset + sum->slot.offset, sum->count * sizeof(float) };
    }
    qsort(run->counted, (size_t)run->n_counted, sizeof *run->counted, by_first);
}

static void clear_copies(struct wf_run *run)
{
    size_t at = 0;
    char *const grads = run->store[WF_STORE_GRAD];
    for (int i = 0; i < run->n_counted; i++) {
        if (run->counted[i].first > at)
            memset(grads + at, 0, run->counted[i].first - at);
        at = run->counted[i].first + run->counted[i].bytes;
    }
    if (at < run->plan->store_bytes[WF_STORE_GRAD])
        memset(grads + at, 0, run->plan->store_bytes[WF_STORE_GRAD] - at);
}

static void forget(struct wf_run *run)
{
    if (run->recording)
        run->device->forget(run->context, run->recording);
    run->recording = NULL;
    run->passes = 0;
}

bool wf_run_change_plan(struct wf_run *run, const struct wf_plan *plan, struct wf_err *err)
{
    WF_BUG_ON(plan->scheme->graph != run->plan->scheme->graph || plan->context != run->context ||
                  plan->scheme->geometry.n_ranks != 1 || wf_comm_size(run->comm) != 1,
              "another graph, context or %d ranks", plan->scheme->geometry.n_ranks);
    forget(run);
    run->plan = plan;
    wf_arena_release(&run->plan_arena);
    if (!take_memory(run, err))
        return false;
    resolve_plan(run);
    return true;
}

void wf_run_free(struct wf_run *run)
{
    if (!run)
        return;
    forget(run);
    wf_wire_free(run->wire);
    for (int i = 0; i < GROUPS; i++)
        if (run->groups[i])
            wf_comm_free(run->groups[i]);
    for (int i = 0; i < WF_STORES; i++)
        if (run->store[i] && run->store_bytes[i] > 0)
            run->device->free(run->context, run->store[i], run->store_bytes[i]);
    wf_arena_release(&run->plan_arena);
    wf_arena_release(&run->arena);
    free(run);
}

struct wf_view wf_run_view(const struct wf_run *run, const struct wf_value *value)
{
    return resolve_slot(run, &run->plan->values[value->id]);
}

struct wf_view wf_run_view_next(const struct wf_run *run, const struct wf_value *value)
{
    return resolve_slot(run, &run->plan->ahead[value->id]);
}

struct wf_view wf_run_owned(const struct wf_run *run, const struct wf_value *value)
{
    const struct wf_view view = wf_run_view(run, value);
    const struct wf_region owned =
        wf_geometry_owned(&run->plan->scheme->geometry, run->plan->rank, value);
    return view.data ? wf_view_part(view, owned) : view;
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

float *wf_run_states(struct wf_run *run)
{
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

size_t wf_run_bytes(const struct wf_run *run)
{
    size_t bytes = 0;
    for (int i = 0; i < WF_STORES; i++)
        bytes += run->store_bytes[i];
    return bytes;
}

/* --- walking --- */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool fetch_begin(struct wf_run *run, int x, struct wf_err *err)
{
    const struct wf_exchange *exchange = &run->plan->exchanges[x];
    for (int i = 0; i < exchange->n_messages; i++)
        if (exchange->messages[i].is_send && exchange->messages[i].staging >= 0)
            run->device->copy(run->context, &run->packed[x][i], &run->spread[x][i]);
    if (run->wire)
        return wf_wire_exchange_begin(run->wire, x, exchange->n_messages, run->messages[x], err);
    return wf_comm_exchange_begin(run->comm, exchange->n_messages, run->messages[x],
                                  &run->exchange_requests[x], err);
}

static bool fetch_end(struct wf_run *run, int x, struct wf_err *err)
{
    const struct wf_exchange *exchange = &run->plan->exchanges[x];
    const bool ok = run->wire ? wf_wire_exchange_end(run->wire, x, err)
                              : wf_comm_exchange_end(run->comm, run->exchange_requests[x], err);
    for (int i = 0; ok && i < exchange->n_messages; i++)
        if (!exchange->messages[i].is_send && exchange->messages[i].staging >= 0)
            run->device->copy(run->context, &run->spread[x][i], &run->packed[x][i]);
    return ok;
}

static bool sum_begin(struct wf_run *run, int which, struct wf_err *err)
{
    const struct wf_sum *const sum = &run->plan->sums[which];
    struct wf_comm *const group = run->groups[sum->axes];
    void *const data = resolve_slot(run, &sum->slot).data;
    const bool gradients = run->plan->buffers[sum->slot.buffer].store == WF_STORE_GRAD;
    const bool rounded = gradients && sum->slot.view.dtype == WF_F32;
    if (gradients && run->keeps_parts)
        return true; /* without a request: its end does nothing */
    if (run->wire)
        return wf_wire_sum_begin(run->wire, run->plan->n_exchanges + which,
                                 &(struct wf_wire_sum){ .group = group,
                                                        .data = data,
                                                        .count = sum->count,
                                                        .dtype = sum->slot.view.dtype,
                                                        .rounded = rounded },
                                 err);
    if (rounded)
        return wf_comm_sum_rounded_begin(group, data, sum->count, &run->sum_requests[which], err);
    return wf_comm_sum_begin(group, data, sum->count, sum->slot.view.dtype,
                             &run->sum_requests[which], err);
}

static bool sum_end(struct wf_run *run, int which, struct wf_err *err)
{
    if (run->wire)
        return wf_wire_sum_end(run->wire, run->plan->n_exchanges + which, err);
    return wf_comm_sum_end(run->groups[run->plan->sums[which].axes], run->sum_requests[which], err);
}

/* For a watchdog: what the end of this step waits for. */
static void tell_watch(const struct wf_run *run, const struct wf_step *step)
{
    const struct wf_program *const program = run->plan->scheme->program;
    const struct wf_exchange *const x =
        step->kind == WF_STEP_FETCH_END ? &run->plan->exchanges[step->which] : NULL;
    int peer = -1;
    for (int i = 0; x && peer < 0 && i < x->n_messages; i++)
        peer = x->messages[i].is_send ? -1 : x->messages[i].peer;
    wf_watch_at(run->comm->watch, (int64_t)run->step,
                step->item >= 0 ? program->items[step->item].node->name : NULL, peer);
}

static bool communicate(struct wf_run *run, const struct wf_step *step, struct wf_err *err)
{
    if (run->comm->watch)
        tell_watch(run, step);
    const bool begins = step->kind == WF_STEP_FETCH_BEGIN || step->kind == WF_STEP_SUM_BEGIN;
    run->in_flight += begins ? 1 : -1;
    if (step->kind == WF_STEP_FETCH_BEGIN)
        return fetch_begin(run, step->which, err);
    if (step->kind == WF_STEP_FETCH_END)
        return fetch_end(run, step->which, err);
    return (begins ? sum_begin : sum_end)(run, step->which, err);
}

/* Kernels, copies and sums of parts. What is on its way advances only while somebody looks: after each of them. */
static void compute(struct wf_run *run, int s)
{
    const struct wf_step *step = &run->plan->steps[s];
    const double before = now();
    if (step->kind == WF_STEP_KERNEL) {
        run->calls[s].step = run->step;
        step->kernel->run(&run->calls[s]);
        if (run->device->ran)
            run->device->ran(run->context, &run->calls[s]);
    } else {
        (step->kind == WF_STEP_COPY ? run->device->copy : run->device->add)(
            run->context, &run->calls[s].out[0], &run->calls[s].in[0]);
    }
    run->step_seconds[s] = now() - before;
    run->times.compute += run->step_seconds[s];
    if (run->in_flight > 0)
        wf_comm_progress(run->comm);
}

static bool walk(struct wf_run *run, struct wf_err *err)
{
    const double start = now();
    for (int s = 0; s < run->plan->n_steps; s++) {
        const struct wf_step *step = &run->plan->steps[s];
        if (run->profiled)
            run->device->mark(run->context, s);
        run->step_starts[s] = now() - start;
        if (wf_step_computes(step)) {
            compute(run, s);
            continue;
        }
        if (!communicate(run, step, err)) {
            (void)wf_err_wrap(err, "step %d", s);
            wf_comm_abort(run->comm, err); /* others may be in flight: see comm.h, failure */
            return false;
        }
        run->step_seconds[s] = now() - start - run->step_starts[s];
    }
    run->times.comm = now() - start - run->times.compute;
    if (run->keeps_parts)
        clear_copies(run);
    return true;
}

/* A recording is made in the second pass: the first loads what kernels need. */
static bool may_record(const struct wf_run *run)
{
    const bool alone = run->plan->n_exchanges + run->plan->n_sums == 0;
    return run->device->record && !run->plain && !run->profiled && run->passes > 0 &&
           (alone || (run->wire && wf_wire_records(run->wire)));
}

/* True where the pass is done by replaying it. */
static bool replay(struct wf_run *run, struct wf_err *err)
{
    if (run->profiled || (!run->recording && !may_record(run)))
        return false;
    if (!run->recording && run->device->record(run->context)) {
        struct wf_err own = { 0 };
        const bool ok = walk(run, &own);
        run->recording = run->device->recorded(run->context);
        if (!ok) {
            *err = own;
            forget(run);
        }
        run->plain = !run->recording; /* not again: the passes go step by step */
    }
    if (run->recording)
        run->device->replay(run->context, run->recording);
    return run->recording != NULL;
}

/* The device's own times of the steps. */
static bool read_marks(struct wf_run *run, struct wf_err *err)
{
    const int n = run->plan->n_steps;
    run->device->mark(run->context, n);
    if (!run->device->marks(run->context, n + 1, run->step_seconds, err))
        return false;
    double at = 0;
    run->times = (struct wf_run_times){ 0 };
    for (int s = 0; s < n; s++) {
        const bool computes = wf_step_computes(&run->plan->steps[s]);
        run->step_starts[s] = at;
        at += run->step_seconds[s];
        *(computes ? &run->times.compute : &run->times.comm) += run->step_seconds[s];
    }
    return true;
}

bool wf_run_step(struct wf_run *run, struct wf_err *err)
{
    run->times = (struct wf_run_times){ 0 };
    if (run->device->start)
        run->device->start(run->context, run->step);
    if (!replay(run, err) && !walk(run, err))
        return false;
    if (run->profiled && !read_marks(run, err))
        return false;
    run->step++;
    run->passes++;
    return true;
}

void wf_run_set_profiled(struct wf_run *run, bool profiled)
{
    run->profiled = profiled && run->device->mark;
}

bool wf_run_wait(struct wf_run *run, struct wf_err *err)
{
    if (wf_device_is_host(run->device) || run->device->synchronize(run->context, err))
        return true;
    wf_comm_abort(run->comm, err);
    return false;
}
