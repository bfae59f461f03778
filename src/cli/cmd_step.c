/* step: exactly one training step, and all its numbers in a safetensors file. */
#include <cjson/cJSON.h>
#include <math.h>

#include "cli/cli.h"
#include "cli/text.h"
#include "train/stepper.h"

struct step {
    struct wf_cli *cli;
    struct wf_job *job;
    const char *dump; /* or NULL */
    float loss;       /* by rank 0 */
};

static bool step_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct step *const step = arg;
    struct wf_stepper stepper = { 0 };
    bool ok =
        wf_stepper_init(&stepper, step->job, comm, NULL, err) && wf_stepper_step(&stepper, err);
    double loss = 0;
    ok = ok && wf_comm_agree(comm, wf_stepper_loss(&stepper, &loss, err), err);
    if (ok && wf_comm_rank(comm) == 0)
        step->loss = (float)loss;
    if (ok && step->dump)
        ok = wf_stepper_dump(&stepper, step->dump, err);
    wf_stepper_release(&stepper);
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
    const struct wf_job_files files = { .keeps_outputs = true,
                                        .weights = wf_cli_flag(cli, "weights"),
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
    .opens_device = true,
    .run = run,
};
