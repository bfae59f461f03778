#include "cli/model_import.h"

#ifdef WF_HAVE_ONNX

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/units.h"
#include "cli/text.h"
#include "onnx/import.h"

struct imported {
    const char *from, *net_path, *weights_path;
    const struct wf_net *net;
    const struct wf_onnx_report *report;
    int64_t parameters;
};

static bool print(struct wf_cli *cli, const struct imported *i, struct wf_err *err)
{
    const struct wf_onnx_report *const r = i->report;
    if (cli->json) {
        cJSON *const json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "net", i->net_path);
        cJSON_AddStringToObject(json, "weights", i->weights_path);
        cJSON_AddNumberToObject(json, "opset", (double)r->opset);
        cJSON_AddNumberToObject(json, "nodes", (double)r->nodes);
        cJSON_AddNumberToObject(json, "layers", i->net->n_layers);
        cJSON_AddNumberToObject(json, "tensors", (double)r->n_tensors);
        cJSON_AddNumberToObject(json, "elements", (double)i->parameters);
        cJSON *const notes = cJSON_AddArrayToObject(json, "notes");
        for (size_t k = 0; k < r->n_notes; k++)
            cJSON_AddItemToArray(notes, cJSON_CreateString(r->notes[k]));
        return wf_cli_print_json(cli, json, err);
    }
    struct wf_arena *const arena = &cli->arena;
    for (size_t k = 0; k < r->n_notes; k++)
        wf_log(&cli->log, WF_LOG_WARN, "%s", wf_text_shown(arena, r->notes[k]));
    if (!cli->launch.is_root)
        return true;
    (void)printf("# %s: operator set %d, %d nodes, made by %s\n", wf_text_shown(arena, i->from),
                 (int)r->opset, (int)r->nodes, wf_text_shown(arena, r->producer));
    (void)printf("# %dD, %d layers, %s elements in %zu tensors\n", i->net->dims, i->net->n_layers,
                 wf_text_count(arena, i->parameters), r->n_tensors);
    (void)printf("model:\n  name: %s\n  weights: %s\n", wf_text_shown(arena, i->net_path),
                 wf_text_shown(arena, i->weights_path));
    return true;
}

static bool write(struct wf_cli *cli, const char *folder, struct imported *i, struct wf_err *err)
{
    char *const part = wf_arena_copy(&cli->arena, folder);
    for (char *slash = strchr(part + 1, '/'); part[0] && slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(part, 0777); /* the last one tells */
        *slash = '/';
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return wf_err_set(err, WF_ERR_INPUT, "'%s': cannot make this folder: %s", folder,
                          wf_file_reason(errno));
    i->net_path = wf_arena_printf(&cli->arena, "%s/net.yaml", folder);
    i->weights_path = wf_arena_printf(&cli->arena, "%s/weights.safetensors", folder);
    for (size_t k = 0; k < i->report->n_tensors; k++) {
        int64_t count = 1;
        for (int axis = 0; axis < i->report->tensors[k].rank; axis++)
            count *= i->report->tensors[k].shape[axis];
        i->parameters += count;
    }
    return wf_write_text(i->net_path, wf_net_print(&cli->arena, i->net), err) &&
           wf_onnx_write_weights(i->report, i->weights_path, err);
}

bool wf_cli_model_import(struct wf_cli *cli, struct wf_err *err)
{
    const char *const folder = wf_cli_flag(cli, "out");
    if (cli->n_arguments != 2 || !folder)
        return wf_err_set(err, WF_ERR_USAGE,
                          "which file, and where to? widefield model import NET.onnx --out DIR");
    struct wf_onnx_report report = { 0 };
    struct imported i = { .from = cli->arguments[1], .report = &report };
    struct wf_net *const net = wf_onnx_import(i.from, wf_cli_flag(cli, "outputs"), &report, err);
    i.net = net;
    const bool ok =
        net && (!cli->launch.is_root || write(cli, folder, &i, err)) && print(cli, &i, err);
    wf_net_free(net);
    wf_onnx_report_release(&report);
    return ok;
}

#else

bool wf_cli_model_import(struct wf_cli *cli, struct wf_err *err)
{
    (void)cli;
    return wf_err_set(err, WF_ERR_USAGE,
                      "this build reads no ONNX files: install libprotobuf-c-dev and "
                      "protobuf-c-compiler, and build again");
}

#endif
