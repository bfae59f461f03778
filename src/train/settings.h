/*
 * What a job is made from: the settings of a config as plain values.
 *
 * A member has the name of its key (data.crop, train.batch, comm.overlap); docs/config.md describes the keys
 * and their ranges, and messages name them. config/options_settings.h fills this from options. Pointers
 * (texts, config.own) are borrowed and must outlive the job.
 */
#pragma once

#include "comm/comm.h"
#include "comm/watch.h"
#include "data/dataset.h"
#include "device/device.h"
#include "models/model.h"
#include "optim/optim.h"
#include "optim/schedule.h"
#include "plan/stages.h"
#include "train/domains.h"
#include "train/network.h"
#include "train/reduction.h"
#include "train/server.h"

enum wf_precision { WF_PRECISION_F32, WF_PRECISION_BF16, WF_PRECISION_F16, WF_PRECISION_TF32 };
enum wf_overlap { WF_OVERLAP_AUTO, WF_OVERLAP_NEVER, WF_OVERLAP_ALWAYS };
enum wf_validate_on { WF_VALIDATE_AUTO, WF_VALIDATE_CROP, WF_VALIDATE_WHOLE };
/* Bits the same every time: no, yes, and on every mesh. */
enum wf_repeats { WF_REPEATS_NEARLY, WF_REPEATS, WF_REPEATS_ON_ANY_MESH };

/* By the enums above, and of others; each ends with NULL. */
extern const char *const wf_precision_names[],
    *const wf_overlap_names[], *const wf_validate_on_names[],
                                   *const wf_repeats_names[],
                                       *const wf_sync_names[],
                                           *const wf_sum_way_names[],
                                               *const wf_device_transport_names[];

/* Extents of an array as people outside see them; count 0: not given. */
enum { WF_EXTENTS = WF_AXES + 1 }; /* points have up to four axes */
struct wf_extents {
    int count;
    int64_t at[WF_EXTENTS];
};

struct wf_data_settings {
    struct wf_dataset *open;    /* borrowed, in place of a path; or NULL */
    enum wf_data_layout layout; /* data.format */
    enum wf_data_align align;
    enum wf_data_alpha alpha;
    struct wf_extents size; /* N, C, spatial: random data instead of a dataset */
    int64_t points;    /* with `size`, of a sparse network: of each sample; else drawn on a mesh */
    double voxel;      /* of point clouds: edge of a voxel; 0: not given */
    unsigned features; /* of these: set of WF_FEATURE_*; 0: what the files have */
    struct wf_extents crop; /* spatial */
    int64_t pad, repeat;
    unsigned augment; /* set of WF_AUGMENT_* */
    bool balance;
    double validation;
    int threads;                /* negative: as the device needs */
    int64_t cache;              /* bytes of decoded images; negative: while memory is free */
    const char *const *domains; /* a dataset of each; the first is the labelled one */
    int n_domains;
};

/* Of networks of several domains. */
struct wf_adapt_settings {
    double weight[WF_ADAPTS]; /* train.weights */
    int64_t from, over; /* train.adapt_from: step from which they count; train.adapt_over: steps
                               * in which they grow to their weights */
    enum wf_similarity similarity;
};

struct wf_train_settings {
    int64_t epochs, batch, accumulate;
    bool batch_is_per_rank;
    enum wf_reduction reduction;
    double clip, loss_scale;
    struct wf_optim_options optim;
    struct wf_schedule schedule; /* with the rate of one rank */
    enum wf_lr_scaling lr_scaling;
    unsigned losses; /* set of WF_LOSS_* */
    bool loss_per_tile, has_ignore;
    int32_t ignore;
    struct wf_adapt_settings adapt;
    int64_t validate_every, early_stop, skip_limit;
    enum wf_validate_on validate_on;
    int64_t checkpoint_steps, samples;
    double checkpoint_minutes, checkpoint_seconds;
    enum wf_precision precision;
    enum wf_sync sync;
    int staleness;
    uint64_t seed;
};

struct wf_mesh_settings {
    bool is_given;       /* `mesh` is; otherwise it is chosen for the ranks */
    bool choose;         /* without a number of ranks: for all cores */
    struct wf_mesh mesh; /* with its axes also where it is not given: train.batch_is reads data */
    int ranks;           /* run.ranks; 0: not given */
    enum wf_domain_placement placement; /* domain.placement */
};

struct wf_pipe_settings {
    enum wf_pipe_schedule schedule; /* pipe.schedule */
    const char *const *cut;         /* pipe.cut */
    int n_cut;
};

struct wf_comm_settings {
    enum wf_device_path path; /* comm.device */
    enum wf_overlap overlap;
    size_t bucket;
    double bandwidth; /* bytes a second; 0: the device's */
    double latency;   /* seconds; 0: the device's */
    bool emulate;
    struct wf_watchdog_options watch; /* comm.warn_after, comm.timeout */
    struct wf_sum_options sums;       /* comm.allreduce, comm.precision, comm.node_ranks */
    const struct wf_stop *stop;       /* a program's; NULL: none */
};

/* The machines that a plan is for; zeros: all ranks are connected alike. */
struct wf_cluster_settings {
    int node;                            /* cluster.node: devices of a node */
    double link_bandwidth, link_latency; /* among them: bytes a second, seconds */
};

struct wf_settings {
    const struct wf_model *model;
    struct wf_model_config config; /* zeros: as the data has, or the network's own */
    const char *weights;           /* model.weights, or NULL */
    struct wf_data_settings data;
    struct wf_train_settings train;
    struct wf_mesh_settings mesh;
    struct wf_pipe_settings pipe;
    struct wf_comm_settings comm;
    struct wf_cluster_settings cluster;
    const char *device;      /* run.device */
    int threads;             /* run.threads; 0: OMP_NUM_THREADS, or cores / ranks */
    enum wf_repeats repeats; /* run.deterministic */
    const char *cache;       /* run.cache; NULL: the usual place */
    size_t limit;            /* memory.limit; 0: none */
    bool recompute;          /* memory.recompute */
};

/* The network's configuration with its zeros filled in. `size` (count extents as N, C, *spatial, or
 * NULL) settles dims and channels where the settings do not. */
[[nodiscard]] bool wf_settings_config(const struct wf_settings *s, int count, const int64_t size[],
                                      struct wf_model_config *config, struct wf_err *err);
/* Samples of a batch over all ranks. */
int64_t wf_settings_batch(const struct wf_settings *s);
/* OpenMP threads of each of so many ranks that share so many cores: run.threads, OMP_NUM_THREADS, or cores / ranks, of
 * those that this process may use. */
int wf_settings_threads(const struct wf_settings *s, int cores, int ranks);
/* Inside shape of [N, C, *spatial]. */
struct wf_shape wf_extents_shape(int count, const int64_t size[]);
