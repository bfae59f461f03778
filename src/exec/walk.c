/* The steps of a run: communication, kernels and copies in the order of the plan. */
#include "exec/run_inside.h"

#include "base/clock.h"
#include "base/stop.h"
#include "comm/watch.h"
#include "exec/waits.h"

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
    const bool in_bucket = run->plan->global->program->instances[sum->instance].bucket >= 0;
    run->is_held[which] = gradients && (run->keeps_parts || (run->holds_back && in_bucket));
    if (run->is_held[which])
        return true;
    if (gradients && in_bucket)
        wf_run_add_carry(run, data, sum->count);
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
    if (run->is_held[which])
        return true;
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

/* Of sparse tensors: a kernel on the host works on the rows that are there. On another device it looks
 * itself, because the host does not know yet. */
static void take_rows(struct wf_run *run, int s)
{
    const struct wf_step *const step = &run->plan->steps[s];
    const int set = wf_op_domain(step->node)->set;
    if (set == 0 || (step->node->op->flags & WF_OP_COUNTS) || !wf_device_is_host(run->device))
        return;
    const int64_t first = step->work.lo[WF_N], there = run->calls[s].rows[set];
    run->calls[s].work.hi[WF_N] = wf_min(step->work.hi[WF_N], first + there);
}

/* Kernels, copies and sums of parts. Communication in flight advances only when it is polled: after
 * each of them. */
static void compute(struct wf_run *run, int s)
{
    const struct wf_step *step = &run->plan->steps[s];
    const double before = wf_now();
    if (step->kind == WF_STEP_KERNEL) {
        run->calls[s].step = run->step;
        if (run->calls[s].rows)
            take_rows(run, s);
        step->kernel->run(&run->calls[s]);
        if (run->device->stream.ran)
            run->device->stream.ran(run->context, &run->calls[s]);
    } else {
        (step->kind == WF_STEP_COPY ? run->device->memory.copy : run->device->memory.add)(
            run->context, &run->calls[s].out[0], &run->calls[s].in[0]);
    }
    run->step_seconds[s] = wf_now() - before;
    run->times.compute += run->step_seconds[s];
    if (run->in_flight > 0)
        wf_comm_progress(run->comm);
}

/* Whether its end is left for later: the rank goes on while another stage takes what it sends. */
static bool is_left_pending(const struct wf_run *run, const struct wf_step *step)
{
    const struct wf_exchange *const x = &run->plan->exchanges[step->which];
    if (step->kind != WF_STEP_FETCH_END || step->part != wf_part_transfers(step->part / 2))
        return false;
    for (int i = 0; i < x->n_messages; i++)
        if (!x->messages[i].is_send)
            return false;
    return true;
}

bool wf_run_end_pending(struct wf_run *run, int exchange, struct wf_err *err)
{
    if (!run->is_pending[exchange])
        return true;
    run->is_pending[exchange] = false;
    run->in_flight--;
    return fetch_end(run, exchange, err);
}

/* The step is recorded behind those that it waits for. */
static void branch(const struct wf_run *run, int s)
{
    const struct wf_waits *const w = run->waits;
    const int *const begin = &w->begin[s - w->first];
    run->device->stream.branch(run->context, s - w->first, w->after + begin[0],
                               begin[1] - begin[0]);
}

bool wf_run_walk(struct wf_run *run, int first, int end, struct wf_err *err)
{
    for (int s = first; s < end; s++) {
        const struct wf_step *step = &run->plan->steps[s];
        if (wf_stop_asked(run->comm->stop, err)) {
            wf_comm_abort(run->comm, err);
            return false;
        }
        if (run->profiled)
            run->device->stream.mark(run->context, s);
        if (run->waits)
            branch(run, s);
        run->step_starts[s] = wf_now() - run->started;
        if (wf_step_computes(step)) {
            compute(run, s);
            continue;
        }
        bool ok = true;
        if (is_left_pending(run, step)) {
            run->is_pending[step->which] = true;
            run->pending_micro[step->which] = run->micro;
        } else
            ok = communicate(run, step, err);
        if (!ok) {
            (void)wf_err_wrap(err, "step %d", s);
            wf_comm_abort(run->comm, err); /* others may be in flight: see comm.h, failure */
            return false;
        }
        run->step_seconds[s] = wf_now() - run->started - run->step_starts[s];
    }
    return true;
}

void wf_run_set_profiled(struct wf_run *run, bool profiled)
{
    run->profiled = profiled && run->device->stream.mark && run->plan->n_parts == 2;
}

bool wf_run_wait(struct wf_run *run, struct wf_err *err)
{
    if (wf_device_is_host(run->device) || run->device->stream.synchronize(run->context, err))
        return true;
    wf_comm_abort(run->comm, err);
    return false;
}
