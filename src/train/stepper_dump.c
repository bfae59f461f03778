/* All numbers of a step in a safetensors file, with the names and shapes that people outside know. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/safetensors.h"
#include "exec/holders.h"
#include "tensor/border.h"
#include "train/gather.h"
#include "train/stepper.h"

/* A tensor of rank 0, given to the writer when its turn comes. */
struct source {
    const struct wf_stepper *stepper;
    const struct wf_value *value;
    bool is_gradient;
    float **buffer; /* shared by all: one tensor at a time */
};

/* Gradients have the places of their parameters. */
enum { PARAMS, STATES, GRADIENTS };

/* From this rank, or from the first that holds it. */
static bool take(const struct source *s, float *to, struct wf_err *err)
{
    const struct wf_run *const run = s->stepper->run;
    const struct wf_value *const of = s->is_gradient ? s->value->grad_of : s->value;
    const struct wf_region all = wf_shape_region(of->shape);
    struct wf_host host = { 0 };
    float *fetched = NULL;
    bool ok;
    if (wf_run_view(run, of).data) {
        ok = wf_run_get(run, s->value, &host, err);
        if (ok)
            wf_export_view(s->value, &host.view, to);
    } else {
        const int array = s->is_gradient ? GRADIENTS : of->kind == WF_STATE ? STATES : PARAMS;
        fetched = wf_take((size_t)wf_shape_count(of->shape) * sizeof *fetched);
        ok = wf_run_ask(run, array, of, fetched, err);
        const struct wf_view view = wf_view_dense(fetched, WF_F32, all);
        if (ok)
            wf_export_view(of, &view, to);
    }
    free(fetched);
    wf_host_release(&host);
    return ok;
}

static const void *give(void *user, struct wf_err *err)
{
    const struct source *const s = user;
    const size_t count = (size_t)wf_shape_count(s->value->shape);
    float *const grown = realloc(*s->buffer, count * sizeof *grown);
    if (!grown) {
        (void)wf_err_set(err, WF_ERR_FIT, "no memory to write '%s'", s->value->name);
        return NULL;
    }
    *s->buffer = grown;
    const bool ok = take(s, grown, err);
    for (size_t i = 0; ok && s->is_gradient && i < count; i++)
        grown[i] = (float)((double)grown[i] / s->stepper->scale);
    return ok ? grown : NULL;
}

struct dump {
    struct wf_safetensors_writer *writer;
    struct wf_arena *arena;
    const struct wf_stepper *stepper;
    float *buffer;
};

static void add(struct dump *d, const char *prefix, const struct wf_value *named,
                const struct wf_value *value)
{
    struct source *const s = wf_arena_one(d->arena, struct source);
    *s = (struct source){
        .stepper = d->stepper, .value = value, .is_gradient = named != value, .buffer = &d->buffer
    };
    int64_t shape[WF_AXES];
    const int rank = wf_border_shape(named->shape, named->border_dims, shape);
    wf_safetensors_add(d->writer,
                       &(struct wf_safetensors_item){
                           .name = wf_arena_printf(d->arena, "%s%s", prefix, named->name),
                           .dtype = WF_F32,
                           .rank = rank,
                           .shape = shape,
                           .give = give,
                           .user = s });
}

/* Positions of a micro-batch: of a sparse network its points. */
static int64_t extent_of_pred(const struct wf_job *job)
{
    return job->net.logits->set ? job->points->n : job->net.logits->shape.at[WF_N];
}

static bool write_dump(const struct wf_stepper *stepper, const char *path, const float *pred,
                       float loss, struct wf_err *err)
{
    const struct wf_job *const job = stepper->job;
    struct wf_arena arena = { 0 };
    struct dump d = { .writer = wf_safetensors_begin(), .arena = &arena, .stepper = stepper };
    int64_t shape[WF_AXES];
    const bool is_image = !job->model->sparse && wf_model_is_dense(job->model, &job->config);
    const int rank =
        wf_border_shape(job->net.logits->shape, is_image ? job->config.dims : 0, shape);
    shape[0] = extent_of_pred(job) * wf_job_micro_batches(job);
    wf_safetensors_add(
        d.writer, &(struct wf_safetensors_item){ .name = "loss", .dtype = WF_F32, .data = &loss });
    wf_safetensors_add(
        d.writer,
        &(struct wf_safetensors_item){
            .name = "pred", .dtype = WF_F32, .rank = rank, .shape = shape, .data = pred });
    for (size_t i = 0; i < job->net.graph->n_values; i++) {
        const struct wf_value *const v = job->net.graph->values[i];
        if (v->grad)
            add(&d, "grad.", v, v->grad);
        if (v->kind == WF_PARAM || v->kind == WF_STATE)
            add(&d, v->kind == WF_PARAM ? "param." : "state.", v, v);
    }
    const bool ok = wf_safetensors_finish(d.writer, path, err);
    wf_safetensors_writer_free(d.writer);
    free(d.buffer);
    wf_arena_release(&arena);
    return ok;
}

/* Rows of ranks, one after the other, into the order of the points. */
static void order_points(const struct wf_job *job, const float *rows, int micro, float *points)
{
    const struct wf_value *const v = job->net.logits;
    const struct wf_points_rows *const r = &job->rows[micro];
    const int64_t width = v->shape.at[WF_C];
    for (int part = 0; part < r->parts; part++)
        for (int64_t i = 0; i < wf_rows_count(r, part); i++)
            memcpy(points + r->point[r->first[part] + i] * width,
                   rows + (wf_split_point(v->shape.at[WF_N], r->parts, part) + i) * width,
                   (size_t)width * sizeof *points);
}

/* Collective. The prediction of a micro-batch, whole on rank 0. */
static bool gather_pred(const struct wf_stepper *s, int micro, float *to, struct wf_err *err)
{
    const struct wf_value *const logits = s->job->net.logits;
    float *const rows =
        to && logits->set ? wf_take((size_t)wf_shape_count(logits->shape) * sizeof *rows) : NULL;
    wf_run_select(s->run, micro);
    const bool ok = wf_gather(s->run, s->comm, logits, rows ? rows : to, err);
    if (ok && rows)
        order_points(s->job, rows, micro, to);
    free(rows);
    return ok;
}

bool wf_stepper_dump(const struct wf_stepper *stepper, const char *path, struct wf_err *err)
{
    const bool writes = wf_comm_rank(stepper->comm) == 0;
    const struct wf_value *const logits = stepper->job->net.logits;
    const int micro = wf_job_micro_batches(stepper->job);
    const size_t each = (size_t)(wf_shape_count(logits->shape) / logits->shape.at[WF_N] *
                                 extent_of_pred(stepper->job));
    float *const pred = writes ? calloc((size_t)micro * each, sizeof *pred) : NULL;
    bool ok = !writes || pred || wf_err_set(err, WF_ERR_FIT, "no memory for the prediction");
    double loss = 0;
    ok = wf_comm_agree(stepper->comm, ok, err);
    for (int m = 0; ok && m < micro; m++)
        ok = gather_pred(stepper, m, pred ? pred + (size_t)m * each : NULL, err);
    ok = ok && wf_stepper_loss(stepper, &loss, err);
    const bool whole = wf_run_is_whole(stepper->run);
    if (ok && writes) {
        ok = write_dump(stepper, path, pred, (float)loss, err);
        ok = (whole || wf_run_ask_end(stepper->run, err)) && ok;
    } else if (ok && !whole) {
        ok = wf_run_serve(stepper->run, (float *[]){ wf_run_grads(stepper->run) }, 1, err);
    }
    free(pred);
    return wf_comm_agree(stepper->comm, ok, err);
}
