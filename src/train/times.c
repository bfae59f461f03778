#include "train/times.h"

#include <cjson/cJSON.h>

#include "base/clock.h"

const char *const wf_time_names[WF_TIME_PARTS] = {
    [WF_TIME_STARTUP] = "startup",
    [WF_TIME_STEPS] = "steps",
    [WF_TIME_INPUT] = "input",
    [WF_TIME_VALIDATION] = "validation",
    [WF_TIME_CHECKPOINTS] = "checkpoints",
    [WF_TIME_REST] = "rest",
};

void wf_times_begin(struct wf_times *t, double now)
{
    *t = (struct wf_times){ .began = now, .last = now };
}

double wf_times_lap(struct wf_times *t, enum wf_time_part part)
{
    if (!t)
        return 0;
    const double now = wf_now(), lap = now - t->last;
    t->at[part] += lap;
    t->last = now;
    return lap;
}

void wf_times_add_comm(struct wf_times *t, double seconds)
{
    if (t)
        t->comm += seconds;
}

double wf_times_total(const struct wf_times *t)
{
    return t ? t->last - t->began : 0;
}

double wf_times_trained(const struct wf_times *t)
{
    return t ? wf_times_total(t) - t->at[WF_TIME_STARTUP] : 0;
}

void wf_times_json(cJSON *to, const struct wf_times *t)
{
    (void)cJSON_AddNumberToObject(to, "seconds", wf_times_total(t));
    cJSON *const by = cJSON_AddObjectToObject(to, "seconds_by");
    for (int i = 0; i < WF_TIME_PARTS; i++)
        (void)cJSON_AddNumberToObject(by, wf_time_names[i], t->at[i]);
    cJSON *const startup = cJSON_AddObjectToObject(to, "startup_by");
    (void)cJSON_AddNumberToObject(startup, "data", t->data);
    (void)cJSON_AddNumberToObject(startup, "plan", t->plan);
    (void)cJSON_AddNumberToObject(startup, "kernels", t->kernels);
    (void)cJSON_AddNumberToObject(startup, "rest",
                                  t->at[WF_TIME_STARTUP] - t->data - t->plan - t->kernels);
    cJSON *const steps = cJSON_AddObjectToObject(to, "steps_by");
    (void)cJSON_AddNumberToObject(steps, "compute", t->at[WF_TIME_STEPS] - t->comm);
    (void)cJSON_AddNumberToObject(steps, "communication", t->comm);
    cJSON *const rest = cJSON_AddObjectToObject(to, "rest_by");
    (void)cJSON_AddNumberToObject(rest, "pictures", t->pictures);
    (void)cJSON_AddNumberToObject(rest, "report", t->report);
    (void)cJSON_AddNumberToObject(rest, "log", t->at[WF_TIME_REST] - t->pictures - t->report);
}
