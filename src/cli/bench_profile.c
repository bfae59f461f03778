#include "cli/bench_profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "base/memory.h"
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

void wf_bench_profile_add(struct wf_bench_profile *p, const struct wf_run *run)
{
    const int n = wf_run_plan(run)->n_steps;
    double *const pass = wf_arena_array(&p->arena, n + 1, double);
    memcpy(pass, wf_run_step_seconds(run), (size_t)n * sizeof *pass);
    WF_GROW(p->passes, p->room, p->n_passes);
    p->passes[p->n_passes++] = pass;
}

static double median_of(struct wf_bench_profile *p, int step)
{
    double *const column = wf_arena_array(&p->arena, p->n_passes, double);
    for (size_t i = 0; i < p->n_passes; i++)
        column[i] = p->passes[i][step];
    return wf_median(column, (int64_t)p->n_passes);
}

static struct wf_bench_row *find_row(struct wf_bench_profile *p, const char *name)
{
    int i = 0;
    while (i < p->n_rows && strcmp(p->rows[i].name, name) != 0)
        i++;
    if (i == p->n_rows)
        p->rows[p->n_rows++].name = name;
    return &p->rows[i];
}

static int slowest_first(const void *a, const void *b)
{
    const struct wf_bench_row *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static void add_kernel(struct wf_bench_profile *p, const struct wf_step *s, double seconds)
{
    cJSON *const one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "node", s->node ? s->node->name : "");
    cJSON_AddStringToObject(one, "load", wf_load_print(&p->arena, &s->load));
    cJSON_AddNumberToObject(one, "foretold_ms", 1e3 * s->seconds);
    cJSON_AddNumberToObject(one, "ms", 1e3 * seconds);
    cJSON_AddItemToArray(p->kernels, one);
}

void wf_bench_profile_close(struct wf_bench_profile *p, const struct wf_plan *plan)
{
    p->rows = wf_arena_array(&p->arena, plan->n_steps + 1, struct wf_bench_row);
    p->kernels = cJSON_CreateArray();
    for (int s = 0; p->n_passes > 0 && s < plan->n_steps; s++) {
        const struct wf_step *const step = &plan->steps[s];
        struct wf_bench_row *const row = find_row(p, label(step));
        const double seconds = median_of(p, s);
        row->count++;
        row->seconds += seconds;
        row->foretold += step->seconds;
        if (step->load.name)
            add_kernel(p, step, seconds);
    }
    qsort(p->rows, (size_t)p->n_rows, sizeof p->rows[0], slowest_first);
}

void wf_bench_profile_print(const struct wf_bench_profile *p, struct wf_arena *arena)
{
    double total = 0;
    for (int i = 0; i < p->n_rows; i++)
        total += p->rows[i].seconds;
    (void)printf("  %-16s %6s %10s %7s %10s\n", "operator", "steps", "time", "share", "foretold");
    for (int i = 0; i < p->n_rows; i++)
        (void)printf("  %-16s %6d %10s %6.1f%% %10s\n", p->rows[i].name, p->rows[i].count,
                     wf_text_seconds(arena, p->rows[i].seconds),
                     100.0 * p->rows[i].seconds / (total > 0 ? total : 1),
                     wf_text_seconds(arena, p->rows[i].foretold));
}

void wf_bench_profile_json(struct wf_bench_profile *p, cJSON *json)
{
    cJSON *const by = cJSON_AddObjectToObject(json, "by_operator");
    cJSON *const foretold = cJSON_AddObjectToObject(json, "foretold_by_operator");
    for (int i = 0; i < p->n_rows; i++) {
        cJSON_AddNumberToObject(by, p->rows[i].name, 1e3 * p->rows[i].seconds);
        cJSON_AddNumberToObject(foretold, p->rows[i].name, 1e3 * p->rows[i].foretold);
    }
    (void)cJSON_AddItemToObject(json, "kernels", p->kernels);
    p->kernels = NULL;
}

void wf_bench_profile_release(struct wf_bench_profile *p)
{
    free(p->passes);
    cJSON_Delete(p->kernels);
    wf_arena_release(&p->arena);
}
