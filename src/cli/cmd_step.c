/* step: exactly one training step, and all its numbers in a safetensors file. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

#include "ckpt/safetensors.h"
#include "cli/commands.h"
#include "cli/text.h"
#include "tensor/border.h"
#include "train/gather.h"
#include "train/once.h"

struct step {
    struct wf_cli *cli;
    struct wf_job *job;
    const char *dump; /* or NULL */
    float loss;       /* by rank 0 */
};

/* A tensor of rank 0, given to the writer when its turn comes. */
struct source {
    const struct wf_once *once;
    const struct wf_value *value;
    bool is_gradient;
    float **buffer; /* shared by all: one tensor at a time */
};

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
    struct wf_host host = { 0 };
    const bool ok = wf_run_get(s->once->run, s->value, &host, err);
    if (ok)
        wf_export_view(s->value, &host.view, grown);
    wf_host_release(&host);
    for (size_t i = 0; ok && s->is_gradient && i < count; i++)
        grown[i] = (float)((double)grown[i] / s->once->scale);
    return ok ? grown : NULL;
}

struct dump {
    struct wf_safetensors_writer *writer;
    struct wf_arena *arena;
    const struct wf_once *once;
    float *buffer;
};

static void add(struct dump *d, const char *prefix, const struct wf_value *named,
                const struct wf_value *value)
{
    struct source *const s = wf_arena_one(d->arena, struct source);
    *s = (struct source){
        .once = d->once, .value = value, .is_gradient = named != value, .buffer = &d->buffer
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

static bool write_dump(const struct step *step, const struct wf_once *once, const float *pred,
                       struct wf_err *err)
{
    const struct wf_job *const job = step->job;
    struct wf_arena arena = { 0 };
    struct dump d = { .writer = wf_safetensors_begin(), .arena = &arena, .once = once };
    int64_t shape[WF_AXES];
    const int rank =
        wf_border_shape(job->net.logits->shape, job->model->dense ? job->config.dims : 0, shape);
    wf_safetensors_add(d.writer, &(struct wf_safetensors_item){
                                     .name = "loss", .dtype = WF_F32, .data = &step->loss });
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
    const bool ok = wf_safetensors_finish(d.writer, step->dump, err);
    wf_safetensors_writer_free(d.writer);
    free(d.buffer);
    wf_arena_release(&arena);
    return ok;
}

/* Collective. */
static bool dump(const struct step *step, const struct wf_once *once, struct wf_err *err)
{
    const bool writes = wf_comm_rank(once->comm) == 0;
    const struct wf_value *const logits = once->job->net.logits;
    float *const pred = writes ? calloc((size_t)wf_shape_count(logits->shape), sizeof *pred) : NULL;
    bool ok = !writes || pred || wf_err_set(err, WF_ERR_FIT, "no memory for the prediction");
    ok = wf_comm_agree(once->comm, ok, err) && wf_gather(once->run, once->comm, logits, pred, err);
    if (ok && writes)
        ok = write_dump(step, once, pred, err);
    free(pred);
    return wf_comm_agree(once->comm, ok, err);
}

static bool step_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct step *const step = arg;
    struct wf_once once = { 0 };
    bool ok = wf_once_init(&once, step->job, comm, err) && wf_once_step(&once, err);
    double loss = 0;
    ok = ok && wf_comm_agree(comm, wf_once_loss(&once, &loss, err), err);
    if (ok && wf_comm_rank(comm) == 0)
        step->loss = (float)loss;
    if (ok && step->dump)
        ok = dump(step, &once, err);
    wf_once_release(&once);
    return ok;
}

static bool print(const struct step *step, struct wf_err *err)
{
    const struct wf_job *const job = step->job;
    struct wf_arena *const arena = &step->cli->arena;
    if (step->cli->json) {
        cJSON *const json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "loss", (double)step->loss);
        cJSON_AddStringToObject(json, "mesh", wf_mesh_print(arena, &job->mesh));
        cJSON_AddNumberToObject(json, "ranks", job->ranks);
        if (step->dump)
            cJSON_AddStringToObject(json, "dump", step->dump);
        return wf_cli_print_json(step->cli, json, err);
    }
    (void)printf("loss %.9g (%s, mesh %s)\n", (double)step->loss, job->model->name,
                 wf_mesh_print(arena, &job->mesh));
    if (step->dump)
        (void)printf("written to %s\n", wf_text_shown(&step->cli->arena, step->dump));
    return true;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    const struct wf_job_files files = { .weights = wf_cli_flag(cli, "weights"),
                                        .input = wf_cli_flag(cli, "input"),
                                        .target = wf_cli_flag(cli, "target") };
    struct step step = { .cli = cli, .dump = wf_cli_flag(cli, "dump") };
    step.job = wf_cli_job(cli, &files, err);
    bool ok = step.job && wf_job_run(step.job, step_rank, &step, err);
    if (ok && !isfinite(step.loss) && cli->launch.is_root)
        wf_log(&cli->log, WF_LOG_WARN, "the loss is %g: lower train.lr or look at the input",
               (double)step.loss);
    if (ok && cli->launch.is_root)
        ok = print(&step, err);
    wf_job_free(step.job);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "weights", "F.safetensors", "weights in PyTorch's layout, instead of random ones" },
    { "input", "X.npy", "image [N, C, *spatial], instead of random data" },
    { "target", "Y.npy", "class map [N, *spatial], or an array of the prediction's shape" },
    { "dump", "OUT.safetensors", "write loss, pred, grad.<name>, param.<name>, state.<name>" },
    { .name = NULL },
};

const struct wf_command wf_command_step = {
    .name = "step",
    .summary = "run one training step and write all its tensors to a file",
    .usage =
        "step CONFIG [key=value ...] [--weights F] [--input X.npy] [--target Y.npy] [--dump OUT]",
    .notes = "Parameters and states are written as they are after the update.",
    .flags = flags,
    .config_at = 1,
    .run = run,
};
