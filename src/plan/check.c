/* The invariants of plan/plan.h, looked at one by one. A plan that breaks one is a bug of ours, but
 * it is reported as an error, because a wrong number would be worse than a refusal. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan/check.h"
#include "base/memory.h"
#include "plan/message_check.h"
#include "plan/plan.h"

bool wf_check_broken(struct wf_err *err, int invariant, const char *what, const char *name,
                     int step)
{
    return wf_err_set(err, WF_ERR_FAILED, "plan breaks I%d at step %d: %s ('%s'): please report it",
                      invariant, step, what, name ? name : "?");
}

const char *wf_check_name(const struct wf_plan *p, int buffer)
{
    return buffer < 0 ? "absent" : p->buffers[buffer].name;
}

struct wf_region wf_check_box(const struct wf_slot *slot)
{
    struct wf_region box;
    int64_t rest = (int64_t)(slot->offset / wf_dtype_size(slot->view.dtype));
    for (int a = 0; a < WF_AXES; a++) {
        const int64_t stride = slot->view.stride[a] > 0 ? slot->view.stride[a] : 1;
        box.lo[a] = rest / stride;
        box.hi[a] = box.lo[a] + wf_region_extent(slot->view.box, (enum wf_axis)a);
        rest %= stride;
    }
    return box;
}

/* --- I2 --- */

struct span {
    size_t offset, end;
    int first, last, buffer;
};

static int by_offset(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : 0;
}

static bool check_overlap(const struct wf_plan *p, struct wf_err *err)
{
    struct span *spans = wf_take_zeroed((size_t)p->n_buffers + 1, sizeof *spans);
    int n = 0;
    bool ok = true;
    for (int i = 0; ok && i < p->n_buffers; i++) {
        const struct wf_plan_buffer *b = &p->buffers[i];
        if (b->first >= 0 && b->offset + b->bytes > p->store_bytes[b->store])
            ok = wf_check_broken(err, 2, "a buffer reaches past its store", b->name, b->first);
        if (b->store == WF_STORE_ARENA && b->first >= 0 && b->bytes > 0)
            spans[n++] = (struct span){ b->offset, b->offset + b->bytes, b->first, b->last, i };
    }
    qsort(spans, (size_t)n, sizeof *spans, by_offset);
    for (int i = 0; ok && i < n; i++)
        for (int k = i + 1; ok && k < n && spans[k].offset < spans[i].end; k++)
            if (spans[i].first <= spans[k].last && spans[k].first <= spans[i].last)
                ok = wf_check_broken(err, 2, "two live buffers overlap",
                                     p->buffers[spans[k].buffer].name, spans[k].first);
    free(spans);
    return ok;
}

/* --- I3 --- */

static bool check_pairs(const struct wf_plan *p, enum wf_step_kind begin, enum wf_step_kind end,
                        int n, struct wf_err *err)
{
    int *state = wf_take_zeroed((size_t)n + 1, sizeof *state);
    bool ok = true;
    for (int s = 0; ok && s < p->n_steps; s++) {
        const struct wf_step *step = &p->steps[s];
        if (step->kind != begin && step->kind != end)
            continue;
        const int want = step->kind == begin ? 0 : 1;
        if (step->which < 0 || step->which >= n || state[step->which]++ != want)
            ok = wf_check_broken(err, 3, "communication does not begin and end once", NULL, s);
    }
    for (int i = 0; ok && i < n; i++)
        if (state[i] != 2)
            ok = wf_check_broken(err, 3, "communication does not end", NULL, p->n_steps);
    free(state);
    return ok;
}

/* What travels: per buffer, how many messages and sums are on their way; per exchange, whether it is. What
 * is sent may be read meanwhile, what comes or is summed may not. */
struct traffic {
    const struct wf_plan *p;
    int *messages, *sums, *exchanges;
};

/* Whether the slot reads what has not come yet. */
static bool reads_too_early(const struct traffic *t, const struct wf_slot *slot)
{
    if (slot->buffer < 0 || t->messages[slot->buffer] == 0 || wf_region_is_empty(slot->view.box))
        return false;
    const struct wf_region box = wf_check_box(slot);
    for (int x = 0; x < t->p->n_exchanges; x++)
        for (int i = 0; t->exchanges[x] && i < t->p->exchanges[x].n_messages; i++) {
            const struct wf_plan_message *m = &t->p->exchanges[x].messages[i];
            if (!m->is_send && m->slot.buffer == slot->buffer &&
                !wf_region_is_empty(wf_region_intersect(box, wf_check_box(&m->slot))))
                return true;
        }
    return false;
}

static void count_traffic(struct traffic *t, const struct wf_step *step)
{
    const struct wf_plan *p = t->p;
    if (step->kind == WF_STEP_FETCH_BEGIN || step->kind == WF_STEP_FETCH_END)
        t->exchanges[step->which] += step->kind == WF_STEP_FETCH_BEGIN ? 1 : -1;
    if (step->kind == WF_STEP_FETCH_BEGIN || step->kind == WF_STEP_FETCH_END)
        for (int i = 0; i < p->exchanges[step->which].n_messages; i++)
            t->messages[p->exchanges[step->which].messages[i].slot.buffer] +=
                step->kind == WF_STEP_FETCH_BEGIN ? 1 : -1;
    if (step->kind == WF_STEP_SUM_BEGIN || step->kind == WF_STEP_SUM_END) {
        const struct wf_sum *sum = &p->sums[step->which];
        const int by = step->kind == WF_STEP_SUM_BEGIN ? 1 : -1;
        t->sums[sum->slot.buffer] += by;
        for (int i = 0; i < sum->n_parts; i++)
            t->sums[sum->parts[i]] += by;
    }
}

static bool is_live(const struct wf_plan *p, int buffer, int step)
{
    return buffer < 0 || (p->buffers[buffer].first <= step && step <= p->buffers[buffer].last);
}

static bool is_sum_live(const struct wf_plan *p, const struct wf_sum *sum, int step)
{
    bool ok = is_live(p, sum->slot.buffer, step);
    for (int i = 0; i < sum->n_parts; i++)
        ok = ok && is_live(p, sum->parts[i], step);
    return ok;
}

/* Everything that a step touches is live then; the lives are what I2 was looked at with. */
static bool touches_live(const struct wf_plan *p, int s)
{
    const struct wf_step *step = &p->steps[s];
    bool ok = is_live(p, step->scratch, s);
    for (int k = 0; k < step->n_in; k++)
        ok = ok && is_live(p, step->in[k].buffer, s);
    for (int o = 0; o < step->n_out; o++)
        ok = ok && is_live(p, step->out[o].buffer, s);
    if (step->kind == WF_STEP_FETCH_BEGIN || step->kind == WF_STEP_FETCH_END)
        for (int i = 0; i < p->exchanges[step->which].n_messages; i++) {
            const struct wf_plan_message *m = &p->exchanges[step->which].messages[i];
            ok = ok && is_live(p, m->slot.buffer, s) && is_live(p, m->staging, s);
        }
    if (step->kind == WF_STEP_SUM_BEGIN || step->kind == WF_STEP_SUM_END)
        ok = ok && is_sum_live(p, &p->sums[step->which], s);
    return ok;
}

/* Nobody writes what travels, nor reads what is being summed or has not come. */
static bool check_traffic(const struct wf_plan *p, struct wf_err *err)
{
    const size_t n = (size_t)p->n_buffers + 1;
    int *counts = wf_take_zeroed(2 * n + (size_t)p->n_exchanges + 1, sizeof *counts);
    struct traffic t = {
        .p = p, .messages = counts, .sums = counts + n, .exchanges = counts + 2 * n
    };
    bool ok = true;
    for (int s = 0; ok && s < p->n_steps; s++) {
        const struct wf_step *step = &p->steps[s];
        for (int o = 0; ok && o < step->n_out; o++) {
            const int b = step->out[o].buffer;
            if (b >= 0 && (t.messages[b] || t.sums[b]))
                ok = wf_check_broken(err, 3, "written while it travels", wf_check_name(p, b), s);
        }
        for (int k = 0; ok && k < step->n_in; k++) {
            const int b = step->in[k].buffer;
            if (b >= 0 && t.sums[b])
                ok = wf_check_broken(err, 3, "read while it is summed", wf_check_name(p, b), s);
            else if (reads_too_early(&t, &step->in[k]))
                ok = wf_check_broken(err, 3, "read before it has come", wf_check_name(p, b), s);
        }
        count_traffic(&t, step);
    }
    free(counts);
    return ok;
}

static bool check_lives(const struct wf_plan *p, struct wf_err *err)
{
    for (int s = 0; s < p->n_steps; s++)
        if (!touches_live(p, s))
            return wf_check_broken(err, 3, "touches a buffer that is not live",
                                   p->steps[s].node ? p->steps[s].node->name : NULL, s);
    return true;
}

bool wf_check_list(const struct wf_plan *p, struct wf_err *err)
{
    return wf_check_reads(p, err) &&
           check_pairs(p, WF_STEP_FETCH_BEGIN, WF_STEP_FETCH_END, p->n_exchanges, err) &&
           check_pairs(p, WF_STEP_SUM_BEGIN, WF_STEP_SUM_END, p->n_sums, err) &&
           check_traffic(p, err);
}

bool wf_plan_check(const struct wf_plan *p, struct wf_err *err)
{
    return wf_check_list(p, err) && check_overlap(p, err) && check_lives(p, err) &&
           wf_check_turns(p, err);
}

bool wf_plan_check_all(const struct wf_plan *const *plans, int n, struct wf_err *err)
{
    struct wf_message_check check = { 0 };
    bool ok = true;
    for (int r = 0; ok && r < n; r++) {
        ok = wf_plan_check(plans[r], err) || wf_err_wrap(err, "rank %d", r);
        if (ok)
            wf_message_check_add(&check, plans[r]);
    }
    ok = ok && wf_message_check_run(&check, &plans[0]->global->geometry.groups, err);
    wf_message_check_release(&check);
    return ok;
}
