#include "cli/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text.h"
#include "ops/op.h"

static const char *label(const struct wf_step *s)
{
    switch (s->kind) {
    case WF_STEP_KERNEL:
        return s->node->op->name;
    case WF_STEP_COPY:
        return "copy";
    case WF_STEP_ADD:
        return "add strips";
    case WF_STEP_FETCH_BEGIN:
    case WF_STEP_FETCH_END:
        return "fetch";
    case WF_STEP_SUM_BEGIN:
    case WF_STEP_SUM_END:
        break;
    }
    return "sum";
}

static int slowest_first(const void *a, const void *b)
{
    const struct wf_profile_row *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

void wf_profile_fill(struct wf_profile *p, const struct wf_run *run)
{
    const struct wf_plan *plan = wf_run_plan(run);
    const double *seconds = wf_run_step_seconds(run);
    p->n = 0;
    for (int s = 0; s < plan->n_steps; s++) {
        const char *name = label(&plan->steps[s]);
        int i = 0;
        while (i < p->n && strcmp(p->rows[i].name, name) != 0)
            i++;
        WF_BUG_ON(i == WF_PROFILE_MAX, "more than %d operators", i);
        if (i == p->n) {
            p->n++;
            p->rows[i].name = name;
            p->rows[i].count = 0;
            p->rows[i].seconds = 0;
        }
        p->rows[i].count++;
        p->rows[i].seconds += seconds[s];
    }
    qsort(p->rows, (size_t)p->n, sizeof p->rows[0], slowest_first);
}

void wf_profile_print(const struct wf_profile *p, struct wf_arena *arena)
{
    double total = 0;
    for (int i = 0; i < p->n; i++)
        total += p->rows[i].seconds;
    (void)printf("  %-16s %6s %10s %7s\n", "operator", "steps", "time", "share");
    for (int i = 0; i < p->n; i++)
        (void)printf("  %-16s %6d %10s %6.1f%%\n", p->rows[i].name, p->rows[i].count,
                     wf_text_seconds(arena, p->rows[i].seconds),
                     100.0 * p->rows[i].seconds / (total > 0 ? total : 1));
}

void wf_profile_add_json(const struct wf_profile *p, cJSON *json)
{
    cJSON *const by = cJSON_AddObjectToObject(json, "by_operator");
    for (int i = 0; i < p->n; i++)
        cJSON_AddNumberToObject(by, p->rows[i].name, 1e3 * p->rows[i].seconds);
}
