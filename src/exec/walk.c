/* The steps of a run: communication, kernels and copies in the order of the plan. */
#include "exec/run_inside.h"

#include <string.h>
#include <time.h>

#include "comm/watch.h"

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
            run->device->memory.copy(run->context, &run->packed[x][i], &run->spread[x][i]);
    if (run->transport)
        return wf_transport_exchange_begin(run->transport, x, exchange->n_messages,
                                           run->messages[x], err);
    return wf_comm_exchange_begin(run->comm, exchange->n_messages, run->messages[x],
                                  &run->exchange_requests[x], err);
}

static bool fetch_end(struct wf_run *run, int x, struct wf_err *err)
{
    const struct wf_exchange *exchange = &run->plan->exchanges[x];
    const bool ok = run->transport
                        ? wf_transport_exchange_end(run->transport, x, err)
                        : wf_comm_exchange_end(run->comm, run->exchange_requests[x], err);
    for (int i = 0; ok && i < exchange->n_messages; i++)
        if (!exchange->messages[i].is_send && exchange->messages[i].staging >= 0)
            run->device->memory.copy(run->context, &run->spread[x][i], &run->packed[x][i]);
    return ok;
}

static bool sum_begin(struct wf_run *run, int which, struct wf_err *err)
{
    const struct wf_sum *const sum = &run->plan->sums[which];
    struct wf_comm *const group = run->groups[sum->group];
    void *const data = wf_run_resolve(run, &sum->slot).data;
    const bool gradients = run->plan->buffers[sum->slot.buffer].store == WF_STORE_GRAD;
    const bool rounded = gradients && sum->slot.view.dtype == WF_F32;
    if (gradients && run->keeps_parts)
        return true; /* without a request: its end does nothing */
    if (run->transport)
        return wf_transport_sum_begin(run->transport, run->plan->n_exchanges + which,
                                      &(struct wf_transport_sum){ .group = group,
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
    if (run->transport)
        return wf_transport_sum_end(run->transport, run->plan->n_exchanges + which, err);
    return wf_comm_sum_end(run->groups[run->plan->sums[which].group], run->sum_requests[which],
                           err);
}

/* For a watchdog: what the end of this step waits for. */
static void tell_watch(const struct wf_run *run, const struct wf_step *step)
{
    const struct wf_program *const program = run->plan->global->program;
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

/* Kernels, copies and sums of parts. Communication in flight advances only when it is polled: after
 * each of them. */
static void compute(struct wf_run *run, int s)
{
    const struct wf_step *step = &run->plan->steps[s];
    const double before = now();
    if (step->kind == WF_STEP_KERNEL) {
        run->calls[s].step = run->step;
        step->kernel->run(&run->calls[s]);
        if (run->device->stream.ran)
            run->device->stream.ran(run->context, &run->calls[s]);
    } else {
        (step->kind == WF_STEP_COPY ? run->device->memory.copy : run->device->memory.add)(
            run->context, &run->calls[s].out[0], &run->calls[s].in[0]);
    }
    run->step_seconds[s] = now() - before;
    run->times.compute += run->step_seconds[s];
    if (run->in_flight > 0)
        wf_comm_progress(run->comm);
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

static bool walk(struct wf_run *run, struct wf_err *err)
{
    const double start = now();
    for (int s = 0; s < run->plan->n_steps; s++) {
        const struct wf_step *step = &run->plan->steps[s];
        if (run->profiled)
            run->device->stream.mark(run->context, s);
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
    wf_watch_at(run->comm->watch, (int64_t)run->step, NULL, -1); /* later waits are of no layer */
    if (run->keeps_parts)
        clear_copies(run);
    return true;
}

/* A recording is made in the second pass: the first loads what kernels need. */
static bool may_record(const struct wf_run *run)
{
    const bool alone = run->plan->n_exchanges + run->plan->n_sums == 0;
    return run->device->stream.record && !run->plain && !run->profiled && run->passes > 0 &&
           (alone || (run->transport && wf_transport_records(run->transport)));
}

/* True where the pass is done by replaying it. */
static bool replay(struct wf_run *run, struct wf_err *err)
{
    if (run->profiled || (!run->recording && !may_record(run)))
        return false;
    if (!run->recording && run->device->stream.record(run->context)) {
        struct wf_err own = { 0 };
        const bool ok = walk(run, &own);
        run->recording = run->device->stream.recorded(run->context);
        if (!ok) {
            *err = own;
            wf_run_forget(run);
        }
        run->plain = !run->recording; /* not again: the passes go step by step */
    }
    if (run->recording)
        run->device->stream.replay(run->context, run->recording);
    return run->recording != NULL;
}

/* The device's own times of the steps. */
static bool read_marks(struct wf_run *run, struct wf_err *err)
{
    const int n = run->plan->n_steps;
    run->device->stream.mark(run->context, n);
    if (!run->device->stream.marks(run->context, n + 1, run->step_seconds, err))
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
    if (run->device->stream.start)
        run->device->stream.start(run->context, run->step);
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
    run->profiled = profiled && run->device->stream.mark;
}

bool wf_run_wait(struct wf_run *run, struct wf_err *err)
{
    if (wf_device_is_host(run->device) || run->device->stream.synchronize(run->context, err))
        return true;
    wf_comm_abort(run->comm, err);
    return false;
}
