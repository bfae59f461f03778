#include "train/scaling.h"

#include <math.h>
#include <stdlib.h>

#include "train/all_ranks.h"
#include "train/choose.h"
#include "train/foresight.h"

enum {
    PIPE_MOST = 16,
    BEST = 4,  /* meshes that are planned for their rule of thumb alone */
    KINDS = 8, /* sets of axes: data, pipe, space */
};

int wf_scaling_kind(const struct wf_mesh *m)
{
    const int space = m->at[WF_MESH_D] * m->at[WF_MESH_H] * m->at[WF_MESH_W];
    return (m->at[WF_MESH_DATA] > 1) + 2 * (m->at[WF_MESH_PIPE] > 1) + 4 * (space > 1);
}

/* The most promising, and of each kind the most promising; the list is in order. */
static int pick(const struct wf_mesh_candidates *list, struct wf_mesh picked[WF_SCALING_ROWS])
{
    bool seen[KINDS] = { false };
    int n = 0;
    for (size_t i = 0; i < list->count && n < WF_SCALING_ROWS; i++) {
        const int kind = wf_scaling_kind(&list->at[i].mesh);
        if (n >= BEST && seen[kind])
            continue;
        seen[kind] = true;
        picked[n++] = list->at[i].mesh;
    }
    return n;
}

static bool plan_row(const struct wf_scaling *s, struct wf_scaling_row *row, struct wf_err *err)
{
    const struct wf_job *const job = s->job;
    struct wf_plan_options options = wf_job_plan_options(job);
    options.rough = true;
    struct wf_global_plan *const global =
        wf_global_plan_new(job->net.graph, &row->mesh, &options, err);
    struct wf_all_ranks *const all = global ? wf_all_ranks_typical(global, err) : NULL;
    for (int i = 0; all && i < all->n_ranks; i++) {
        const struct wf_rank_figures *const r = &all->ranks[i];
        const size_t bytes =
            r->arena_bytes + r->weight_bytes + wf_job_optim_bytes(job, r->trained_count);
        row->bytes = bytes > row->bytes ? bytes : row->bytes;
        row->fetch_bytes = r->fetch_bytes > row->fetch_bytes ? r->fetch_bytes : row->fetch_bytes;
        row->reduce_bytes =
            r->reduce_bytes > row->reduce_bytes ? r->reduce_bytes : row->reduce_bytes;
        row->compute = fmax(row->compute, r->compute_seconds);
        row->waiting = fmax(row->waiting, r->seconds - r->compute_seconds);
    }
    if (all) {
        row->seconds = wf_foresight_step(job, all);
        row->bubble = wf_all_ranks_bubble(all);
        row->fits = !options.limit || row->bytes <= options.limit;
    }
    const bool ok = all != NULL;
    wf_all_ranks_free(all);
    wf_global_plan_free(global);
    return ok;
}

static int best_first(const void *a, const void *b)
{
    const struct wf_scaling_row *const x = a, *const y = b;
    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

bool wf_scaling_run(struct wf_scaling *s, struct wf_err *err)
{
    const struct wf_mesh_candidates list =
        wf_mesh_candidates(s->job->net.graph, s->devices, PIPE_MOST, wf_job_micro_batches(s->job));
    struct wf_mesh picked[WF_SCALING_ROWS];
    const int n = pick(&list, picked);
    free(list.at);
    s->n_rows = 0;
    for (int i = 0; i < n; i++) {
        struct wf_scaling_row row = { .mesh = picked[i] };
        *err = (struct wf_err){ 0 };
        if (plan_row(s, &row, err))
            s->rows[s->n_rows++] = row;
        else if (err->code != WF_ERR_FIT && err->code != WF_ERR_USAGE)
            return false;
    }
    if (s->n_rows == 0)
        return err->code ? wf_err_wrap(err, "%d devices", s->devices)
                         : wf_err_set(err, WF_ERR_FIT,
                                      "no mesh cuts this image and batch over %d devices: use a "
                                      "larger batch or fewer devices",
                                      s->devices);
    *err = (struct wf_err){ 0 };
    qsort(s->rows, (size_t)s->n_rows, sizeof *s->rows, best_first);
    return true;
}
