/* What the options say of updates: optimiser, step, learning rate. */
#include "cli/once.h"

struct wf_optim_options wf_job_optim_options(const struct wf_options *o)
{
    struct wf_optim_options options =
        wf_optim_defaults((enum wf_optim_rule)wf_options_int(o, "train.optimizer"));
    const struct {
        const char *key;
        double *to;
    } reals[] = {
        { "train.lr", &options.lr },       { "train.momentum", &options.momentum },
        { "train.beta1", &options.beta1 }, { "train.beta2", &options.beta2 },
        { "train.eps", &options.eps },     { "train.weight_decay", &options.weight_decay },
        { "train.trust", &options.trust }
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        if (wf_options_is_set(o, reals[i].key))
            *reals[i].to = wf_options_real(o, reals[i].key);
    options.matrices_only = wf_options_int(o, "train.decay_vectors") == 0;
    options.accumulates = wf_options_int(o, "train.accumulate") > 1;
    return options;
}

struct wf_learner_options wf_job_learner_options(const struct wf_job *job, struct wf_comm *comm,
                                                 struct wf_optim *optim)
{
    const struct wf_options *const o = job->cli->options;
    struct wf_scaler scaler = wf_scaler_init(job->graph->options.compute == WF_F16);
    if (scaler.dynamic)
        scaler.scale = wf_options_real(o, "train.loss_scale");
    return (struct wf_learner_options){ .comm = comm,
                                        .optim = optim,
                                        .clip = wf_options_real(o, "train.clip"),
                                        .start = job->start,
                                        .scaler = scaler };
}

struct wf_schedule wf_job_schedule(const struct wf_job *job)
{
    const struct wf_options *const o = job->cli->options;
    const enum wf_schedule_kind kind = (enum wf_schedule_kind)wf_options_int(o, "train.schedule");
    const double scale = wf_lr_scale((enum wf_lr_scaling)wf_options_int(o, "train.lr_scaling"),
                                     job->mesh.at[WF_MESH_DATA]);
    const double gamma = kind == WF_SCHEDULE_EXPONENTIAL ? 0.95 : 0.1;
    return (struct wf_schedule){
        .kind = kind,
        .lr = scale * wf_options_real(o, "train.lr"),
        .gamma = wf_options_is_set(o, "train.gamma") ? wf_options_real(o, "train.gamma") : gamma,
        .least = wf_options_real(o, "train.lr_min"),
        .every = wf_options_int(o, "train.schedule_every"),
        .length = wf_options_int(o, "train.epochs"),
        .patience = wf_options_int(o, "train.patience"),
        .by_step = wf_options_int(o, "train.schedule_by") != 0,
        .warmup = wf_options_real(o, "train.warmup"),
        .from = scale > 1 ? 1 / scale : 0, /* the rate of one rank */
    };
}
