#include "cli/job.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/memory.h"
#include "ckpt/safetensors.h"
#include "cli/bench.h"
#include "cli/same.h"
#include "cli/text.h"
#include "comm/watch.h"
#include "cli/device.h"
#include "cli/once.h"
#include "ops/build.h"
#include "ops/op.h"
#include "train/reduction.h"

enum { MOST_THREADS = 4096 };

int wf_job_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    return 1;
}

int wf_job_threads(const struct wf_options *o, int ranks)
{
    if (wf_options_int(o, "run.threads") > 0)
        return (int)wf_options_int(o, "run.threads");
    const char *const given = getenv("OMP_NUM_THREADS"); /* "4", or "4,2" for nested teams */
    const long threads = given ? strtol(given, NULL, 10) : 0;
    if (threads > 0 && threads <= MOST_THREADS)
        return (int)threads;
    return (int)wf_max(wf_job_cores() / ranks, 1);
}

/* --- size and network --- */

struct size {
    int count;
    int64_t at[WF_AXES];
};

static bool find_size(const struct wf_job *job, struct size *size, struct wf_err *err)
{
    const struct wf_options *const o = job->cli->options;
    const struct wf_setting *const given = wf_options_get(o, "data.size");
    const struct wf_setting *const crop = wf_options_get(o, "data.crop");
    struct size file = { 0 };
    if (job->files.input && !wf_job_npy_size(job->files.input, &file.count, file.at, err))
        return false;
    if (given->is_set && !job->files.count) {
        size->count = given->count;
        memcpy(size->at, given->list, sizeof size->at);
        if (file.count &&
            (file.count != size->count || memcmp(file.at, size->at, sizeof file.at) != 0))
            return wf_err_set(err, WF_ERR_USAGE,
                              "'%s' is %s, but data.size is %s: leave data.size out",
                              job->files.input,
                              wf_text_extents(&job->cli->arena, file.count, file.at), given->text);
    } else if (file.count) {
        *size = file;
    } else if (job->files.count) {
        size->count = job->files.count;
        memcpy(size->at, job->files.size, sizeof size->at);
    } else if (crop->is_set) {
        const int64_t in = wf_options_int(o, "model.in");
        *size = (struct size){ .count = 2 + crop->count, .at = { wf_job_batch(o), in ? in : 3 } };
        memcpy(size->at + 2, crop->list, (size_t)crop->count * sizeof crop->list[0]);
    } else {
        return wf_err_set(err, WF_ERR_USAGE,
                          "no image size: give data.size as N, C, spatial, such as "
                          "data.size=1,3,256,256");
    }
    return true;
}

struct wf_shape wf_job_shape(int count, const int64_t size[])
{
    struct wf_shape shape = WF_SHAPE(size[0], 1, 1, 1, size[1]);
    for (int i = 2; i < count; i++)
        shape.at[WF_C - count + i] = size[i];
    return shape;
}

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
        break;
    }
    WF_BUG_ON(true, "'%s'", row->key);
}

/* The network's own options, in the options' arena. Those of other networks are passed over, but for
 * subdomains: who asks for them means something. */
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

const struct wf_model *wf_job_model(struct wf_options *o, int count, const int64_t size[],
                                    struct wf_model_config *config, struct wf_err *err)
{
    *config = (struct wf_model_config){ .dims = (int)wf_options_int(o, "model.dims"),
                                        .in = wf_options_int(o, "model.in"),
                                        .classes = wf_options_int(o, "model.classes"),
                                        .base = wf_options_int(o, "model.base"),
                                        .depth = wf_options_int(o, "model.depth") };
    if (size) {
        if (config->dims && config->dims != count - 2)
            (void)wf_err_set(err, WF_ERR_USAGE,
                             "model.dims is %d, but the size has %d spatial axes", config->dims,
                             count - 2);
        if (config->in && config->in != size[1])
            (void)wf_err_set(err, WF_ERR_USAGE,
                             "model.in is %" PRId64 ", but the size has %" PRId64 " channels",
                             config->in, size[1]);
        config->dims = count - 2;
        config->in = size[1];
    }
    if (err->code)
        return NULL;
    const struct wf_model *const model = wf_model_find(wf_options_text(o, "model.name"), err);
    if (!model || !find_own(o, model, &config->own, err) || !wf_model_resolve(model, config, err))
        return NULL;
    return model;
}

/* --- graph --- */

enum { LOSS_CE = 1 << 0, LOSS_BCE = 1 << 1, LOSS_DICE = 1 << 2, LOSS_MSE = 1 << 3 };

static bool find_target_kind(struct wf_job *job, int64_t losses, struct wf_err *err)
{
    const bool one = job->config.classes == 1;
    const bool by_class = (losses & LOSS_CE) || ((losses & LOSS_DICE) && !one);
    const bool binary = (losses & LOSS_BCE) || ((losses & LOSS_DICE) && one);
    const bool real = losses & LOSS_MSE;
    if ((losses & LOSS_CE) && one)
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.loss '%s' with model.classes=1: cross-entropy over one class is "
                          "always 0 and nothing would be learned: use train.loss=bce, or "
                          "model.classes=2",
                          wf_options_text(job->cli->options, "train.loss"));
    if (by_class + binary + real > 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.loss '%s' with %" PRId64 " classes: ce and dice want a map of "
                          "classes (dice with one class a 0/1 map), bce a 0/1 map per class, mse a "
                          "map of numbers: they do not share a target",
                          wf_options_text(job->cli->options, "train.loss"), job->config.classes);
    job->target_kind = by_class ? WF_TARGET_CLASSES : binary ? WF_TARGET_BINARY : WF_TARGET_REAL;
    return true;
}

static void build_target(const struct wf_job *job, struct wf_network *net)
{
    if (!net->logits)
        return;
    struct wf_shape shape = net->logits->shape;
    const bool map = job->target_kind == WF_TARGET_CLASSES;
    if (map)
        shape.at[WF_C] = 1;
    net->target = wf_input(net->graph, "target", map ? WF_I32 : WF_F32, shape);
    if (net->target)
        net->target->border_dims = job->model->dense ? job->config.dims : 0;
}

/* The sum of train.loss on a part of the prediction, or on all of it. */
static struct wf_value *build_losses(const struct wf_job *job, const struct wf_network *net,
                                     struct wf_value *logits, struct wf_value *target)
{
    typedef struct wf_value *maker(struct wf_graph *, struct wf_value *, struct wf_value *,
                                   const struct wf_loss *);
    static const struct {
        const char *name;
        maker *make;
    } makers[] = { { "loss.ce", wf_cross_entropy },
                   { "loss.bce", wf_binary_cross_entropy },
                   { "loss.dice", wf_dice },
                   { "loss.mse", wf_mse } }; /* the order of train.loss in the option table */
    const int64_t losses = wf_options_int(job->cli->options, "train.loss");
    struct wf_value *sum = NULL;
    for (int i = 0; i < 4; i++) {
        if (!(losses & (INT64_C(1) << i)))
            continue;
        const struct wf_loss spec = { .name = makers[i].name,
                                      .ignore = net->ignore,
                                      .has_ignore = net->has_ignore };
        struct wf_value *const one = makers[i].make(net->graph, logits, target, &spec);
        sum = sum ? wf_add(net->graph, sum, one) : one;
    }
    return sum;
}

static struct wf_value *part_of(struct wf_graph *g, struct wf_value *v, struct wf_region space)
{
    struct wf_region part = wf_shape_region(v->shape);
    for (int a = WF_D; a < WF_C; a++) {
        part.lo[a] = space.lo[a];
        part.hi[a] = wf_min(space.hi[a], part.hi[a]);
    }
    return wf_slice(g, v, part);
}

/* The loss of the whole prediction, or the mean of the losses of its subdomains. */
static struct wf_value *build_loss(const struct wf_job *job, const struct wf_network *net)
{
    int64_t tiles[3] = { 1, 1, 1 };
    if (job->model->tiles)
        job->model->tiles(&job->config, tiles);
    const int64_t count = tiles[0] * tiles[1] * tiles[2];
    struct wf_value *sum = NULL;
    if (!net->logits || !net->target || count == 1 ||
        !wf_options_int(job->cli->options, "train.loss_per_tile"))
        return build_losses(job, net, net->logits, net->target);
    for (int64_t t = 0; t < count; t++) {
        struct wf_region space = { 0 };
        int64_t number = t;
        for (int i = 2; i >= 0; i--) {
            const int64_t extent = (net->logits->shape.at[WF_D + i] + tiles[i] - 1) / tiles[i];
            space.lo[WF_D + i] = number % tiles[i] * extent;
            space.hi[WF_D + i] = space.lo[WF_D + i] + extent;
            number /= tiles[i];
        }
        struct wf_value *const one = build_losses(job, net, part_of(net->graph, net->logits, space),
                                                  part_of(net->graph, net->target, space));
        sum = sum ? wf_add(net->graph, sum, one) : one;
    }
    return sum ? wf_scale(net->graph, sum, 1.0 / (double)count) : NULL;
}

/* Forward pass and loss on images of that shape. net->graph is there also after a failure. */
static bool build_network(const struct wf_job *job, struct wf_shape shape, bool training,
                          struct wf_network *net, struct wf_err *err)
{
    struct wf_graph_options options = { .training = training };
    if (!wf_cli_precision(job->cli->options, job->device, &options.compute, err))
        return false;
    struct wf_graph *const g = net->graph = wf_graph_new(&options);
    net->has_classes = job->target_kind != WF_TARGET_REAL;
    net->image = wf_input(g, "image", WF_F32, shape);
    if (net->image)
        net->image->border_dims = job->config.dims;
    struct wf_value *const x =
        options.compute == WF_F32 ? net->image : wf_cast(g, net->image, options.compute);
    net->logits = job->model->build(g, &job->config, x);
    build_target(job, net);
    net->loss = build_loss(job, net);
    if (!wf_graph_ok(g, err))
        return wf_err_wrap(err, "network '%s'", job->model->name);
    wf_graph_output(g, net->loss);
    wf_graph_output(g, net->logits);
    return true;
}

static void find_ignore(const struct wf_job *job, struct wf_network *net)
{
    net->has_ignore = wf_options_is_set(job->cli->options, "train.ignore");
    net->ignore = (int32_t)wf_options_int(job->cli->options, "train.ignore");
}

bool wf_job_inference(const struct wf_job *job, struct wf_shape image, struct wf_network *net,
                      struct wf_err *err)
{
    *net = (struct wf_network){ 0 };
    find_ignore(job, net);
    if (!net->has_ignore && job->target_kind == WF_TARGET_CLASSES) {
        net->has_ignore = true;
        net->ignore = INT32_MIN;
    }
    return build_network(job, image, false, net, err);
}

struct wf_network wf_job_network(const struct wf_job *job)
{
    struct wf_network net = { .graph = job->graph,
                              .image = job->input,
                              .target = job->target,
                              .logits = job->logits,
                              .loss = job->loss,
                              .start = job->start,
                              .counts = job->counts,
                              .has_classes = job->target_kind != WF_TARGET_REAL };
    find_ignore(job, &net);
    return net;
}

/* Where the backward pass starts, where that is not always one. */
static void build_start(const struct wf_job *job, struct wf_network *net)
{
    if (net->graph->options.compute != WF_F16 &&
        wf_options_int(job->cli->options, "train.reduction") == WF_REDUCTION_GLOBAL)
        return;
    net->start = wf_input(net->graph, "loss.start", WF_F32, WF_SHAPE(1, 1, 1, 1, 1));
    if (net->start)
        net->start->replicated = true;
}

/* What weighs a pass among others: the count that the loss is the mean of, where there is one such. */
static void find_counts(const struct wf_job *job, struct wf_network *net)
{
    static const char *const sums[] = { "loss.ce.sums", "loss.bce.sums", "loss.mse.sums" };
    const struct wf_options *const o = job->cli->options;
    if (wf_options_int(o, "train.accumulate") == 1 || wf_options_int(o, "train.loss_per_tile"))
        return;
    for (size_t i = 0; !net->counts && i < sizeof sums / sizeof sums[0]; i++)
        net->counts = wf_graph_find(net->graph, sums[i]);
    if (net->counts)
        wf_graph_output(net->graph, net->counts);
}

bool wf_job_training(const struct wf_job *job, struct wf_shape image, struct wf_network *net,
                     struct wf_err *err)
{
    *net = (struct wf_network){ 0 };
    find_ignore(job, net);
    if (!build_network(job, image, true, net, err))
        return false;
    find_counts(job, net);
    build_start(job, net);
    return wf_graph_grad(net->graph, net->loss, net->start, 0, NULL, NULL, err);
}

int64_t wf_job_batch(const struct wf_options *o)
{
    const int64_t each = wf_options_int(o, "train.batch");
    return wf_options_int(o, "train.batch_is") ? each * wf_options_int(o, "mesh.data") : each;
}

static bool build_graph(struct wf_job *job, const struct size *size, struct wf_err *err)
{
    if (!find_target_kind(job, wf_options_int(job->cli->options, "train.loss"), err))
        return false;
    const struct wf_shape shape = wf_job_shape(size->count, size->at);
    if (!wf_shape_is_valid(shape))
        return wf_err_set(err, WF_ERR_USAGE, "size %s has more elements than can be counted",
                          wf_text_extents(&job->cli->arena, size->count, size->at));
    struct wf_network net;
    const bool ok = wf_job_training(job, shape, &net, err);
    job->graph = net.graph;
    job->input = net.image;
    job->target = net.target;
    job->logits = net.logits;
    job->loss = net.loss;
    job->start = net.start;
    job->counts = net.counts;
    return ok;
}

/* --- the job --- */

static bool job_init(struct wf_job *job, struct wf_err *err)
{
    struct size size = { 0 };
    job->device = wf_cli_device(job->cli->options, err);
    if (!job->device || !find_size(job, &size, err))
        return false;
    job->model = wf_job_model(job->cli->options, size.count, size.at, &job->config, err);
    if (!job->model || !build_graph(job, &size, err) || !wf_job_find_mesh(job, err))
        return false;
    const struct wf_plan_options options = wf_job_plan_options(job);
    const struct wf_mesh mesh = wf_job_step_mesh(job);
    if (wf_job_servers(job) && !wf_device_is_host(job->device))
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.sync is %s, which works on the CPU only: use train.sync=allreduce "
                          "on device '%s'",
                          wf_options_text(job->cli->options, "train.sync"), job->device->name);
    if (!wf_job_find_link(job, err))
        return false;
    job->global = wf_global_plan_new(job->graph, &mesh, &options, err);
    return job->global && (job->files.any_size || wf_job_check_limit(job, job->global, err));
}

struct wf_job *wf_job_new(struct wf_cli *cli, const struct wf_job_files *files, struct wf_err *err)
{
    struct wf_job *const job = wf_take_zeroed(1, sizeof *job);
    job->cli = cli;
    job->files = *files;
    if (!cli->world && wf_comm_slurm_tasks() > 1)
        wf_log(&cli->log, WF_LOG_WARN,
               "Slurm gave this job %d tasks, but this is one process: start it with srun, or ask "
               "for one task",
               wf_comm_slurm_tasks());
    job->seed = (uint64_t)wf_options_int(cli->options, "train.seed");
    bool ok = job_init(job, err) && (!files->weights || wf_job_open_weights(job, err));
    if (ok && !files->weights && !files->begun && wf_options_is_set(cli->options, "model.weights"))
        ok = wf_job_open_start(job, err);
    ok = wf_cli_agree(cli, ok, err) && (!job->weights || wf_job_same_weights(job, err));
    if (ok)
        return job;
    wf_job_free(job);
    return NULL;
}

void wf_job_free(struct wf_job *job)
{
    if (!job)
        return;
    wf_safetensors_free(job->weights);
    wf_global_plan_free(job->global);
    wf_graph_free(job->graph);
    wf_arena_release(&job->arena);
    free(job);
}

struct wf_plan_options wf_job_plan_options(const struct wf_job *job)
{
    const struct wf_options *const o = job->cli->options;
    const char *const overlap = wf_options_text(o, "comm.overlap");
    return (struct wf_plan_options){
        .device = job->device,
        .threads = job->threads,
        .no_recompute = !wf_options_int(o, "memory.recompute"),
        .no_overlap = strcmp(overlap, "never") == 0,
        .split_always = strcmp(overlap, "always") == 0,
        .bucket_bytes = (size_t)wf_options_int(o, "comm.bucket"),
        .limit = (size_t)wf_options_int(o, "memory.limit"),
        .more = wf_job_optim_bytes(job, wf_plan_weight_count(job->graph)) +
                wf_cli_workspace(o, job->device) + job->files.beside,
        .link_bytes_per_second = (double)wf_options_int(o, "comm.bandwidth"),
        .link_seconds = 1e-6 * wf_options_real(o, "comm.latency"),
        .exact = wf_options_int(o, "run.deterministic") == WF_REPEATS_ON_ANY_MESH,
        .ahead = true,
    };
}

double wf_job_flops(const struct wf_graph *g)
{
    double flops = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        flops += wf_op_flops(g->nodes[i], wf_shape_region(wf_op_domain(g->nodes[i])->shape));
    return flops;
}

struct start {
    const struct wf_job *job;
    wf_rank_body *body;
    void *arg;
    struct wf_watchdog *dog; /* of ranks that are threads */
};

static bool start_body(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct start *const start = arg;
    const struct wf_sum_options sums = wf_job_sum_options(start->job->cli->options);
    return wf_comm_set_sums(comm, &sums, err) && start->body(comm, start->arg, err);
}

static bool start_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct start *const start = arg;
    if (start->dog)
        comm->watch = wf_watchdog_rank(start->dog, wf_comm_rank(comm));
#ifdef WF_HAVE_OPENMP
    omp_set_num_threads(start->job->threads); /* of this thread's teams only */
#endif
    return wf_job_over_link(start->job, comm, start_body, arg, err);
}

bool wf_job_run(struct wf_job *job, wf_rank_body *body, void *arg, struct wf_err *err)
{
    struct start start = { .job = job, .body = body, .arg = arg };
    if (job->cli->world)
        return start_rank(job->cli->world, &start, err);
    const int ranks = job->ranks + wf_job_servers(job);
    const struct wf_watchdog_options watch = wf_cli_watch_options(job->cli->options);
    if (ranks > 1)
        start.dog = wf_watchdog_new(ranks, 0, &watch);
    const bool ok = wf_comm_threads_run(ranks, start_rank, &start, err);
    wf_watchdog_free(start.dog);
    return ok;
}
