#include "train/all_ranks.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/stop.h"
#include "plan/message_check.h"
#include "plan/plan_cache.h"

static struct wf_rank_figures figures_of(const struct wf_plan *plan)
{
    struct wf_rank_figures r = {
        .arena_bytes = plan->arena_bytes,
        .live_bytes = plan->live_bytes,
        .weight_bytes = wf_plan_param_bytes(plan),
        .trained_count = plan->trained_count,
        .fetch_bytes = plan->fetch_bytes,
        .reduce_bytes = plan->reduce_bytes,
        .steps = plan->n_steps,
        .references = plan->references,
        .flops = plan->flops,
        .seconds = plan->seconds,
        .compute_seconds = plan->compute_seconds,
        .link_seconds = plan->link_seconds,
    };
    for (int i = 0; i < plan->n_steps; i++) {
        const struct wf_step *const s = &plan->steps[i];
        r.meetings += s->kind == WF_STEP_FETCH_END || s->kind == WF_STEP_SUM_END;
        if (wf_step_is_for_limit(plan, s))
            r.recompute_seconds += s->seconds;
    }
    for (int i = 0; i < plan->n_exchanges; i++)
        for (int m = 0; m < plan->exchanges[i].n_messages; m++) {
            const struct wf_plan_message *const message = &plan->exchanges[i].messages[m];
            r.messages++;
            r.send_bytes += message->is_send ? message->bytes : 0;
        }
    return r;
}

static struct wf_all_ranks *take(const struct wf_global_plan *global, struct wf_context *context,
                                 int count)
{
    struct wf_all_ranks *const s = wf_take_zeroed(1, sizeof *s);
    s->global = global;
    s->context = context;
    s->n_ranks = count;
    s->ranks = wf_arena_array(&s->arena, s->n_ranks, struct wf_rank_figures);
    s->work = wf_arena_array(&s->arena, global->stages.n_segments, double);
    s->travel = wf_arena_array(&s->arena, global->stages.n_segments, double);
    return s;
}

/* The step of ranks that are all known. */
static void find_step(struct wf_all_ranks *s)
{
    const struct wf_turns_time time = wf_turns_estimate(
        &s->arena, &s->global->stages, &s->global->options.pipe, s->work, s->travel);
    s->seconds = time.seconds;
    s->bubbles = time.idle;
}

/* Plans a rank, as number `at` of those that are planned. */
static bool look_at(struct wf_all_ranks *s, int at, int rank, struct wf_plan_cache *cache,
                    struct wf_message_check *check, struct wf_err *err)
{
    if (wf_stop_asked(s->global->options.stop, err))
        return false;
    struct wf_plan *const plan = wf_plan_estimate_on(s->global, rank, s->context, cache, err);
    if (!plan)
        return wf_err_wrap(err, "rank %d", rank);
    s->ranks[at] = figures_of(plan);
    for (int i = 0; i < s->global->stages.n_segments; i++) {
        s->work[i] = fmax(s->work[i], plan->parts[wf_part_work(i)].seconds);
        s->travel[i] = fmax(s->travel[i], plan->parts[wf_part_transfers(i)].seconds);
    }
    if (check)
        wf_message_check_add(check, plan);
    wf_plan_free(plan);
    return true;
}

/* These ranks, or all (NULL). */
static struct wf_all_ranks *look_at_ranks(const struct wf_global_plan *global,
                                          struct wf_context *context, const int ranks[], int count,
                                          struct wf_err *err)
{
    struct wf_all_ranks *const s = take(global, context, count);
    struct wf_plan_cache cache = { 0 };
    struct wf_message_check check = { 0 };
    bool ok = true;
    for (int i = 0; ok && i < count; i++)
        ok = look_at(s, i, ranks ? ranks[i] : i, &cache, ranks ? NULL : &check, err);
    ok = ok && (ranks || wf_message_check_run(&check, &global->geometry.groups, err));
    wf_message_check_release(&check);
    wf_plan_cache_release(&cache);
    if (ok) {
        find_step(s);
        return s;
    }
    wf_all_ranks_free(s);
    return NULL;
}

struct wf_all_ranks *wf_all_ranks_new(const struct wf_global_plan *global,
                                      struct wf_context *context, struct wf_err *err)
{
    return look_at_ranks(global, context, NULL, global->geometry.n_ranks, err);
}

static void add_rank(int ranks[], int *count, int rank)
{
    for (int i = 0; i < *count; i++)
        if (ranks[i] == rank)
            return;
    ranks[(*count)++] = rank;
}

struct wf_all_ranks *wf_all_ranks_typical(const struct wf_global_plan *global, struct wf_err *err)
{
    const struct wf_mesh *const mesh = &global->mesh;
    const int stages = mesh->at[WF_MESH_PIPE], workers = mesh->at[WF_MESH_DOMAIN];
    struct wf_arena arena = { 0 };
    int *const ranks = wf_arena_array(&arena, 3 * stages * workers, int);
    int count = 0, at[WF_MESH_AXES];
    for (int i = 0; i < stages * workers; i++)
        for (int place = 0; place < 3; place++) {
            for (int a = 0; a < WF_MESH_AXES; a++)
                at[a] = place * (mesh->at[a] - 1) / 2;
            at[WF_MESH_PIPE] = i % stages;
            at[WF_MESH_DOMAIN] = i / stages;
            add_rank(ranks, &count, wf_mesh_rank(mesh, at));
        }
    struct wf_all_ranks *const s = look_at_ranks(global, NULL, ranks, count, err);
    wf_arena_release(&arena);
    return s;
}

/* Everyone's entry of a table is a sum with zeros. */
static_assert(sizeof(struct wf_rank_figures) % sizeof(int64_t) == 0, "a list of numbers");

struct wf_all_ranks *wf_all_ranks_gather(const struct wf_plan *plan, struct wf_comm *comm,
                                         struct wf_err *err)
{
    const int ranks = wf_comm_size(comm), me = wf_comm_rank(comm);
    const int segments = plan->global->stages.n_segments;
    struct wf_all_ranks *const s = take(plan->global, NULL, ranks);
    const size_t row = 2 * (size_t)segments;
    double *const seconds = wf_arena_array(&s->arena, (size_t)ranks * row + 1, double);
    s->ranks[me] = figures_of(plan);
    for (int i = 0; i < segments; i++) {
        seconds[(size_t)me * row + (size_t)i] = plan->parts[wf_part_work(i)].seconds;
        seconds[(size_t)me * row + (size_t)(segments + i)] =
            plan->parts[wf_part_transfers(i)].seconds;
    }
    if (!wf_comm_sum(comm, s->ranks, (size_t)ranks * sizeof *s->ranks / sizeof(int64_t), WF_I64,
                     err) ||
        !wf_comm_sum(comm, seconds, (size_t)ranks * row, WF_F64, err)) {
        wf_all_ranks_free(s);
        return NULL;
    }
    for (size_t r = 0; r < (size_t)ranks; r++)
        for (int i = 0; i < segments; i++) {
            s->work[i] = fmax(s->work[i], seconds[r * row + (size_t)i]);
            s->travel[i] = fmax(s->travel[i], seconds[r * row + (size_t)(segments + i)]);
        }
    find_step(s);
    return s;
}

double wf_all_ranks_bubble(const struct wf_all_ranks *all)
{
    const int n = all->global->stages.n_stages;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += all->bubbles[i] / n;
    return sum;
}

void wf_all_ranks_free(struct wf_all_ranks *all)
{
    if (!all)
        return;
    wf_arena_release(&all->arena);
    free(all);
}
