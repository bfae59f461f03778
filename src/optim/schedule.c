#include "optim/schedule.h"

#include <math.h>
#include <stddef.h>

const char *const wf_schedule_names[] = {
    [WF_SCHEDULE_CONSTANT] = "constant",       [WF_SCHEDULE_STEP] = "step",
    [WF_SCHEDULE_EXPONENTIAL] = "exponential", [WF_SCHEDULE_COSINE] = "cosine",
    [WF_SCHEDULE_PLATEAU] = "plateau",         [WF_SCHEDULES] = NULL,
};

const char *const wf_lr_scaling_names[] = {
    [WF_SCALING_NONE] = "none",
    [WF_SCALING_LINEAR] = "linear",
    [WF_SCALING_ROOT] = "root",
    NULL,
};

struct wf_schedule_state wf_schedule_start(void)
{
    return (struct wf_schedule_state){ .factor = 1 };
}

double wf_lr_scale(enum wf_lr_scaling scaling, int data_ranks)
{
    return scaling == WF_SCALING_LINEAR ? data_ranks
           : scaling == WF_SCALING_ROOT ? sqrt(data_ranks)
                                        : 1;
}

static double plain_lr(const struct wf_schedule *s, const struct wf_schedule_state *state,
                       int64_t clock, int64_t length)
{
    static const double pi = 3.14159265358979323846;
    const int64_t changes = s->kind == WF_SCHEDULE_STEP ? clock / s->every : clock;
    switch (s->kind) {
    case WF_SCHEDULE_STEP:
    case WF_SCHEDULE_EXPONENTIAL:
        return s->lr * pow(s->gamma, (double)changes);
    case WF_SCHEDULE_COSINE: {
        const double part = fmin(1, (double)clock / (double)length);
        return s->least + (s->lr - s->least) * (1 + cos(pi * part)) / 2;
    }
    case WF_SCHEDULE_PLATEAU:
        return fmax(s->lr * state->factor, s->least);
    case WF_SCHEDULE_CONSTANT:
    case WF_SCHEDULES:
        break;
    }
    return s->lr;
}

double wf_schedule_lr(const struct wf_schedule *s, const struct wf_schedule_state *state,
                      int64_t step, int64_t steps)
{
    const double lr =
        plain_lr(s, state, s->by_step ? step : step / steps, s->length * (s->by_step ? steps : 1));
    const double warm = s->warmup * (double)steps;
    if ((double)step + 1 >= warm)
        return lr;
    return lr * (s->from + (1 - s->from) * ((double)step + 1) / warm);
}

void wf_schedule_watch(const struct wf_schedule *s, struct wf_schedule_state *state, double loss)
{
    static const double threshold = 1e-4;
    if (s->kind != WF_SCHEDULE_PLATEAU)
        return;
    const bool better = state->seen == 0 ? isfinite(loss) : loss < state->best * (1 - threshold);
    if (better) {
        state->best = loss;
        state->seen++;
        state->bad = 0;
        return;
    }
    if (++state->bad <= s->patience)
        return;
    state->factor *= s->gamma;
    state->bad = 0;
}
