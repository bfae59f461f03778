/* model list | show NAME: the networks, their parameters, tensors and FLOPs. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "config/options_settings.h"
#include "cli/model_import.h"
#include "cli/text.h"
#include "net/net_model.h"
#include "net/record.h"
#include "report/net_drawing.h"
#include "tensor/border.h"

/* --- list --- */

static const char *dims_text(struct wf_arena *arena, const struct wf_model *m)
{
    if (m->dims_min == m->dims_max)
        return wf_arena_printf(arena, "%dD", m->dims_min);
    return wf_arena_printf(arena, "%dD to %dD", m->dims_min, m->dims_max);
}

static bool list(struct wf_cli *cli, struct wf_err *err)
{
    struct wf_table t = { .arena = &cli->arena };
    cJSON *const all = cJSON_CreateArray();
    wf_table_row(&t, 4, (const char *[]){ "name", "dims", "predicts", "what" });
    for (const struct wf_model *const *m = wf_model_table; *m; m++) {
        wf_table_row(&t, 4,
                     (const char *[]){ (*m)->name, dims_text(&cli->arena, *m),
                                       (*m)->dense ? "each pixel" : "the image", (*m)->what });
        cJSON *const one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "name", (*m)->name);
        cJSON_AddStringToObject(one, "what", (*m)->what);
        cJSON_AddNumberToObject(one, "dims_min", (*m)->dims_min);
        cJSON_AddNumberToObject(one, "dims_max", (*m)->dims_max);
        cJSON_AddBoolToObject(one, "dense", (*m)->dense);
        cJSON_AddItemToArray(all, one);
    }
    if (cli->json) {
        cJSON *const json = cJSON_CreateObject();
        cJSON_AddItemToObject(json, "models", all);
        wf_table_release(&t);
        return wf_cli_print_json(cli, json, err);
    }
    cJSON_Delete(all);
    if (cli->launch.is_root)
        wf_table_print(&t, stdout);
    wf_table_release(&t);
    return true;
}

/* --- show --- */

struct shown {
    const struct wf_model *model;
    struct wf_model_config config;
    struct wf_graph *graph;
    int64_t size[WF_EXTENTS]; /* the image that FLOPs are counted for */
    int count;
};

/* What people usually give such a network, where no data.size says otherwise. */
static void usual_size(struct shown *s)
{
    static const int64_t extents[] = { 0, 4096, 256, 64, 32 };
    s->count = 2 + s->config.dims;
    s->size[0] = 1;
    s->size[1] = s->config.in;
    for (int i = 0; i < s->config.dims; i++)
        s->size[2 + i] = wf_model_is_dense(s->model, &s->config) || s->config.dims != 2
                             ? extents[s->config.dims]
                             : 224;
}

static bool build(struct wf_cli *cli, struct shown *s, struct wf_err *err)
{
    const struct wf_setting *const size = wf_options_get(cli->options, "data.size");
    struct wf_settings settings;
    if (!wf_options_settings(cli->options, &settings, err) ||
        !wf_settings_config(&settings, size->count, size->is_set ? size->list : NULL, &s->config,
                            err))
        return false;
    s->model = settings.model;
    usual_size(s);
    if (size->is_set)
        memcpy(s->size, size->list, (size_t)size->count * sizeof s->size[0]);
    s->graph = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *const x =
        wf_model_input(s->graph, s->model, &s->config, "image",
                       s->model->sparse ? WF_SHAPE(64, 1, 1, 1, s->config.in)
                                        : wf_extents_shape(s->count, s->size));
    const int domains = wf_model_domains(s->model, &s->config);
    struct wf_domain_parts parts;
    struct wf_value *logits;
    if (domains == 1)
        (void)s->model->build(s->graph, &s->config, x);
    for (int k = 0; domains > 1 && k < domains; k++)
        s->model->build_domain(s->graph, &s->config, k, x, &parts, &logits);
    return wf_graph_ok(s->graph, err) || wf_err_wrap(err, "network '%s'", s->model->name);
}

static bool is_listed(const struct wf_value *v)
{
    return v->kind == WF_PARAM || v->kind == WF_STATE;
}

static const char *kind_text(const struct wf_value *v)
{
    return v->kind == WF_STATE ? "state" : v->frozen ? "frozen" : "trained";
}

static bool show_json(struct wf_cli *cli, const struct shown *s, const char *net,
                      struct wf_err *err)
{
    cJSON *const json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", s->model->name);
    int64_t beside;
    cJSON_AddNumberToObject(json, "parameters",
                            (double)wf_model_parameters(s->model, s->graph, &beside));
    if (beside)
        cJSON_AddNumberToObject(json, "norm_parameters", (double)beside);
    cJSON_AddNumberToObject(json, "with_frozen", (double)wf_graph_parameters(s->graph, true));
    cJSON_AddNumberToObject(json, "flops", wf_graph_flops(s->graph));
    cJSON *const size = cJSON_AddArrayToObject(json, "size");
    for (int i = 0; i < s->count; i++)
        cJSON_AddItemToArray(size, cJSON_CreateNumber((double)s->size[i]));
    cJSON *const tensors = cJSON_AddArrayToObject(json, "tensors");
    for (size_t i = 0; i < s->graph->n_values; i++) {
        const struct wf_value *const v = s->graph->values[i];
        if (!is_listed(v))
            continue;
        cJSON *const one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "name", v->name);
        cJSON *const shape = cJSON_AddArrayToObject(one, "shape");
        int64_t outside[WF_AXES];
        const int rank = wf_border_shape(v->shape, v->border_dims, outside);
        for (int a = 0; a < rank; a++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)outside[a]));
        cJSON_AddStringToObject(one, "kind", kind_text(v));
        cJSON_AddItemToArray(tensors, one);
    }
    if (net)
        cJSON_AddStringToObject(json, "net", net);
    return wf_cli_print_json(cli, json, err);
}

static void show_text(struct wf_cli *cli, const struct shown *s)
{
    struct wf_arena *const arena = &cli->arena;
    struct wf_table t = { .arena = arena };
    wf_table_row(&t, 4, (const char *[]){ "tensor", ">shape", ">elements", "kind" });
    int tensors = 0;
    for (size_t i = 0; i < s->graph->n_values; i++) {
        const struct wf_value *const v = s->graph->values[i];
        if (!is_listed(v))
            continue;
        int64_t outside[WF_AXES];
        const int rank = wf_border_shape(v->shape, v->border_dims, outside);
        wf_table_row(&t, 4,
                     (const char *[]){ v->name, wf_text_extents(arena, rank, outside),
                                       wf_text_count(arena, wf_shape_count(v->shape)),
                                       kind_text(v) });
        tensors++;
    }
    wf_table_print(&t, stdout);
    int64_t beside;
    const int64_t trained = wf_model_parameters(s->model, s->graph, &beside);
    const int64_t frozen = wf_graph_parameters(s->graph, true) - trained - beside;
    (void)printf("\n%s: %s\n", s->model->name, s->model->what);
    (void)printf("dims %d, in %" PRId64 ", classes %" PRId64 "\n", s->config.dims, s->config.in,
                 s->config.classes);
    (void)printf("%s parameters in %d tensors", wf_text_count(arena, trained), tensors);
    if (beside)
        (void)printf(", and %s of batch norm, which its authors do not count",
                     wf_text_count(arena, beside));
    if (frozen)
        (void)printf(", and %s frozen", wf_text_count(arena, frozen));
    (void)printf("\n%s forward at %s\n", wf_text_flops(arena, wf_graph_flops(s->graph)),
                 wf_text_extents(arena, s->count, s->size));
}

/* The network as a file has it, one of a file in normal form, a built-in one written down; or its drawing. */
static const char *net_text(struct wf_cli *cli, const struct shown *s, bool drawn,
                            struct wf_err *err)
{
    const struct wf_net *const of_file = wf_net_of_model(s->model, &s->config);
    struct wf_net *const written = of_file ? NULL : wf_net_record(s->model, &s->config, err);
    if (!of_file && !written)
        return NULL;
    struct wf_net net = of_file ? *of_file : *written;
    net.classes = drawn ? s->config.classes : net.classes;
    const char *const text =
        drawn ? wf_net_svg(&cli->arena, &net, wf_extents_shape(s->count, s->size), err)
              : wf_net_print(&cli->arena, &net);
    wf_net_free(written);
    return text;
}

static bool show(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments > 2)
        return wf_err_set(err, WF_ERR_USAGE, "one network at a time: got '%s' and '%s'",
                          cli->arguments[1], cli->arguments[2]);
    if (cli->n_arguments == 2 &&
        !wf_options_argue(cli->options, "model.name", cli->arguments[1], err))
        return false;
    struct shown s = { 0 };
    bool ok = build(cli, &s, err);
    const char *const svg = wf_cli_flag(cli, "draw"), *text = NULL;
    if (ok && (svg || wf_cli_flag(cli, "net"))) {
        text = net_text(cli, &s, svg != NULL, err);
        ok = text != NULL;
    }
    if (ok && svg && cli->launch.is_root)
        ok = wf_write_text(svg, text, err);
    if (ok && cli->json)
        ok = show_json(cli, &s, svg ? NULL : text, err);
    else if (ok && cli->launch.is_root && !text)
        show_text(cli, &s);
    else if (ok && cli->launch.is_root && !svg)
        (void)fputs(text, stdout);
    wf_graph_free(s.graph);
    return ok;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    const char *const verb = cli->n_arguments > 0 ? cli->arguments[0] : "";
    if (strcmp(verb, "list") == 0 && cli->n_arguments == 1)
        return list(cli, err);
    if (strcmp(verb, "show") == 0)
        return show(cli, err);
    if (strcmp(verb, "import") == 0)
        return wf_cli_model_import(cli, err);
    return wf_err_set(err, WF_ERR_USAGE,
                      "'model' takes 'list', 'show NAME' or 'import NET.onnx --out DIR', got '%s'",
                      verb[0] ? verb : "nothing");
}

static const struct wf_command_flag flags[] = {
    { "net", NULL, "show: print it as a network file, to copy and change (docs/networks.md)" },
    { "draw", "FILE.svg", "show: draw it into a file instead, on an image of data.size" },
    { "out", "DIR", "import: the folder for net.yaml and weights.safetensors" },
    { "outputs", "A,B", "import: the outputs to take as heads, the prediction first" },
    { .name = NULL },
};

const struct wf_command wf_command_model = {
    .name = "model",
    .summary = "list the networks, or show one: parameters, tensors, FLOPs",
    .usage = "model list | model show NAME [model.base=32 model.dims=3 data.size=1,3,512,512 ...] "
             "[--net | --draw FILE.svg] | "
             "model import NET.onnx --out DIR",
    .notes = "NAME is a network of the list, or the path of a network file.",
    .flags = flags,
    .run = run,
};
