/* export: a trained network as an ONNX file. */
#include "cli/cli.h"

#ifdef WF_HAVE_ONNX

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "ckpt/checkpoint.h"
#include "ckpt/safetensors.h"
#include "cli/text.h"
#include "config/options_settings.h"
#include "net/net_model.h"
#include "net/record.h"
#include "onnx/export.h"
#include "train/run_folder.h"

struct export
{
    struct wf_cli *cli;
    const char *path;                      /* of the ONNX file */
    const char *from;                      /* of the weights */
    const struct wf_checkpoint_info *info; /* NULL: not of a checkpoint */
    struct wf_safetensors *weights;
    struct wf_settings settings;
    struct wf_model_config config;
    struct wf_net net;   /* with channels and classes settled */
    struct wf_net *made; /* of a built-in network; NULL: it is a file's */
    float *data;         /* of the weight that was read last */
};

/* --- weights --- */

/* By its name, or as checkpoints call it. */
static const struct wf_safetensor *find(const struct export *x, const char *name)
{
    static const char *const prefixes[] = { "", "param.", "state." };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        const char *const full = wf_arena_printf(&x->cli->arena, "%s%s", prefixes[i], name);
        const struct wf_safetensor *const t = wf_safetensors_find(x->weights, full);
        if (t)
            return t;
    }
    return NULL;
}

static bool read_weight(void *user, const char *name, struct wf_onnx_array *a, struct wf_err *err)
{
    struct export *const x = user;
    const struct wf_safetensor *const t = find(x, name);
    if (!t || t->rank > 5)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': it has no weight '%s', which the network needs: are these the "
                          "weights of this network?",
                          x->from, name);
    free(x->data);
    x->data = malloc((size_t)(t->count ? t->count : 1) * sizeof *x->data);
    if (!x->data)
        return wf_err_set(err, WF_ERR_FIT, "no memory for weight '%s'", name);
    a->rank = t->rank;
    memcpy(a->shape, t->shape, (size_t)t->rank * sizeof *t->shape);
    a->data = x->data;
    return wf_safetensors_read(x->weights, t, WF_F32, x->data, err);
}

/* --- the network --- */

/* An image that the network takes: as the job has it, or of a usual size. */
static struct wf_shape usual_shape(const struct export *x)
{
    static const int64_t sides[] = { 0, 4096, 256, 64 };
    const struct wf_data_settings *const d = &x->settings.data;
    const bool dense = wf_model_is_dense(x->settings.model, &x->config);
    struct wf_shape shape = WF_SHAPE(1, 1, 1, 1, x->config.in);
    for (int i = 0; i < x->config.dims; i++) {
        const int axis = WF_C - x->config.dims + i;
        shape.at[axis] = d->size.count == 2 + x->config.dims ? d->size.at[2 + i]
                         : d->crop.count == x->config.dims   ? d->crop.at[i]
                         : !dense && x->config.dims == 2     ? 224
                                                             : sides[x->config.dims];
    }
    return shape;
}

static bool find_net(struct export *x, struct wf_err *err)
{
    const struct wf_setting *const size = wf_options_get(x->cli->options, "data.size");
    if (!wf_options_settings(x->cli->options, &x->settings, err) ||
        !wf_settings_config(&x->settings, size->count, size->is_set ? size->list : NULL, &x->config,
                            err))
        return false;
    const struct wf_model *const m = x->settings.model;
    if (m->sparse || wf_model_domains(m, &x->config) > 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "network '%s': networks of points or of several domains have no form in "
                          "ONNX",
                          m->name);
    const struct wf_net_model *const own =
        wf_options_has_network(x->cli->options) ? x->config.own : NULL;
    x->made = own ? NULL : wf_net_record(m, &x->config, err);
    if (!own && !x->made)
        return false;
    x->net = own ? *own->net : *x->made;
    x->net.classes = x->config.classes;
    x->net.in = x->config.in;
    return true;
}

/* The config and weights of a checkpoint; or a config file, and weights by their own. */
static bool open_checkpoint(struct export *x, struct wf_checkpoint **c, struct wf_err *err)
{
    struct wf_cli *const cli = x->cli;
    *c = NULL;
    x->from = wf_cli_flag(cli, "weights");
    if (x->from)
        return wf_options_read_file(cli->options, cli->arguments[0], err);
    *c = wf_checkpoint_of(cli->arguments[0], &cli->log, err);
    if (!*c)
        return false;
    x->info = wf_checkpoint_info(*c);
    x->from = wf_checkpoint_path(*c);
    return wf_options_read_text(cli->options, x->from, x->info->config, err);
}

static bool print(const struct export *x, const struct wf_onnx_written *w, struct wf_err *err)
{
    struct wf_cli *const cli = x->cli;
    if (cli->json) {
        cJSON *const json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "onnx", x->path);
        cJSON_AddNumberToObject(json, "opset", 18);
        cJSON_AddNumberToObject(json, "nodes", (double)w->nodes);
        cJSON_AddNumberToObject(json, "initialisers", (double)w->initialisers);
        cJSON_AddNumberToObject(json, "bytes", (double)w->bytes);
        return wf_cli_print_json(cli, json, err);
    }
    (void)printf("%s: operator set 18, %" PRId64 " nodes, %" PRId64 " initialisers, %s\n",
                 wf_text_shown(&cli->arena, x->path), w->nodes, w->initialisers,
                 wf_text_bytes(&cli->arena, (double)w->bytes));
    return true;
}

static bool write(struct export *x, struct wf_err *err)
{
    const bool normalises =
        x->info && x->info->channels > 0 && !wf_cli_flag(x->cli, "without-normalisation");
    struct wf_onnx_export e = {
        .net = &x->net, .shape = usual_shape(x), .weights = read_weight, .user = x
    };
    if (normalises) {
        e.channels = x->info->channels;
        e.mean = x->info->mean;
        e.deviation = x->info->deviation;
    }
    if (x->info) {
        e.classes = x->info->classes;
        e.class_names = x->info->class_names;
    }
    struct wf_onnx_written written = { 0 };
    return wf_onnx_export(&e, x->path, &written, err) && print(x, &written, err);
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    struct export x = { .cli = cli, .path = wf_cli_flag(cli, "out") };
    if (cli->n_arguments != 1 || !x.path)
        return wf_err_set(err, WF_ERR_USAGE,
                          "which checkpoint, and where to? widefield export CKPT --out NET.onnx");
    struct wf_checkpoint *c = NULL;
    bool ok = open_checkpoint(&x, &c, err) && find_net(&x, err) &&
              (x.weights = wf_safetensors_open(x.from, err)) != NULL;
    if (ok && cli->launch.is_root)
        ok = write(&x, err);
    free(x.data);
    wf_net_free(x.made);
    wf_safetensors_free(x.weights);
    wf_checkpoint_free(c);
    return ok;
}

#else

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    (void)cli;
    return wf_err_set(err, WF_ERR_USAGE,
                      "this build writes no ONNX files: install libprotobuf-c-dev and "
                      "protobuf-c-compiler, and build again");
}

#endif

static const struct wf_command_flag flags[] = {
    { "out", "NET.onnx", "the file" },
    { "weights", "F.safetensors", "weights of this file; the argument is then a config file" },
    { "without-normalisation", NULL,
      "leave out the checkpoint's mean and deviation: the file takes images that are normalised" },
    { .name = NULL },
};

const struct wf_command wf_command_export = {
    .name = "export",
    .summary = "write a trained network as an ONNX file",
    .usage = "export CKPT --out NET.onnx | export CONFIG --weights F.safetensors --out NET.onnx",
    .notes =
        "CKPT is a file or a run folder (its best checkpoint). The ONNX file is for inference: batch norm has its\n"
        "running statistics, dropout is left out. Batch and spatial extents are open. It takes images as they are\n"
        "in files: the normalisation of the training is part of it.",
    .flags = flags,
    .run = run,
};
