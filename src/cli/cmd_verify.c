/* verify: the same step whole and cut, and how far they are apart (train/verify.h). */
#include <cjson/cJSON.h>

#include "cli/cli.h"
#include "cli/text.h"
#include "config/options_settings.h"
#include "train/verify.h"

static const char *describe_turned(struct wf_arena *arena, const struct wf_verify *v)
{
    return wf_arena_printf(
        arena,
        "%lld %s of whole and cut differ%s, the first in layer '%s', all within rounding (%.0e of "
        "the layer's scale)",
        (long long)v->turned.count,
        v->turned.is_pooling ? "choices of a max pooling" : "decisions of a ReLU",
        v->turned.count == 1 ? "s" : "", v->turned.layer, v->turned.distance);
}

static bool print_json(struct wf_cli *cli, const struct wf_verify *v, struct wf_err *err)
{
    const struct wf_job *const job = v->job;
    cJSON *const json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "mesh", wf_mesh_print(&cli->arena, &job->mesh));
    cJSON_AddNumberToObject(json, "ranks", job->ranks);
    for (int k = 0; k < WF_VERIFY_KINDS; k++) {
        const char *const key = wf_arena_printf(&cli->arena, "%s_rel", wf_verify_kind_names[k]);
        cJSON_AddNumberToObject(json, key, v->worst[k]);
    }
    cJSON_AddBoolToObject(json, "pass", v->pass);
    cJSON_AddNumberToObject(json, "tolerance", v->tolerance);
    cJSON_AddNumberToObject(json, "rounding", v->excused);
    if (v->excused > 0) {
        const struct wf_verify_tensor *const t = &v->tensors[v->excused_worst];
        cJSON_AddStringToObject(json, "rounding_worst", t->name);
        cJSON_AddNumberToObject(json, "rounding_rel", t->rel);
        cJSON_AddNumberToObject(json, "rounding_alone", wf_verify_rounding(v, t));
    }
    if (v->moved.by > 0)
        cJSON_AddNumberToObject(json, "moved", v->moved.by);
    cJSON_AddNumberToObject(json, "turned", (double)v->turned.count);
    if (v->turned.count > 0)
        cJSON_AddStringToObject(json, "turned_layer", v->turned.layer);
    return wf_cli_print_json(cli, json, err);
}

static void print_text(struct wf_arena *arena, const struct wf_verify *v)
{
    (void)printf("%s, mesh %s (%s) against one rank\n\n", v->job->model->name,
                 wf_mesh_print(arena, &v->job->mesh), wf_text_ranks(arena, v->job->ranks));
    struct wf_table t = { .arena = arena };
    wf_table_row(&t, 5,
                 (const char *[]){ "what", ">tensors", ">relative error", "", "worst tensor" });
    for (int k = 0; k < WF_VERIFY_KINDS; k++) {
        int count = 0;
        for (int i = 0; i < v->count; i++)
            count += v->tensors[i].kind == (enum wf_verify_kind)k && !v->tensors[i].excused;
        wf_table_row(&t, 5,
                     (const char *[]){ wf_verify_kind_names[k], wf_arena_printf(arena, "%d", count),
                                       wf_arena_printf(arena, "%.2e", v->worst[k]),
                                       v->worst[k] <= v->tolerance ? "ok" : "too far",
                                       v->worst_at[k] < 0 ? "" : v->tensors[v->worst_at[k]].name });
    }
    wf_table_print(&t, stdout);
    if (v->excused > 0) {
        const struct wf_verify_tensor *const worst = &v->tensors[v->excused_worst];
        (void)printf("\n%d more differ within rounding, such as the %s of '%s': %.2e, where other "
                     "last bits of image and weights alone make %.2e\n",
                     v->excused, wf_verify_kind_names[worst->kind], worst->name, worst->rel,
                     wf_verify_rounding(v, worst));
    }
    if (v->turned.count > 0)
        (void)printf("\n%s\n", describe_turned(arena, v));
    if (v->moved.by > 0)
        (void)printf(
            "\nso that such decisions are clear, the figures are those with image and weights "
            "moved by %g\n",
            v->moved.by);
    (void)printf("\n%s: tolerance %g\n", v->pass ? "the same numbers" : "not the same numbers",
                 v->tolerance);
}

static bool report(struct wf_cli *cli, const struct wf_verify *v, struct wf_err *err)
{
    if (!cli->json)
        print_text(&cli->arena, v);
    return (!cli->json || print_json(cli, v, err)) && wf_verify_verdict(v, err);
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    struct wf_settings settings;
    struct wf_verify v = { 0 };
    bool ok = wf_options_settings(cli->options, &settings, err);
    if (!wf_launch_agree(&cli->launch, ok, err))
        return false;
    wf_verify_settle(&settings);
    v.job =
        wf_job_new(&cli->launch, &settings, &(struct wf_job_files){ .keeps_outputs = true }, err);
    if (!v.job)
        return false;
    v.tolerance = v.job->net.graph->options.compute == WF_F32 ? 1e-5 : 2e-2;
    ok = wf_cli_flag_real(cli, "tolerance", 0, 1, &v.tolerance, err) && wf_verify_run(&v, err);
    if (ok && cli->launch.is_root)
        ok = report(cli, &v, err);
    ok = wf_launch_agree(&cli->launch, ok, err);
    wf_job_free(v.job);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "tolerance", "T",
      "largest relative error that passes (1e-5; bf16 and f16: 2e-2); 0: equal bit for bit" },
    { .name = NULL },
};

const struct wf_command wf_command_verify = {
    .name = "verify",
    .summary =
        "compare a step on one rank with the same step on a mesh: loss, predictions, gradients, weights",
    .usage = "verify CONFIG [key=value ...] [--mesh AXES] [--tolerance T] [--json]",
    .notes =
        "Each figure is norm(cut - whole) / norm(whole) of the worst tensor; the gradient of a bias is\n"
        "compared relative to weight and bias together. Weights and running statistics are compared after\n"
        "plain gradient descent, whatever the optimizer. A difference above the tolerance is compared with\n"
        "rounding: the whole step runs again with other last bits of image and weights, and tensors that\n"
        "move as far are counted separately. If a ReLU or max pooling decides differently within rounding,\n"
        "verify names it and repeats the comparison with image and weights moved by 1e-3. The exit status\n"
        "is 1 if a tensor differs by more than tolerance and rounding.",
    .flags = flags,
    .config_at = 1,
    .opens_device = true,
    .run = run,
};
