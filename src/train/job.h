/*
 * A job: what a program trains, made from the settings.
 *
 * The network by name, its loss and gradients as one graph for the whole batch; the mesh and how
 * its ranks come to be; and what the inputs and weights are filled with. Random numbers are keyed by
 * the element's index in the outside layout ([N, C, *spatial]), so every mesh sees the same data.
 *
 *     struct wf_job *job = wf_job_new(&launch, &settings, &(struct wf_job_files){ 0 }, err);
 *     bool ok = job && wf_job_run(job, body, &result, err);    body once per rank
 *     wf_job_free(job);
 *
 * A job is not written after wf_job_new(): ranks that are threads share it.
 */
#pragma once

#include "comm/link_model.h"
#include "plan/plan.h"
#include "tensor/view.h"
#include "train/launch.h"
#include "train/points.h"
#include "train/settings.h"
#include "train/step.h"

/* Files instead of random numbers; NULL: random. */
struct wf_job_files {
    const char *weights; /* safetensors */
    const char *input;   /* .npy, [N, C, *spatial] */
    const char *target;  /* .npy, a class map [N, *spatial], or the prediction's shape */
    enum wf_sync sync;   /* other than allreduce: `train` alone */
    int count;           /* of size: N, C, spatial, as a dataset has it; 0: as the settings say */
    int64_t size[WF_EXTENTS];
    bool keeps_outputs; /* predictions of all micro-batches are read after a step */
    bool begun;         /* a checkpoint has the weights: model.weights is not read again */
    bool on_paper;      /* it is never run: the device need not be in this build */
    bool any_size;      /* planned also where memory.limit has no room for it */
    size_t beside;      /* bytes that each rank takes beside the step: validation's */
    /* Of a sparse network, where points come from a dataset: rows of each set of the graph, of all ranks of
     * the mesh that it was built for. */
    bool (*measure)(void *user, const struct wf_graph *g, int64_t capacities[WF_SETS + 1],
                    struct wf_err *err);
    void *user;
};
struct wf_run;

struct wf_safetensors;

struct wf_job {
    struct wf_arena arena;
    struct wf_launch launch;
    struct wf_settings settings;
    struct wf_job_files files;
    struct wf_safetensors *weights; /* files.weights, open; or NULL */
    const struct wf_model *model;
    struct wf_model_config config; /* resolved */
    struct wf_network net;         /* that trains */
    /* Of a sparse network, per micro-batch: its points, and who has them, on the mesh and on one rank. NULL: of a
     * dense one, or where they come from a dataset. */
    struct wf_points_of_step *points;
    struct wf_points_rows *rows, *whole_rows;
    int64_t capacities[WF_SETS + 1]; /* of all ranks together */
    int64_t samples;                 /* of a micro-batch */
    enum wf_target_kind target_kind;
    struct wf_mesh mesh;
    struct wf_domains domains;
    int ranks, threads; /* of the mesh; threads of each rank */
    int ranks_here;     /* on this machine */
    int cores_here;     /* that they share */
    struct wf_figures
        *figures; /* of the machine that it is planned for (train/machine.h); or NULL */
    int workers;  /* parts of mesh.data that train on batches of their own; 0: all on one */
    struct wf_global_plan
        *global; /* of this mesh; made early, so that a bad mesh is refused early */
    const struct wf_device *device;
    struct wf_link_model link; /* that is emulated; of no bytes: none */
};

/* Collective under a launcher. NULL on error, then on every rank. */
struct wf_job *wf_job_new(const struct wf_launch *launch, const struct wf_settings *settings,
                          const struct wf_job_files *files, struct wf_err *err);
void wf_job_free(struct wf_job *job);

/* The calling thread's teams have the job's number of threads from now on. */
void wf_job_use_threads(const struct wf_job *job);

/* The job's network on images of another shape: with gradients for an epoch's last batch, without for
 * validation (see wf_network_build()). */
[[nodiscard]] bool wf_job_network(const struct wf_job *job, struct wf_shape image, bool training,
                                  struct wf_network *net, struct wf_err *err);

/* The same without gradients, predicting for the images of a domain. */
[[nodiscard]] bool wf_job_network_for(const struct wf_job *job, struct wf_shape image, int domain,
                                      struct wf_network *net, struct wf_err *err);

/* Of a sparse network: the same, or without gradients, for sets of these capacities, which are borrowed. */
[[nodiscard]] bool wf_job_network_rows(const struct wf_job *job, const int64_t capacities[],
                                       bool training, struct wf_network *net, struct wf_err *err);

/* What a network of several domains makes of images as large as the job's (wf_network_build_views()). */
[[nodiscard]] bool wf_job_views(const struct wf_job *job, struct wf_network *net,
                                struct wf_domain_views **views, struct wf_err *err);

/* Fills mesh, ranks and threads; the graph is there (job_mesh.c). */
[[nodiscard]] bool wf_job_find_mesh(struct wf_job *job, struct wf_err *err);

/* Refuses a global plan of this job that memory.limit has no room for, and says what would have. */
[[nodiscard]] bool wf_job_check_limit(const struct wf_job *job, const struct wf_global_plan *global,
                                      struct wf_err *err);

/* By what its ranks are connected: "threads", "mpi", "nccl". */
const char *wf_job_transport(const struct wf_job *job);

/* The plan options of this job. */
struct wf_plan_options wf_job_plan_options(const struct wf_job *job);
/* For a plan of one micro-batch that is cut into stages as the job's own: its ranks have the same weights. */
struct wf_pipe_options wf_job_pipe_like(const struct wf_job *job);
/* What a plan needs in all, optimiser included; and the part of it that is not the arena. */
size_t wf_job_param_bytes(const struct wf_job *job, const struct wf_plan *plan);
/* What the optimiser keeps for so many elements of parameters. */
size_t wf_job_optim_bytes(const struct wf_job *job, size_t count);
/* What a step is, and its learning rate over a run. */
struct wf_learner_options wf_job_learner_options(const struct wf_job *job, struct wf_comm *comm,
                                                 struct wf_optim *optim);
struct wf_schedule wf_job_schedule(const struct wf_job *job);

/* Collective under a launcher. Runs `body` once per rank: in this process when a launcher started
 * us, on threads otherwise. */
typedef bool wf_rank_body(struct wf_comm *comm, void *arg, struct wf_err *err);
[[nodiscard]] bool wf_job_run(struct wf_job *job, wf_rank_body *body, void *arg,
                              struct wf_err *err);

/* The emulated link of comm.emulate, for who prints a time. "": none */
const char *wf_job_link_text(struct wf_arena *arena, const struct wf_job *job);

/* Micro-batches of a step. */
static inline int wf_job_micro_batches(const struct wf_job *job)
{
    return job->settings.train.accumulate > 1 ? (int)job->settings.train.accumulate : 1;
}
/* FLOPs of a step. */
double wf_job_flops(const struct wf_job *job);
/* Fill the view's box of an input of a micro-batch, or of a parameter or state (job_data.c). Arrays have the
 * samples of all micro-batches. */
[[nodiscard]] bool wf_job_fill(const struct wf_job *job, const struct wf_value *v, int micro,
                               const struct wf_view *view, struct wf_err *err);
/* Of a sparse network (job_points.c): the points of --input, and the size they have; others by random numbers; then
 * who has which of them, with the capacities that follow. */
[[nodiscard]] bool wf_job_read_points(struct wf_job *job, struct wf_extents *size,
                                      struct wf_err *err);
[[nodiscard]] bool wf_job_make_points(struct wf_job *job, const struct wf_extents *size,
                                      struct wf_err *err);
[[nodiscard]] bool wf_job_deal_points(struct wf_job *job, struct wf_err *err);
/* The boxes of the ranks whose places a view has (ops/halo.h). */
void wf_job_boxes(const struct wf_job *job, const struct wf_value *v, int micro,
                  const struct wf_view *view);
/* The point of a row of a view, or -1: behind the last of them. */
int64_t wf_job_point(const struct wf_job *job, const struct wf_value *v, int micro,
                     const struct wf_view *view, int64_t row);
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

/* Ranks beside those of the mesh. */
static inline int wf_job_servers(const struct wf_job *job)
{
    return job->files.sync == WF_SYNC_ALLREDUCE ? 0 : 1;
}
/* The mesh that one training step runs on. */
struct wf_mesh wf_job_step_mesh(const struct wf_job *job);
/* Asynchronous workers of the settings. */
[[nodiscard]] bool wf_job_find_workers(const struct wf_launch *launch,
                                       const struct wf_settings *settings, int *workers,
                                       struct wf_err *err);
