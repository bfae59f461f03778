#include "config/options.h"

#include "data/augment.h"
#include "data/clouds.h"
#include "data/dataset.h"
#include "models/model.h"
#include "optim/optim.h"
#include "optim/schedule.h"
#include "train/reduction.h"
#include "train/settings.h"
#include "train/staleness.h"

/* What may stand where; tests/test_options.c holds the defaults against the ranges. */
#define COUNT_MAX 1e9
#define SEED_MAX 9007199254740992.0 /* 2^53: a seed survives a trip through JSON */

static const char *const batches[] = { "global", "per_rank", NULL };
static const char *const clocks[] = { "epoch", "step", NULL };
static const char *const sum_precisions[] = { "f32", "bf16", NULL };
static const char *const devices[] = { "cpu", "reference", "cuda", NULL };

/* What all networks have; their own stand behind it (models/model.h). */
static const struct wf_option model_rows[] = {
    { "model.name",
      "the network; 'widefield model list' lists them; or the path of a network file "
      "(docs/networks.md)",
      .type = WF_OPTION_TEXT, .fallback = "unet" },
    { "model.network",
      "the text of a network file in place of one; checkpoints hold that of the file they are of",
      .type = WF_OPTION_TEXT, .unset = "read from the file that model.name names" },
    { "model.dims", "spatial dimensions", WF_OPTION_IN(INT, 1, 4),
      .unset = "from data.size, or the network's default" },
    { "model.in", "channels of the image", WF_OPTION_IN(INT, 1, 65536),
      .unset = "from data.size, or the network's default" },
    { "model.classes", "channels of the prediction", WF_OPTION_IN(INT, 1, 65536),
      .unset = "the network's default" },
    { "model.base", "channels of the first level", WF_OPTION_IN(INT, 1, 65536),
      .unset = "the network's default" },
    { "model.depth", "levels below the first", WF_OPTION_IN(INT, 1, 16),
      .unset = "the network's default" },

    { "model.weights",
      "safetensors file, such as a checkpoint, to start from; tensors that match by name are "
      "loaded",
      .type = WF_OPTION_TEXT, .unset = "none" },
    { .key = NULL },
};

static const struct wf_option rows[] = {
    { "data.path", "folder of images", .type = WF_OPTION_TEXT, .unset = "none" },
    { "data.domains",
      "a folder of images for each domain of a network of several; the first has the labels",
      .type = WF_OPTION_TEXTS, .count_min = 1, .count_max = WF_OPTION_LIST_MAX, .unset = "none" },
    { "data.format", "layout of the dataset folder", WF_OPTION_OF(NAME, wf_dataset_layout_names),
      .fallback = "auto" },
    { "data.align",
      "masks whose geometry (NIfTI, GeoTIFF) differs from that of the image: refuse them, "
      "resample them to the nearest label, or ignore the headers and match pixel by pixel",
      WF_OPTION_OF(NAME, wf_align_names), .fallback = "refuse" },
    { "data.alpha",
      "a last channel that is marked as alpha: drop it, or keep it (GDAL marks the fourth of "
      "four byte bands as alpha, such as near infrared); it is also kept where the network "
      "takes that many channels",
      WF_OPTION_OF(NAME, wf_alpha_names), .fallback = "drop" },
    { "data.size",
      "random data of this size instead of files: N, C, spatial; N is the global batch (of one micro-batch, with train.accumulate)",
      WF_OPTION_IN(INTS, 1, COUNT_MAX), .count_min = 3, .count_max = 6,
      .unset = "train.batch, model.in, data.crop" },
    { "data.points",
      "for a network of points: with data.size so many in the box of each sample; of meshes so many "
      "drawn on each",
      WF_OPTION_IN(INT, 1, COUNT_MAX), .unset = "none; 4096 on a mesh" },
    { "data.voxel", "edge of a voxel, in the unit of the point clouds",
      WF_OPTION_IN(REAL, 1e-9, 1e9), .unset = "none: point clouds need it" },
    { "data.features", "what a network sees of a point", WF_OPTION_OF(NAMES, wf_feature_names),
      .count_min = 1, .count_max = 5,
      .unset = "color and intensity where the files have them, else ones" },
    { "data.crop", "spatial size of a sample", WF_OPTION_IN(INTS, 1, COUNT_MAX), .count_min = 1,
      .count_max = 3, .unset = "the whole image" },
    { "data.pad", "pixels of zeros around an image that training crops may include",
      WF_OPTION_IN(INT, 0, 65536), .fallback = "0" },
    { "data.augment", "random augmentations of a sample", WF_OPTION_OF(NAMES, wf_augment_names),
      .count_min = 0, .count_max = 10, .fallback = "[]" },
    { "data.repeat", "crops per image and epoch", WF_OPTION_IN(INT, 1, COUNT_MAX),
      .fallback = "1" },
    { "data.balance", "choose a class first, then a crop that contains it", .type = WF_OPTION_BOOL,
      .fallback = "false" },
    { "data.validation",
      "fraction of the images used for validation, where the dataset has no validation part",
      WF_OPTION_IN(REAL, 0, 0.9), .fallback = "0.2" },
    { "data.threads", "threads per rank that read ahead", WF_OPTION_IN(INT, 0, 256),
      .unset = "1; on a GPU 8, or one less than there are cores" },
    { "data.cache", "memory for decoded images and labels, which later epochs take from there",
      WF_OPTION_IN(BYTES, 0, 1e18),
      .unset = "what is free, but for a quarter of all; 512MiB with memory.limit on the CPU" },

    { "train.epochs", "passes over the data", WF_OPTION_IN(INT, 1, COUNT_MAX), .fallback = "1" },
    { "train.batch", "samples per pass", WF_OPTION_IN(INT, 1, COUNT_MAX), .fallback = "1" },
    { "train.batch_is", "train.batch counts the samples of all ranks, or of each rank of mesh.data",
      WF_OPTION_OF(NAME, batches), .fallback = "global" },
    { "train.accumulate",
      "micro-batches of train.batch whose gradients make one update; the stages of mesh.pipe work on "
      "several of them at once",
      WF_OPTION_IN(INT, 1, 1 << 16), .fallback = "1" },
    { "train.reduction",
      "global: mean over the whole batch; rank_mean: mean of the means of the ranks of "
      "mesh.data",
      WF_OPTION_OF(NAME, wf_reduction_names), .fallback = "global" },
    { "train.clip", "maximum norm of the gradient; 0: no clipping", WF_OPTION_IN(REAL, 0, 1e30),
      .fallback = "0" },
    { "train.optimizer", "update rule", WF_OPTION_OF(NAME, wf_optim_names), .fallback = "adam" },
    { "train.lr", "learning rate", WF_OPTION_IN(REAL, 0, 1e6), .fallback = "1e-3" },
    { "train.schedule", "learning-rate schedule", WF_OPTION_OF(NAME, wf_schedule_names),
      .fallback = "constant" },
    { "train.schedule_by", "unit of the schedule", WF_OPTION_OF(NAME, clocks),
      .fallback = "epoch" },
    { "train.schedule_every", "schedule 'step': epochs (or steps) between two changes",
      WF_OPTION_IN(INT, 1, COUNT_MAX), .fallback = "30" },
    { "train.gamma", "factor of the schedules step, exponential and plateau",
      WF_OPTION_IN(REAL, 0, 1), .unset = "0.1; exponential: 0.95" },
    { "train.patience", "schedule 'plateau': epochs without improvement before the rate is reduced",
      WF_OPTION_IN(INT, 0, COUNT_MAX), .fallback = "10" },
    { "train.lr_min", "schedules cosine and plateau: lowest rate", WF_OPTION_IN(REAL, 0, 1e6),
      .fallback = "0" },
    { "train.lr_scaling",
      "multiply the rate by the number of ranks of mesh.data (linear) or its square root",
      WF_OPTION_OF(NAME, wf_lr_scaling_names), .fallback = "none" },
    { "train.warmup", "epochs, possibly a fraction, over which the rate rises to its value",
      WF_OPTION_IN(REAL, 0, 1e6), .fallback = "0" },
    { "train.momentum", "momentum of momentum, nesterov, lars and rmsprop",
      WF_OPTION_IN(REAL, 0, 1), .unset = "0.9; rmsprop: 0" },
    { "train.beta1", "adam, adamw and lamb: decay of the mean of gradients",
      WF_OPTION_IN(REAL, 0, 0.999999), .unset = "0.9" },
    { "train.beta2", "adam, adamw, lamb and rmsprop: decay of the mean of squared gradients",
      WF_OPTION_IN(REAL, 0, 0.999999), .unset = "0.999; rmsprop: 0.99" },
    { "train.eps", "added to the denominator of adam and the other adaptive rules",
      WF_OPTION_IN(REAL, 0, 1), .unset = "1e-8; adagrad: 1e-10, lamb: 1e-6" },
    { "train.weight_decay",
      "weight decay; adamw and lamb apply it to the weight, the others to the gradient",
      WF_OPTION_IN(REAL, 0, 1e6), .unset = "0; adamw and lamb: 0.01, lars: 5e-4" },
    { "train.decay_vectors",
      "apply weight decay, and the trust ratio of lamb and lars, to biases and norms too",
      .type = WF_OPTION_BOOL, .fallback = "true" },
    { "train.trust", "lars: trust coefficient", WF_OPTION_IN(REAL, 0, 1e6), .unset = "0.001" },
    { "train.loss", "loss, or a sum such as ce+dice", WF_OPTION_OF(SUM, wf_loss_names),
      .fallback = "ce" },
    { "train.weights.reconstruction",
      "weight of rebuilding the images, for networks of several domains",
      WF_OPTION_IN(REAL, 0, 1e9), .fallback = "0.1" },
    { "train.weights.difference",
      "weight of the difference of a domain's two codes, for networks of several domains",
      WF_OPTION_IN(REAL, 0, 1e9), .fallback = "0.05" },
    { "train.weights.similarity",
      "weight of the similarity of the domains' shared codes, for networks of several domains",
      WF_OPTION_IN(REAL, 0, 1e9), .fallback = "0.25" },
    { "train.similarity",
      "how shared codes are made alike: a head that tells domains apart behind gradient reversal, "
      "or the maximum mean discrepancy",
      WF_OPTION_OF(NAME, wf_similarity_names), .fallback = "dann" },
    { "train.adapt_from",
      "step from which these losses count; before it the source is learned alone",
      WF_OPTION_IN(INT, 0, 1e15), .fallback = "0" },
    { "train.adapt_over",
      "steps, from train.adapt_from on, in which these losses grow to their weights; 0: at once",
      WF_OPTION_IN(INT, 0, 1e15), .fallback = "0" },
    { "train.loss_per_tile",
      "mean of the losses of the subdomains instead of the loss of the whole image, for "
      "networks with subdomains",
      .type = WF_OPTION_BOOL, .fallback = "false" },
    { "train.ignore", "label that is left out of loss and metrics",
      WF_OPTION_IN(INT, -2147483648.0, 2147483647.0), .unset = "no label" },
    { "train.validate_every", "epochs between two validations; the last epoch is always validated",
      WF_OPTION_IN(INT, 1, COUNT_MAX), .fallback = "1" },
    { "train.validate_on",
      "whole images, or crops that cover them; auto: whole images if all have one size of at "
      "most four crops",
      WF_OPTION_OF(NAME, wf_validate_on_names), .fallback = "auto" },
    { "train.early_stop", "stop after this many validations without improvement; 0: never",
      WF_OPTION_IN(INT, 0, COUNT_MAX), .fallback = "0" },
    { "train.checkpoint_seconds",
      "write a checkpoint at the end of an epoch if the last one is N seconds old; 0: at the end "
      "of each epoch; the best epoch, the last and a stopped run always write one",
      WF_OPTION_IN(REAL, 0, 1e6), .fallback = "30" },
    { "train.checkpoint_steps", "write a checkpoint every N steps as well; 0: off",
      WF_OPTION_IN(INT, 0, COUNT_MAX), .fallback = "0" },
    { "train.checkpoint_minutes", "write a checkpoint every N minutes as well; 0: off",
      WF_OPTION_IN(REAL, 0, 1e6), .fallback = "10" },
    { "train.samples", "validation images in the run folder and the report, the worst first",
      WF_OPTION_IN(INT, 0, 1000), .fallback = "8" },
    { "train.loss_scale", "f16: initial loss scale; it is adjusted automatically",
      WF_OPTION_IN(REAL, 1, 281474976710656.0), .fallback = "65536" },
    { "train.skip_limit",
      "consecutive steps with a non-finite gradient after which the run ends; 0: no limit",
      WF_OPTION_IN(INT, 0, COUNT_MAX), .fallback = "50" },
    { "train.precision", "element type of activations", WF_OPTION_OF(NAME, wf_precision_names),
      .fallback = "f32" },
    { "train.sync",
      "how ranks combine gradients: allreduce; server: a parameter server on one extra rank; "
      "async: the server applies each gradient as it arrives, each part of mesh.data has its "
      "own batches",
      WF_OPTION_OF(NAME, wf_sync_names), .fallback = "allreduce" },
    { "train.staleness", "train.sync async: most updates that an applied gradient may be behind",
      WF_OPTION_IN(INT, 0, WF_STALENESS_MOST), .fallback = "4" },
    { "train.seed", "seed of weights, random data and dropout", WF_OPTION_IN(INT, 0, SEED_MAX),
      .fallback = "1" },

    { "mesh.auto", "choose the mesh for the given ranks", .type = WF_OPTION_BOOL,
      .fallback = "false" },
    { "mesh.data", "parts of the batch", WF_OPTION_IN(INT, 1, 1 << 20), .fallback = "1" },
    { "mesh.domain", "groups of domains", WF_OPTION_IN(INT, 1, 1 << 20), .fallback = "1" },
    { "mesh.pipe", "stages of the pipeline", WF_OPTION_IN(INT, 1, 1 << 20), .fallback = "1" },
    { "mesh.space", "parts of the image as W, HxW or DxHxW", WF_OPTION_IN(INTS, 1, 1 << 20),
      .count_min = 1, .count_max = 3, .fallback = "[1]" },

    { "domain.placement",
      "what a worker along mesh.domain has: domains, encoders (shared and private apart), or roles "
      "(decoder and losses apart too); *_losses: the last worker has the decoders and losses of all; "
      "auto: the cheapest by the cost model",
      WF_OPTION_OF(NAME, wf_domain_placement_names), .fallback = "auto" },

    { "pipe.schedule",
      "in which order a stage of mesh.pipe runs its micro-batches: one forward, one backward; with two "
      "parts of the network on each stage; or with weight gradients where it would wait",
      WF_OPTION_OF(NAME, wf_pipe_schedule_names), .fallback = "1f1b" },
    { "pipe.cut",
      "layers with which the second and later parts of the network begin, one less than there are parts; "
      "not given: so that all take about as long",
      .type = WF_OPTION_TEXTS, .count_min = 1, .count_max = WF_OPTION_LIST_MAX, .unset = "chosen" },

    { "comm.device",
      "how GPU buffers reach other ranks: directly by NCCL, or through host memory; auto: "
      "NCCL if it is installed and every rank has its own GPU",
      WF_OPTION_OF(NAME, wf_device_transport_names), .fallback = "auto" },
    { "comm.overlap",
      "overlap of communication and computation: 'auto' splits a layer into inner part and "
      "halo where the cost model expects a gain, 'always' wherever possible, 'never' waits at "
      "once",
      WF_OPTION_OF(NAME, wf_overlap_names), .fallback = "auto" },
    { "comm.bucket",
      "bytes of gradients that are summed over ranks together; a value above the size of the "
      "network: all at the end of the backward pass",
      WF_OPTION_IN(BYTES, 1, 1e18), .fallback = "4MiB" },
    { "comm.bandwidth",
      "bytes per second between two ranks, for the cost model: --mesh auto, plan, overlap",
      WF_OPTION_IN(BYTES, 1, 1e15),
      .unset =
          "as measured ('check --calibrate'), or of the device: cpu 5e9; with cluster.node 5e10" },
    { "comm.latency", "microseconds per message, for the cost model",
      WF_OPTION_IN(REAL, 0.001, 1e9),
      .unset = "as measured, or of the device: cpu 5; with cluster.node 20" },
    { "comm.emulate",
      "for measurements on one machine: delay messages between ranks by comm.latency and "
      "comm.bandwidth",
      .type = WF_OPTION_BOOL, .fallback = "false" },
    { "comm.warn_after",
      "seconds that a rank waits for others (or for work that rank 0 does alone) before it "
      "reports the wait on stderr; 0: never. Waits inside a GPU stream are not reported",
      .type = WF_OPTION_REAL, .fallback = "60", .min = 0, .max = 1e9 },
    { "comm.timeout", "seconds of such a wait after which the run fails; 0: no limit",
      .type = WF_OPTION_REAL, .fallback = "0", .min = 0, .max = 1e9 },
    { "comm.allreduce",
      "algorithm of sums over ranks: the one of the transport library, ring, tree, or within "
      "each machine first; auto: by size ('widefield bench allreduce')",
      WF_OPTION_OF(NAME, wf_sum_way_names), .fallback = "auto" },
    { "comm.precision", "element type of gradients in messages; they are summed in f32",
      WF_OPTION_OF(NAME, sum_precisions), .fallback = "f32" },
    { "comm.node_ranks", "neighbouring ranks that count as one machine for comm.allreduce",
      WF_OPTION_IN(INT, 1, 1 << 20), .unset = "the ranks that share memory" },

    { "cluster.node",
      "devices of a node, for the cost model: they have cluster.link_* among them, and nodes have "
      "comm.bandwidth and comm.latency between them, for each device",
      WF_OPTION_IN(INT, 1, 1 << 20), .unset = "all are connected alike" },
    { "cluster.link_bandwidth", "bytes per second between two devices of a node, each way",
      WF_OPTION_IN(BYTES, 1, 1e15), .unset = "of the device: cuda 2e11" },
    { "cluster.link_latency", "microseconds per message between two devices of a node",
      WF_OPTION_IN(REAL, 0.001, 1e9), .unset = "of the device: cuda 10" },

    { "run.device", "device that computes; 'reference' runs the slow reference kernels",
      WF_OPTION_OF(NAME, devices), .fallback = "cpu" },
    { "run.ranks", "ranks, as threads of this process", WF_OPTION_IN(INT, 1, 4096),
      .unset = "the size of the mesh" },
    { "run.threads", "OpenMP threads per rank", WF_OPTION_IN(INT, 1, 4096),
      .unset = "OMP_NUM_THREADS, or cores / ranks" },

    { "run.deterministic",
      "true: only GPU kernels that give the same bits in every run; mesh: also the same bits "
      "on every mesh, with slower convolutions of our own",
      WF_OPTION_OF(NAME, wf_repeats_names), .fallback = "false" },
    { "run.cache",
      "file, or a folder for it, that caches which primitives of external libraries are correct "
      "and which GPU kernels are fastest; empty: no cache",
      .type = WF_OPTION_TEXT, .may_be_empty = true,
      .unset = "widefield/kernels in $XDG_CACHE_HOME or ~/.cache" },

    { "memory.limit",
      "bytes that a rank may use: training recomputes results and runs in strips until it "
      "fits, or is refused; predict sizes its windows by it",
      WF_OPTION_IN(BYTES, 1, 1e18),
      .unset = "predict: 1GiB, on a GPU what is free; otherwise no limit" },
    { "memory.recompute", "recompute cheap results in the backward pass instead of keeping them",
      .type = WF_OPTION_BOOL, .fallback = "true" },
    { .key = NULL },
};

static bool is_first_with(const struct wf_model *const *m)
{
    for (const struct wf_model *const *before = wf_model_table; before < m; before++)
        if ((*before)->options == (*m)->options)
            return false;
    return (*m)->options != NULL;
}

/* Several networks may have the same. */
static const struct wf_option *table_at(int t)
{
    if (t == 0)
        return model_rows;
    int at = 1;
    for (const struct wf_model *const *m = wf_model_table; *m; m++)
        if (is_first_with(m) && at++ == t)
            return (*m)->options;
    return t == at ? rows : NULL;
}

const struct wf_option *wf_option_next(const struct wf_option *before)
{
    bool found = !before;
    const struct wf_option *row;
    for (int t = 0; (row = table_at(t)); t++)
        for (; row->key; row++) {
            if (found)
                return row;
            found = row == before;
        }
    return NULL;
}

const struct wf_option_flag wf_option_flags[] = {
    { "ranks", "run.ranks", "N", "N ranks as threads of this process" },
    { "mesh", "mesh", "AXES",
      "data=2,space=2x2 (data, domain, pipe, space as W, HxW, DxHxW); or auto" },
    { "device", "run.device", "NAME", "cpu, reference or cuda" },
    { "precision", "train.precision", "TYPE", "f32, bf16, f16 or tf32" },
    { "seed", "train.seed", "N", "seed of weights, random data and dropout" },
    { "threads", "run.threads", "N", "OpenMP threads per rank" },
    { .name = NULL },
};
