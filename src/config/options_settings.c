#include "config/options_settings.h"

#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "data/clouds.h"
#include "net/net_model.h"

/* --- the network --- */

/* Puts a setting where the network's struct has it; see struct wf_model. */
static void put_own(char *own, const struct wf_option *row, const struct wf_setting *s)
{
    const int name = (int)s->integer;
    const bool is_on = s->integer != 0;
    char *const to = own + row->offset;
    switch (row->type) {
    case WF_OPTION_INTS:
        memcpy(to + (size_t)(row->count_max - s->count) * sizeof s->list[0], s->list,
               (size_t)s->count * sizeof s->list[0]);
        return;
    case WF_OPTION_INT:
        memcpy(to, &s->integer, sizeof s->integer);
        return;
    case WF_OPTION_REAL:
        memcpy(to, &s->real, sizeof s->real);
        return;
    case WF_OPTION_NAME:
        memcpy(to, &name, sizeof name);
        return;
    case WF_OPTION_BOOL:
        memcpy(to, &is_on, sizeof is_on);
        return;
    case WF_OPTION_BYTES:
    case WF_OPTION_SUM:
    case WF_OPTION_TEXT:
    case WF_OPTION_NAMES:
    case WF_OPTION_TEXTS:
        break;
    }
    WF_BUG_ON(true, "'%s'", row->key);
}

/* Options of other networks are passed over, but for subdomains: who asks for them means something. */
static bool find_own(struct wf_options *o, const struct wf_model *m, const void **own,
                     struct wf_err *err)
{
    const struct wf_setting *const tiles = wf_options_get(o, "model.tiles");
    for (int i = 0; !m->tiles && i < tiles->count; i++)
        if (tiles->list[i] > 1)
            return wf_err_set(err, WF_ERR_USAGE,
                              "network '%s' does not work on subdomains: leave model.tiles out",
                              m->name);
    if (!m->options)
        return true;
    char *const room = wf_arena_take(&o->arena, m->own_bytes);
    memcpy(room, m->defaults.own, m->own_bytes);
    for (const struct wf_option *row = m->options; row->key; row++)
        if (wf_options_is_set(o, row->key))
            put_own(room, row, wf_options_get(o, row->key));
    *own = room;
    return true;
}

/* Where a text of model.network came from that was read off a file, not given. */
static const char file_mark[] = "network file ";

/* The text of the network in place of a file, or NULL: the one that was given, if no later origin names another
 * network; or the one that was read from the same file before. */
static const char *network_text(const struct wf_options *o)
{
    const struct wf_setting *const name = wf_options_get(o, "model.name");
    const struct wf_setting *const text = wf_options_get(o, "model.network");
    const size_t n = sizeof file_mark - 1;
    if (!text->is_set || text->origin < name->origin)
        return NULL;
    if (text->where && strncmp(text->where, file_mark, n) == 0 &&
        strcmp(text->where + n, name->text) != 0)
        return NULL;
    return text->text;
}

/* A relative path is one of the current folder, or of the config's. */
static const char *network_path(struct wf_options *o)
{
    const struct wf_setting *const name = wf_options_get(o, "model.name");
    const char *const slash = name->origin == WF_FROM_FILE ? strrchr(name->where, '/') : NULL;
    struct wf_err ignored = { 0 };
    if (name->text[0] == '/' || !slash || wf_path_is_file(name->text, &ignored))
        return name->text;
    const char *const beside =
        wf_arena_printf(&o->arena, "%.*s/%s", (int)(slash - name->where), name->where, name->text);
    ignored = (struct wf_err){ 0 };
    return wf_path_is_file(beside, &ignored) ? beside : name->text;
}

/* The text becomes a setting, and a text without a file gets a name, so that checkpoints have both. */
static bool keep_network(struct wf_options *o, const struct wf_net_model *m, struct wf_err *err)
{
    const struct wf_setting *const name = wf_options_get(o, "model.name");
    const struct wf_setting *const text = wf_options_get(o, "model.network");
    const char *const file = wf_arena_printf(&o->arena, "%s.yaml", m->net->name);
    const char *const mark = wf_arena_printf(&o->arena, "%s%s", file_mark, name->text);
    const struct wf_option_source kept = {
        .origin = name->origin, .where = mark, .items = &m->text, .count = 1
    };
    const struct wf_option_source named = {
        .origin = text->origin, .where = text->where, .items = &file, .count = 1
    };
    if (wf_net_is_path(name->text))
        return network_text(o) || wf_options_put(o, "model.network", &kept, err);
    return wf_options_put(o, "model.name", &named, err);
}

static struct wf_net_model *read_network(struct wf_options *o, struct wf_err *err)
{
    const struct wf_setting *const name = wf_options_get(o, "model.name");
    const char *const text = network_text(o);
    if (text && !wf_net_is_path(name->text) && name->origin > WF_FROM_DEFAULT) {
        (void)wf_err_set(err, WF_ERR_USAGE,
                         "model.name is '%s', and model.network is another network: leave one out",
                         name->text);
        return NULL;
    }
    struct wf_net_model *const m = wf_net_model_new(
        text ? wf_net_parse(text, wf_net_is_path(name->text) ? name->text : "model.network", err)
             : wf_net_read(network_path(o), err),
        err);
    if (!m)
        return NULL;
    m->next = o->networks;
    o->networks = m;
    return keep_network(o, m, err) ? m : NULL;
}

bool wf_options_has_network(const struct wf_options *o)
{
    return wf_net_is_path(wf_options_text(o, "model.name")) || network_text(o);
}

bool wf_options_same_network(const struct wf_options *o, const char *checkpoint, const char *config,
                             struct wf_err *err)
{
    struct wf_options *const before = wf_options_new();
    bool ok = wf_options_read_text(before, checkpoint, config, err);
    const char *const was = network_text(before), *const is = network_text(o);
    if (ok && (was || is) && strcmp(was ? was : "", is ? is : "") != 0)
        ok = wf_err_set(err, WF_ERR_USAGE,
                        "the network '%s' is not that of the checkpoint '%s': give the old file "
                        "back (network.yaml in the run's folder is a copy), or start a new run",
                        wf_options_text(o, "model.name"), checkpoint);
    wf_options_free(before);
    return ok;
}

static bool refuse_onnx(const char *name, struct wf_err *err)
{
    const char *const end = strrchr(name, '.');
    return !end || strcmp(end, ".onnx") != 0 ||
           wf_err_set(err, WF_ERR_USAGE,
                      "'%s' is an ONNX file: 'widefield model import' makes a network file of it",
                      name);
}

static bool read_model(struct wf_options *o, struct wf_settings *s, struct wf_err *err)
{
    const char *const name = wf_options_text(o, "model.name");
    s->weights = wf_options_text(o, "model.weights");
    s->config = (struct wf_model_config){ .dims = (int)wf_options_int(o, "model.dims"),
                                          .in = wf_options_int(o, "model.in"),
                                          .classes = wf_options_int(o, "model.classes"),
                                          .base = wf_options_int(o, "model.base"),
                                          .depth = wf_options_int(o, "model.depth") };
    if (!refuse_onnx(name, err))
        return false;
    if (wf_options_has_network(o)) {
        const struct wf_net_model *const m = read_network(o, err);
        if (!m)
            return false;
        s->model = &m->model;
        s->config.own = m;
        s->config.dims = s->config.dims ? s->config.dims : m->net->dims;
        s->config.in = s->config.in ? s->config.in : m->net->in;
        s->config.classes = s->config.classes ? s->config.classes : m->classes;
        return true;
    }
    s->model = wf_model_find(name, err);
    return s->model && find_own(o, s->model, &s->config.own, err);
}

/* --- data and training --- */

static struct wf_extents extents(const struct wf_options *o, const char *key)
{
    const struct wf_setting *const s = wf_options_get(o, key);
    struct wf_extents e = { .count = s->count };
    memcpy(e.at, s->list, (size_t)s->count * sizeof s->list[0]);
    return e;
}

static struct wf_data_settings data_settings(const struct wf_options *o)
{
    return (struct wf_data_settings){
        .layout = (enum wf_data_layout)wf_options_int(o, "data.format"),
        .align = (enum wf_data_align)wf_options_int(o, "data.align"),
        .alpha = (enum wf_data_alpha)wf_options_int(o, "data.alpha"),
        .size = extents(o, "data.size"),
        .points = wf_options_int(o, "data.points"),
        .voxel = wf_options_real(o, "data.voxel"),
        .features = (unsigned)wf_options_int(o, "data.features"),
        .crop = extents(o, "data.crop"),
        .pad = wf_options_int(o, "data.pad"),
        .repeat = wf_options_int(o, "data.repeat"),
        .augment = (unsigned)wf_options_int(o, "data.augment"),
        .balance = wf_options_int(o, "data.balance") != 0,
        .validation = wf_options_real(o, "data.validation"),
        .threads =
            wf_options_is_set(o, "data.threads") ? (int)wf_options_int(o, "data.threads") : -1,
        .cache = wf_options_is_set(o, "data.cache") ? wf_options_int(o, "data.cache") : -1,
        .domains = wf_options_get(o, "data.domains")->texts,
        .n_domains = wf_options_get(o, "data.domains")->count,
    };
}

static struct wf_optim_options optim_options(const struct wf_options *o)
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

static struct wf_schedule schedule(const struct wf_options *o)
{
    const enum wf_schedule_kind kind = (enum wf_schedule_kind)wf_options_int(o, "train.schedule");
    const double gamma = kind == WF_SCHEDULE_EXPONENTIAL ? 0.95 : 0.1;
    return (struct wf_schedule){
        .kind = kind,
        .lr = wf_options_real(o, "train.lr"),
        .gamma = wf_options_is_set(o, "train.gamma") ? wf_options_real(o, "train.gamma") : gamma,
        .least = wf_options_real(o, "train.lr_min"),
        .every = wf_options_int(o, "train.schedule_every"),
        .length = wf_options_int(o, "train.epochs"),
        .patience = wf_options_int(o, "train.patience"),
        .by_step = wf_options_int(o, "train.schedule_by") != 0,
        .warmup = wf_options_real(o, "train.warmup"),
    };
}

static struct wf_adapt_settings adapt_settings(const struct wf_options *o)
{
    static const char *const keys[WF_ADAPTS] = { "train.weights.reconstruction",
                                                 "train.weights.difference",
                                                 "train.weights.similarity" };
    struct wf_adapt_settings a = {
        .from = wf_options_int(o, "train.adapt_from"),
        .over = wf_options_int(o, "train.adapt_over"),
        .similarity = (enum wf_similarity)wf_options_int(o, "train.similarity"),
    };
    for (int i = 0; i < WF_ADAPTS; i++)
        a.weight[i] = wf_options_real(o, keys[i]);
    return a;
}

static struct wf_train_settings train_settings(const struct wf_options *o)
{
    return (struct wf_train_settings){
        .epochs = wf_options_int(o, "train.epochs"),
        .batch = wf_options_int(o, "train.batch"),
        .accumulate = wf_options_int(o, "train.accumulate"),
        .batch_is_per_rank = wf_options_int(o, "train.batch_is") != 0,
        .reduction = (enum wf_reduction)wf_options_int(o, "train.reduction"),
        .clip = wf_options_real(o, "train.clip"),
        .loss_scale = wf_options_real(o, "train.loss_scale"),
        .optim = optim_options(o),
        .schedule = schedule(o),
        .lr_scaling = (enum wf_lr_scaling)wf_options_int(o, "train.lr_scaling"),
        .losses = (unsigned)wf_options_int(o, "train.loss"),
        .loss_per_tile = wf_options_int(o, "train.loss_per_tile") != 0,
        .has_ignore = wf_options_is_set(o, "train.ignore"),
        .ignore = (int32_t)wf_options_int(o, "train.ignore"),
        .adapt = adapt_settings(o),
        .validate_every = wf_options_int(o, "train.validate_every"),
        .early_stop = wf_options_int(o, "train.early_stop"),
        .skip_limit = wf_options_int(o, "train.skip_limit"),
        .validate_on = (enum wf_validate_on)wf_options_int(o, "train.validate_on"),
        .checkpoint_steps = wf_options_int(o, "train.checkpoint_steps"),
        .samples = wf_options_int(o, "train.samples"),
        .checkpoint_minutes = wf_options_real(o, "train.checkpoint_minutes"),
        .checkpoint_seconds = wf_options_real(o, "train.checkpoint_seconds"),
        .precision = (enum wf_precision)wf_options_int(o, "train.precision"),
        .sync = (enum wf_sync)wf_options_int(o, "train.sync"),
        .staleness = (int)wf_options_int(o, "train.staleness"),
        .seed = (uint64_t)wf_options_int(o, "train.seed"),
    };
}

/* --- ranks --- */

static struct wf_mesh_settings mesh_settings(const struct wf_options *o)
{
    struct wf_mesh_settings s = { .is_given = wf_options_mesh_given(o),
                                  .choose = wf_options_int(o, "mesh.auto") != 0,
                                  .placement = (enum wf_domain_placement)wf_options_int(
                                      o, "domain.placement"),
                                  .mesh = wf_mesh_one(),
                                  .ranks = (int)wf_options_int(o, "run.ranks") };
    s.mesh.at[WF_MESH_DATA] = (int)wf_options_int(o, "mesh.data");
    s.mesh.at[WF_MESH_DOMAIN] = (int)wf_options_int(o, "mesh.domain");
    s.mesh.at[WF_MESH_PIPE] = (int)wf_options_int(o, "mesh.pipe");
    const struct wf_setting *const space = wf_options_get(o, "mesh.space");
    for (int i = 0; i < space->count; i++)
        s.mesh.at[WF_MESH_AXES - space->count + i] = (int)space->list[i];
    return s;
}

struct wf_comm_settings wf_options_comm(const struct wf_options *o)
{
    return (struct wf_comm_settings){
        .path = (enum wf_device_path)wf_options_int(o, "comm.device"),
        .overlap = (enum wf_overlap)wf_options_int(o, "comm.overlap"),
        .bucket = (size_t)wf_options_int(o, "comm.bucket"),
        .bandwidth = (double)wf_options_int(o, "comm.bandwidth"),
        .latency = 1e-6 * wf_options_real(o, "comm.latency"),
        .emulate = wf_options_int(o, "comm.emulate") != 0,
        .watch = { .tell = wf_options_real(o, "comm.warn_after"),
                   .end = wf_options_real(o, "comm.timeout") },
        .sums = { .way = (enum wf_sum_way)wf_options_int(o, "comm.allreduce"),
                  .sent_dtype = wf_options_int(o, "comm.precision") ? WF_BF16 : WF_F32,
                  .node_ranks = (int)wf_options_int(o, "comm.node_ranks") },
    };
}

bool wf_options_settings(struct wf_options *o, struct wf_settings *s, struct wf_err *err)
{
    *s = (struct wf_settings){
        .data = data_settings(o),
        .train = train_settings(o),
        .mesh = mesh_settings(o),
        .pipe = { .schedule = (enum wf_pipe_schedule)wf_options_int(o, "pipe.schedule"),
                  .cut = wf_options_get(o, "pipe.cut")->texts,
                  .n_cut = wf_options_get(o, "pipe.cut")->count },
        .comm = wf_options_comm(o),
        .cluster = { .node = (int)wf_options_int(o, "cluster.node"),
                     .link_bandwidth = (double)wf_options_int(o, "cluster.link_bandwidth"),
                     .link_latency = 1e-6 * wf_options_real(o, "cluster.link_latency") },
        .device = wf_options_text(o, "run.device"),
        .threads = (int)wf_options_int(o, "run.threads"),
        .repeats = (enum wf_repeats)wf_options_int(o, "run.deterministic"),
        .cache = wf_options_text(o, "run.cache"),
        .limit = (size_t)wf_options_int(o, "memory.limit"),
        .recompute = wf_options_int(o, "memory.recompute") != 0,
    };
    return read_model(o, s, err);
}

bool wf_options_take_settled(struct wf_options *o, const struct wf_settings *s, const char *where,
                             struct wf_err *err)
{
    struct wf_arena *const a = &o->arena;
    const char *crop = "";
    for (int i = 0; i < s->data.crop.count; i++)
        crop = wf_arena_printf(a, "%s%s%" PRId64, crop, i ? "x" : "", s->data.crop.at[i]);
    const char *features = "";
    for (int i = 0; wf_feature_names[i]; i++)
        if (s->data.features & (1U << i))
            features =
                wf_arena_printf(a, "%s%s%s", features, *features ? "," : "", wf_feature_names[i]);
    const struct {
        const char *key, *text;
        bool is_known;
    } all[] = {
        { "train.ignore", wf_arena_printf(a, "%d", (int)s->train.ignore), s->train.has_ignore },
        { "model.in", wf_arena_printf(a, "%" PRId64, s->config.in), s->config.in > 0 },
        { "model.dims", wf_arena_printf(a, "%d", s->config.dims), s->config.dims > 0 },
        { "model.classes", wf_arena_printf(a, "%" PRId64, s->config.classes),
          s->config.classes > 0 },
        { "data.crop", crop, *crop != '\0' },
        { "data.features", features, *features != '\0' },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].is_known &&
            !wf_options_put(
                o, all[i].key,
                &(struct wf_option_source){
                    .origin = WF_FROM_DEFAULT, .where = where, .items = &all[i].text, .count = 1 },
                err))
            return false;
    return true;
}
