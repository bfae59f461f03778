/*
 * verify: the same step whole and cut, and how far they are apart.
 *
 * Rank 0 runs the step on a mesh of one and sends its numbers to all; then all run it on the mesh,
 * and each holds its own part of the prediction and its own copy of everything else against them.
 * So a rank whose weights have drifted from the others is seen too.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "cli/commands.h"
#include "cli/gather.h"
#include "cli/text.h"
#include "train/reduction.h"

enum kind { LOSS, PRED, GRAD, PARAM, KINDS };

static const char *const kind_names[KINDS] = { "loss", "pred", "grad", "param" };

struct tensor {
    enum kind kind;
    const char *name;
    const struct wf_value *value;
    double norm; /* of the whole step's */
    double rel;  /* the worst of all ranks */
};

struct verify {
    struct wf_job *job;
    struct tensor *tensors;
    int count;
    /* the results, by rank 0 */
    double worst[KINDS];
    int worst_at[KINDS]; /* tensor, or -1 */
};

/* --- what is compared --- */

static void list_tensors(struct verify *v)
{
    const struct wf_graph *const g = v->job->graph;
    v->tensors = wf_arena_array(&v->job->arena, 2 + 2 * g->n_values, struct tensor);
    v->tensors[v->count++] = (struct tensor){ LOSS, "loss", v->job->loss, 0, 0 };
    v->tensors[v->count++] = (struct tensor){ PRED, "pred", v->job->logits, 0, 0 };
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const p = g->values[i];
        const struct wf_value *const grad = p->grad;
        if (!grad)
            continue;
        v->tensors[v->count++] = (struct tensor){ GRAD, p->name, grad, 0, 0 };
        v->tensors[v->count++] = (struct tensor){ PARAM, p->name, p, 0, 0 };
    }
}

static size_t elements(const struct tensor *t)
{
    return (size_t)wf_shape_count(t->value->shape);
}

/* --- the whole step --- */

/* Runs on rank 0 alone and fills `whole` with each tensor in outside order, one after another. */
static bool run_whole(const struct verify *v, float *whole, struct wf_err *err)
{
    struct wf_comm *const self = wf_comm_self();
    const struct wf_mesh one = wf_mesh_one();
    struct wf_once once = { 0 };
#ifdef WF_HAVE_OPENMP
    if (!wf_options_is_set(v->job->cli->options, "run.threads"))
        omp_set_num_threads(wf_job_cores()); /* the others wait */
#endif
    bool ok = wf_once_init(&once, v->job, &one, self, err) && wf_once_step(&once, err);
    struct wf_host host = { 0 };
    for (int i = 0; ok && i < v->count; i++) {
        ok = wf_run_get(once.run, v->tensors[i].value, &host, err);
        if (ok)
            wf_export_view(v->tensors[i].value, &host.view, whole);
        whole += elements(&v->tensors[i]);
    }
    wf_host_release(&host);
    wf_once_release(&once);
    wf_comm_free(self);
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(v->job->threads);
#endif
    return ok;
}

/* --- comparing --- */

struct gap {
    double apart, whole; /* sums of squares */
};

static struct gap compare(const struct tensor *t, const struct wf_view view, const float *whole)
{
    struct gap gap = { 0, 0 };
    if (!view.data)
        return gap;
    for (struct wf_cursor c = wf_cursor(view.box); wf_cursor_next(&c);) {
        const double b = (double)whole[wf_outside_index(&t->value->shape, c.at)];
        const double d = (double)(float)wf_view_at(&view, c.at) - b;
        gap.apart += d * d;
        gap.whole += b * b;
    }
    return gap;
}

static double sum_squares(const float *at, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)at[i] * (double)at[i];
    return sum;
}

static double relative(double apart, double norm)
{
    return apart == 0 ? 0 : apart / norm; /* infinite, or NaN, where it must not pass */
}

/* NaN is worse than anything. */
static bool is_worse(double a, double b)
{
    return !isnan(b) && (isnan(a) || a > b);
}

/* Collective. apart[tensor * ranks + rank] becomes every rank's distance, on every rank. */
static bool measure(const struct verify *v, const struct wf_once *once, const float *whole,
                    double *apart, struct wf_err *err)
{
    const int ranks = wf_comm_size(once->comm), rank = wf_comm_rank(once->comm);
    struct wf_host host = { 0 };
    bool ok = true;
    for (int i = 0; ok && i < v->count; i++) {
        const struct tensor *const t = &v->tensors[i];
        ok = t->kind == PRED ? wf_run_get_owned(once->run, t->value, &host, err)
                             : wf_run_get(once->run, t->value, &host, err);
        if (ok)
            apart[i * ranks + rank] = compare(t, host.view, whole).apart;
        whole += elements(t);
    }
    wf_host_release(&host);
    if (!wf_comm_agree(once->comm, ok, err))
        return false;
    struct wf_request *request = NULL;
    return wf_comm_sum_begin(once->comm, apart, (size_t)v->count * (size_t)ranks, WF_F64, &request,
                             err) &&
           wf_comm_sum_end(once->comm, request, err);
}

/* How often an element of the prediction is held: axes that do not cut it hold it again. */
static double copies(const struct verify *v, const struct wf_once *once)
{
    const struct wf_layout *const layout = &once->scheme->geometry.layout;
    double held = 0;
    for (int r = 0; r < v->job->ranks; r++)
        held += (double)wf_region_count(wf_layout_owned(layout, v->job->logits, r));
    return held / (double)wf_shape_count(v->job->logits->shape);
}

/* What a difference is relative to: the tensor's norm; for the gradient of a bias that of its layer's
 * weight and bias together. In front of a batch norm a bias has gradient zero, and what rounding leaves
 * of it has no digits to compare. */
static double norm_against(const struct verify *v, const struct tensor *t)
{
    const char *const dot = strrchr(t->name, '.');
    if (t->kind != GRAD || !dot || strcmp(dot, ".bias") != 0)
        return t->norm;
    const size_t length = (size_t)(dot - t->name);
    for (int i = 0; i < v->count; i++) {
        const struct tensor *const w = &v->tensors[i];
        if (w->kind == GRAD && strncmp(w->name, t->name, length) == 0 &&
            strcmp(w->name + length, ".weight") == 0)
            return hypot(t->norm, w->norm);
    }
    return t->norm;
}

static void judge_tensor(const struct verify *v, struct tensor *t, const double *apart, double held)
{
    double most = 0, all = 0;
    for (int r = 0; r < v->job->ranks; r++) {
        all += apart[r];
        most = is_worse(apart[r], most) ? apart[r] : most;
    }
    t->rel = relative(sqrt(t->kind == PRED ? all / held : most), norm_against(v, t));
}

static void judge(struct verify *v, const struct wf_once *once, const double *apart,
                  const float *whole)
{
    for (int i = 0; i < v->count; i++) {
        v->tensors[i].norm = sqrt(sum_squares(whole, elements(&v->tensors[i])));
        whole += elements(&v->tensors[i]);
    }
    for (int k = 0; k < KINDS; k++)
        v->worst_at[k] = -1;
    const double held = copies(v, once);
    for (int i = 0; i < v->count; i++) {
        struct tensor *const t = &v->tensors[i];
        judge_tensor(v, t, apart + (size_t)i * (size_t)v->job->ranks, held);
        if (v->worst_at[t->kind] < 0 || is_worse(t->rel, v->worst[t->kind])) {
            v->worst[t->kind] = t->rel;
            v->worst_at[t->kind] = i;
        }
    }
}

/* Collective. The step on the mesh, against the numbers of the whole one. */
static bool run_cut(struct verify *v, struct wf_comm *comm, const float *whole, double *apart,
                    struct wf_err *err)
{
    struct wf_once once = { 0 };
    const bool ok = wf_once_init(&once, v->job, &v->job->mesh, comm, err) &&
                    wf_once_step(&once, err) && measure(v, &once, whole, apart, err);
    if (ok && wf_comm_rank(comm) == 0)
        judge(v, &once, apart, whole);
    wf_once_release(&once);
    return ok;
}

static bool verify_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct verify *const v = arg;
    const bool first = wf_comm_rank(comm) == 0;
    size_t total = 0;
    for (int i = 0; i < v->count; i++)
        total += elements(&v->tensors[i]);
    WF_BUG_ON(total == 0, "nothing to compare");
    float *const whole = calloc(total, sizeof *whole);
    struct wf_arena arena = { 0 };
    double *const apart = wf_arena_array(&arena, v->count * v->job->ranks, double);
    bool ok = whole || wf_err_set(err, WF_ERR_FIT, "no memory to keep the whole step's numbers");
    if (ok && first)
        ok = run_whole(v, whole, err) || wf_err_wrap(err, "running the step whole");
    ok = wf_comm_agree(comm, ok, err) && whole &&
         wf_comm_broadcast(comm, 0, whole, total * sizeof *whole, err) &&
         run_cut(v, comm, whole, apart, err);
    wf_arena_release(&arena);
    free(whole);
    return ok;
}

/* --- telling --- */

static bool print_json(const struct verify *v, double tolerance, bool pass, struct wf_err *err)
{
    const struct wf_job *const job = v->job;
    cJSON *const json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "mesh", wf_mesh_print(&job->cli->arena, &job->mesh));
    cJSON_AddNumberToObject(json, "ranks", job->ranks);
    for (int k = 0; k < KINDS; k++) {
        const char *const key = wf_arena_printf(&job->cli->arena, "%s_rel", kind_names[k]);
        cJSON_AddNumberToObject(json, key, v->worst[k]);
    }
    cJSON_AddBoolToObject(json, "pass", pass);
    cJSON_AddNumberToObject(json, "tolerance", tolerance);
    return wf_cli_print_json(job->cli, json, err);
}

static void print_text(const struct verify *v, double tolerance, bool pass)
{
    struct wf_arena *const arena = &v->job->cli->arena;
    (void)printf("%s, mesh %s (%s) against one rank\n\n", v->job->model->name,
                 wf_mesh_print(arena, &v->job->mesh), wf_text_ranks(arena, v->job->ranks));
    struct wf_table t = { .arena = arena };
    wf_table_row(&t, 5,
                 (const char *[]){ "what", ">tensors", ">relative error", "", "worst tensor" });
    for (int k = 0; k < KINDS; k++) {
        int count = 0;
        for (int i = 0; i < v->count; i++)
            count += v->tensors[i].kind == (enum kind)k;
        wf_table_row(&t, 5,
                     (const char *[]){ kind_names[k], wf_arena_printf(arena, "%d", count),
                                       wf_arena_printf(arena, "%.2e", v->worst[k]),
                                       v->worst[k] <= tolerance ? "ok" : "too far",
                                       v->worst_at[k] < 0 ? "" : v->tensors[v->worst_at[k]].name });
    }
    wf_table_print(&t, stdout);
    (void)printf("\n%s: tolerance %g\n", pass ? "the same numbers" : "not the same numbers",
                 tolerance);
}

static bool report(const struct verify *v, double tolerance, struct wf_err *err)
{
    bool pass = true;
    int worst = 0;
    for (int k = 0; k < KINDS; k++) {
        pass = pass && v->worst[k] <= tolerance;
        worst = is_worse(v->worst[k], v->worst[worst]) ? k : worst;
    }
    if (v->job->cli->json) {
        if (!print_json(v, tolerance, pass, err))
            return false;
    } else {
        print_text(v, tolerance, pass);
    }
    if (pass)
        return true;
    return wf_err_set(err, WF_ERR_FAILED, "%s of '%s' differs by %.2e, tolerance %g",
                      kind_names[worst], v->tensors[v->worst_at[worst]].name, v->worst[worst],
                      tolerance);
}

/* Numbers that depend on the mesh by intent are not for comparing. */
static bool is_comparable(const struct wf_options *o, const struct wf_graph *g, struct wf_err *err)
{
    if (wf_options_int(o, "train.reduction") != WF_REDUCTION_GLOBAL)
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.reduction=rank_mean averages over ranks, so its numbers depend on "
                          "the mesh and there is nothing to verify: use global");
    for (size_t i = 0; i < g->n_nodes; i++)
        if (wf_op_stays(g->nodes[i]))
            return wf_err_set(err, WF_ERR_USAGE,
                              "layer '%s' takes its statistics over each rank's own part, so its "
                              "numbers depend on the mesh and there is nothing to verify: use "
                              "model.statistics=global or tile",
                              g->nodes[i]->name);
    return true;
}

/* Weights are compared after plain descent, whatever the options say: Adam's first step is the sign of
 * the gradient, and one that is nothing but rounding becomes a whole step. Its rules are compared with
 * PyTorch's in tests/test_optim.c. */
static bool set_plain_descent(struct wf_cli *cli, struct wf_err *err)
{
    return wf_options_set(cli->options, "train.optimizer", "sgd", err) &&
           wf_options_set(cli->options, "train.weight_decay", "0", err) &&
           wf_options_set(cli->options, "train.clip", "0", err);
}

/* A ReLU turns a difference in the last bit of the forward pass into a thousandth of a gradient: on a
 * GPU only kernels are compared whose sums do not depend on the cut. */
static bool set_exact_kernels(struct wf_cli *cli, struct wf_err *err)
{
    return wf_options_set(cli->options, "run.deterministic", "mesh", err);
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    if (!set_plain_descent(cli, err) || !set_exact_kernels(cli, err))
        return false;
    struct verify v = { .job = wf_job_new(cli, &(struct wf_job_files){ 0 }, err) };
    if (!v.job)
        return false;
    double tolerance = v.job->graph->options.compute == WF_F32 ? 1e-5 : 2e-2;
    bool ok = wf_cli_flag_real(cli, "tolerance", 0, 1, &tolerance, err) &&
              is_comparable(cli->options, v.job->graph, err);
    if (ok) {
        list_tensors(&v);
        ok = wf_job_run(v.job, verify_rank, &v, err);
    }
    if (ok && cli->speaks)
        ok = report(&v, tolerance, err);
    if (cli->world)
        ok = wf_comm_agree(cli->world, ok, err);
    wf_job_free(v.job);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "tolerance", "T", "largest relative error that passes (1e-5; bf16 and f16: 2e-2)" },
    { .name = NULL },
};

const struct wf_command wf_command_verify = {
    .name = "verify",
    .summary = "one step whole, one step cut: compares loss, predictions, gradients, weights",
    .usage = "verify CONFIG [key=value ...] [--mesh AXES] [--tolerance T] [--json]",
    .notes =
        "Each figure is the worst tensor's norm(cut - whole) / norm(whole); the gradient of a bias "
        "is held\nagainst weight and bias together. Weights are those after plain descent, whatever the "
        "optimizer.\nExit status 1 when one is past the tolerance.",
    .flags = flags,
    .config_at = 1,
    .run = run,
};
