#include "plan/survey.h"

#include <stdlib.h>

#include "base/memory.h"
#include "plan/ledger.h"
#include "plan/memo.h"

struct wf_survey_rank wf_survey_rank_of(const struct wf_plan *plan)
{
    struct wf_survey_rank r = {
        .arena_bytes = plan->arena_bytes,
        .live_bytes = plan->live_bytes,
        .weight_bytes = wf_plan_param_bytes(plan),
        .param_count = plan->store_bytes[WF_STORE_PARAM] / sizeof(float),
        .fetch_bytes = plan->fetch_bytes,
        .reduce_bytes = plan->reduce_bytes,
        .steps = plan->n_steps,
        .references = plan->references,
        .flops = plan->flops,
        .seconds = plan->seconds,
        .compute_seconds = plan->compute_seconds,
        .link_seconds = plan->link_seconds,
    };
    for (int i = 0; i < plan->n_steps; i++)
        if (wf_step_is_asked_for(plan, &plan->steps[i]))
            r.again_seconds += plan->steps[i].seconds;
    for (int i = 0; i < plan->n_exchanges; i++)
        for (int m = 0; m < plan->exchanges[i].n_messages; m++) {
            const struct wf_plan_message *const message = &plan->exchanges[i].messages[m];
            r.messages++;
            r.send_bytes += message->is_send ? message->bytes : 0;
        }
    return r;
}

static bool look_at(struct wf_survey *s, int rank, struct wf_memo *memo, struct wf_ledger *ledger,
                    struct wf_err *err)
{
    struct wf_plan *const plan = wf_plan_sketch(s->scheme, rank, memo, err);
    if (!plan)
        return wf_err_wrap(err, "rank %d", rank);
    s->ranks[rank] = wf_survey_rank_of(plan);
    wf_ledger_add(ledger, plan);
    wf_plan_free(plan);
    return true;
}

struct wf_survey *wf_survey_new(const struct wf_scheme *scheme, struct wf_err *err)
{
    struct wf_survey *const s = wf_take_zeroed(1, sizeof *s);
    s->scheme = scheme;
    s->n_ranks = scheme->geometry.n_ranks;
    s->ranks = wf_arena_array(&s->arena, s->n_ranks, struct wf_survey_rank);
    struct wf_memo memo = { 0 };
    struct wf_ledger ledger = { 0 };
    bool ok = true;
    for (int r = 0; ok && r < s->n_ranks; r++)
        ok = look_at(s, r, &memo, &ledger, err);
    ok = ok && wf_ledger_check(&ledger, &scheme->mesh, err);
    wf_ledger_release(&ledger);
    wf_memo_release(&memo);
    if (ok)
        return s;
    wf_survey_free(s);
    return NULL;
}

void wf_survey_free(struct wf_survey *survey)
{
    if (!survey)
        return;
    wf_arena_release(&survey->arena);
    free(survey);
}
