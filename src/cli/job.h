/*
 * A job: what a subcommand works on, made from the resolved options.
 *
 * The network by name, its loss and gradients as one graph for the whole batch; the mesh and how
 * its ranks come to be; and what the inputs and weights are filled with. Random numbers are keyed by
 * the element's index in the outside layout ([N, C, *spatial]), so every mesh sees the same data.
 *
 *     struct wf_job *job = wf_job_new(cli, &(struct wf_job_files){ 0 }, err);
 *     bool ok = job && wf_job_run(job, body, &result, err);    body once per rank
 *     wf_job_free(job);
 *
 * A job is not written after wf_job_new(): ranks that are threads share it.
 */
#ifndef WF_CLI_JOB_H
#define WF_CLI_JOB_H

#include "cli/cli.h"
#include "comm/link_model.h"
#include "models/model.h"
#include "plan/choose.h"
#include "plan/plan.h"
#include "tensor/view.h"
#include "train/network.h"
#include "train/server.h"

/* Files instead of random numbers; NULL: random. */
struct wf_job_files {
    const char *weights; /* safetensors */
    const char *input;   /* .npy, [N, C, *spatial] */
    const char *target;  /* .npy, a class map [N, *spatial], or the prediction's shape */
    enum wf_sync sync;   /* other than allreduce: `train` alone */
    int count;           /* of size: N, C, spatial, as a dataset has it; 0: as the options say */
    int64_t size[WF_AXES];
    bool begun;    /* a checkpoint has the weights: model.weights is not read again */
    bool any_size; /* planned also where memory.limit has no room for it */
    size_t beside; /* bytes that each rank takes beside the step: validation's */
};
struct wf_run;

enum wf_job_target {
    WF_TARGET_CLASSES, /* i32 labels, one per prediction: ce, dice */
    WF_TARGET_BINARY,  /* f32 0 or 1, of the logits' shape: bce */
    WF_TARGET_REAL,    /* f32 of the logits' shape: mse */
};

struct wf_safetensors;

struct wf_job {
    struct wf_arena arena;
    struct wf_cli *cli;
    struct wf_job_files files;
    struct wf_safetensors *weights; /* files.weights, open; or NULL */
    const struct wf_model *model;
    struct wf_model_config config;
    struct wf_graph *graph;
    struct wf_value *input, *target, *logits, *loss;
    struct wf_value *start, *counts; /* see struct wf_network */
    enum wf_job_target target_kind;
    struct wf_mesh mesh;
    int ranks, threads; /* of the mesh; threads of each rank */
    int workers;        /* parts of mesh.data that train on batches of their own; 0: all on one */
    struct wf_global_plan
        *global; /* of this mesh; made early, so that a bad mesh is refused early */
    const struct wf_device *device;
    struct wf_link_model link; /* that is emulated; of no bytes: none */
    uint64_t seed;
};

/* Collective under a launcher. NULL on error, then on every rank. */
struct wf_job *wf_job_new(struct wf_cli *cli, const struct wf_job_files *files, struct wf_err *err);
void wf_job_free(struct wf_job *job);

/* The network of the options, with its zeros filled in. `size` (count extents as N, C, *spatial, or
 * NULL) settles dims and channels where the options do not. */
const struct wf_model *wf_job_model(struct wf_options *o, int count, const int64_t size[],
                                    struct wf_model_config *config, struct wf_err *err);
/* Inside shape of [N, C, *spatial]. */
struct wf_shape wf_job_shape(int count, const int64_t size[]);

/* The job's network with its loss on images of another shape, without gradients: for validation. Class
 * maps then have a label that does not count, also where the options give none. The caller frees
 * net->graph, also after a failure. */
[[nodiscard]] bool wf_job_inference(const struct wf_job *job, struct wf_shape image,
                                    struct wf_network *net, struct wf_err *err);
/* The job's network on batches of another shape, with gradients: for an epoch's last batch. The caller
 * frees net->graph, also after a failure. */
[[nodiscard]] bool wf_job_training(const struct wf_job *job, struct wf_shape image,
                                   struct wf_network *net, struct wf_err *err);
/* Samples of a batch over all ranks. */
int64_t wf_job_batch(const struct wf_options *o);
/* The network that trains. */
struct wf_network wf_job_network(const struct wf_job *job);

/* Fills mesh, ranks and threads; the graph is there (job_mesh.c). */
[[nodiscard]] bool wf_job_find_mesh(struct wf_job *job, struct wf_err *err);

/* Refuses a global plan of this job that memory.limit has no room for, and says what would have. */
[[nodiscard]] bool wf_job_check_limit(const struct wf_job *job, const struct wf_global_plan *global,
                                      struct wf_err *err);

/* The plan options of this job. */
struct wf_plan_options wf_job_plan_options(const struct wf_job *job);
/* FLOPs of one step over the whole batch, without recomputation. */
double wf_job_flops(const struct wf_graph *g);

/* Collective under a launcher. Runs `body` once per rank: in this process when a launcher started
 * us, on threads otherwise. */
typedef bool wf_rank_body(struct wf_comm *comm, void *arg, struct wf_err *err);
[[nodiscard]] bool wf_job_run(struct wf_job *job, wf_rank_body *body, void *arg,
                              struct wf_err *err);

/* The emulated link of comm.emulate (job_comm.c). wf_job_run() uses it; who prints a time says so. */
[[nodiscard]] bool wf_job_find_link(struct wf_job *job, struct wf_err *err);
[[nodiscard]] bool wf_job_over_link(const struct wf_job *job, struct wf_comm *comm,
                                    wf_rank_body *body, void *arg, struct wf_err *err);
const char *wf_job_link_text(struct wf_arena *arena, const struct wf_job *job); /* "": none */
void wf_job_add_link(const struct wf_job *job, struct cJSON *json);

/* Fill the view's box of an input, parameter or state (job_data.c). */
[[nodiscard]] bool wf_job_fill(const struct wf_job *job, const struct wf_value *v,
                               const struct wf_view *view, struct wf_err *err);
/* Opens the weights file, which has every parameter in its shape and nothing that is not known. */
[[nodiscard]] bool wf_job_open_weights(struct wf_job *job, struct wf_err *err);
/* Opens model.weights, of which the network takes what it knows: at least something. */
[[nodiscard]] bool wf_job_open_start(struct wf_job *job, struct wf_err *err);
/* Collective under a launcher. Does every rank see the same file of weights? */
[[nodiscard]] bool wf_job_same_weights(const struct wf_job *job, struct wf_err *err);
/* Weights and states as a run begins with them: by their rules, or as the open file says. */
[[nodiscard]] bool wf_job_start_weights(const struct wf_job *job, struct wf_run *run,
                                        struct wf_err *err);
/* Size of the .npy at `path`. */
[[nodiscard]] bool wf_job_npy_size(const char *path, int *count, int64_t size[WF_AXES],
                                   struct wf_err *err);

/* Index of an element in the outside layout [N, C, D, H, W]; axes of extent one do not matter. */
static inline int64_t wf_outside_index(const struct wf_shape *s, const int64_t at[WF_AXES])
{
    int64_t index = at[WF_N] * s->at[WF_C] + at[WF_C];
    for (int a = WF_D; a <= WF_W; a++)
        index = index * s->at[a] + at[a];
    return index;
}

/* Ranks beside those of the mesh. */
static inline int wf_job_servers(const struct wf_job *job)
{
    return job->files.sync == WF_SYNC_ALLREDUCE ? 0 : 1;
}
/* The mesh that one training step runs on. */
struct wf_mesh wf_job_step_mesh(const struct wf_job *job);
/* Asynchronous workers of the options. */
[[nodiscard]] bool wf_job_find_workers(struct wf_cli *cli, int *workers, struct wf_err *err);

/* Cores that this process may use. */
int wf_job_cores(void);
/* OpenMP threads of each of so many ranks on this machine: run.threads, OMP_NUM_THREADS, or cores / ranks. */
int wf_job_threads(const struct wf_options *o, int ranks);

#endif
