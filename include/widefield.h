/*
 * Widefield: train convolutional networks on whole images, on however many ranks, with the numbers of
 * one.
 *
 *     struct wf_err err = WF_ZERO;
 *     struct wf_options *options = wf_options_new();
 *     bool ok = wf_options_set(options, "model.name", "unet", &err) &&
 *               wf_options_set(options, "mesh", "space=2x2", &err);
 *     struct wf_session *session = ok ? wf_session_new(options, &err) : NULL;
 *     struct wf_data *data = session ? wf_data_open("data/nuclei", options, &err) : NULL;
 *     struct wf_trainer *trainer = data ? wf_trainer_new(session, data, "runs/first", &err) : NULL;
 *     struct wf_epoch_info epoch = WF_ZERO;
 *     while (trainer && !epoch.ended && wf_trainer_epoch(trainer, &epoch, &err))
 *         printf("epoch %d: loss %g, mean IoU %g\n", (int)epoch.epoch, epoch.loss, epoch.metric);
 *     if (err.code)
 *         fprintf(stderr, "%s\n", err.text);
 *     wf_trainer_free(trainer);
 *     wf_data_free(data);
 *     wf_session_free(session);
 *     wf_options_free(options);
 *
 * Everything that can be chosen is an option, under the same key as in the command's config file
 * (docs/config.md). Networks and graphs of your own are built with widefield_graph.h, which this includes.
 * Complete programs are in examples/.
 *
 * Handles (structures without members here) are made by *_new() or *_open() and freed by *_free(), which
 * takes NULL. Texts and arrays that you pass are copied, unless a comment says that they are borrowed.
 * Texts that you get live as long as the handle. The library does not end the process, catches no signals
 * and prints nothing while you take its messages (wf_session_on_log()), with three exceptions: it stops where
 * memory ends, after a mistake of its own, and where a rank waits longer than "comm.timeout" for another.
 *
 * Binary interface: until 1.0 the minor number is its version, and part of the soname
 * (libwidefield.so.0.1). Within it, functions are only added; structures that you fill and enumerations
 * stay as they are. A new minor number may add members at a structure's end, and names at an enumeration's.
 */
#ifndef WIDEFIELD_H
#define WIDEFIELD_H

#include "widefield_graph.h"

WF_API_BEGIN

/* "0.1.0": of the library that runs; WF_VERSION_* are those of this header. */
const char *wf_version(void);

/* --- options: settings by key ---
 *
 * Threads: one at a time. */

struct wf_options;

/* All defaults. */
struct wf_options *wf_options_new(void);
void wf_options_free(struct wf_options *o);
/* Sets a key ("model.base") to a value as text ("32"); a list is "2,2" or "2x2". "mesh" takes a whole
 * mesh: "data=2,space=2x2". */
WF_CHECK bool wf_options_set(struct wf_options *o, const char *key, const char *value,
                             struct wf_err *err);
/* Reads a YAML file. What was set with wf_options_set() stays. */
WF_CHECK bool wf_options_read_file(struct wf_options *o, const char *path, struct wf_err *err);
/* The value as text; NULL where it is not set, or there is no such key. */
const char *wf_options_value(const struct wf_options *o, const char *key);
/* All keys, in the order of docs/config.md; NULL past the last. */
const char *wf_options_key(int index);

/* --- networks: those that the library has ---
 *
 * Threads: any. */

int wf_model_count(void);
/* Name (for "model.name") and description of one; NULL past the last. */
const char *wf_model_name(int index);
const char *wf_model_about(int index);
/* Adds the options' network to a graph, on `image`; its logits, or NULL (see wf_graph_ok()). */
struct wf_value *wf_model_add(struct wf_graph *g, struct wf_value *image, struct wf_options *o);
/* The options' network as the text of a network file (docs/networks.md), also of one of the library's; free it
 * with wf_text_free(). */
WF_CHECK char *wf_model_text(struct wf_options *o, struct wf_err *err);

/* --- devices: those of this machine ---
 *
 * Threads: any. */

struct wf_device_info {
    char name[32];     /* for "run.device": "cpu", "reference", "cuda" */
    int index;         /* which one of them */
    char about[256];   /* for people */
    size_t bytes;      /* of memory */
    size_t free_bytes; /* that nobody has now */
};

int wf_device_count(void);
/* False past the last. */
bool wf_device_get(int index, struct wf_device_info *info);

/* --- session: options, and the ranks that run them ---
 *
 * Ranks are threads of the library ("mesh", "run.ranks"), or, under mpirun or srun, one in each process:
 * then every process makes the same calls in the same order, and there is one session in a process, which
 * starts and ends MPI itself; after a failure that is not an argument's it can only be freed. Your thread is
 * never a rank.
 *
 * Threads: a session, and all that is made from it, serves one thread at a time. Several sessions may live
 * side by side, each with a thread of its own. Functions of yours (log, network, progress) are called from
 * the library's threads while you wait in a call; they must not call into the same session. */

struct wf_session;

/* The options are copied; NULL: all defaults. */
WF_CHECK struct wf_session *wf_session_new(const struct wf_options *o, struct wf_err *err);
/* What was made from it is freed before. */
void wf_session_free(struct wf_session *s);
/* This process among those of a launcher; 0 of 1 without one. */
int wf_session_rank(const struct wf_session *s);
int wf_session_size(const struct wf_session *s);
/* Asks the call that another thread makes in this session now to end: it fails with WF_ERR_STOPPED, before its
 * next layer or rank (on a GPU: step). A trainer or exec whose step it was cannot be used any more. Any thread, any time. */
void wf_session_stop(struct wf_session *s);
/* Messages up to `level` go to `fn`; NULL: to stderr, as they do at first, up to WF_LOG_WARN. */
void wf_session_on_log(struct wf_session *s, enum wf_log_level level, wf_log_fn *fn, void *user);

/* A network of your own: adds its layers on `image` and returns the logits, as many channels as there are
 * classes. A trainer needs them of the image's extents, or of one pixel where labels are of images. It is
 * called for every size that is needed (batches, validation, windows of a prediction), so it takes extents
 * from the image. */
typedef struct wf_value *wf_network_fn(struct wf_graph *g, struct wf_value *image, void *user);
/* Used in place of "model.name" by what is made from now on; NULL: not any more. */
void wf_session_network(struct wf_session *s, wf_network_fn *fn, void *user);

struct wf_plan_info {
    int ranks;
    char mesh[64];          /* "data=2,space=2x2" */
    size_t bytes;           /* of memory that the rank with most needs */
    double seconds;         /* of a training step, predicted */
    int64_t messages;       /* of a step, all ranks together */
    size_t fetched, summed; /* bytes of a step, all ranks together */
    int64_t parameters;     /* that are trained */
    double flops;           /* of a step */
    size_t rank_bytes[16];  /* of the first ranks */
    double rank_seconds[16];
};

/* Plans a training step on images of `size`: `count` numbers, N, C and 1 to 3 extents; count 0: as
 * "data.size" says. Nothing runs. WF_ERR_FIT where "memory.limit" has no room; the text says what would have. */
WF_CHECK bool wf_session_plan(struct wf_session *s, int count, const int64_t size[],
                              struct wf_plan_info *info, struct wf_err *err);
/* The steps of one rank as text, for people; free it with wf_text_free(). */
WF_CHECK char *wf_session_explain(struct wf_session *s, int count, const int64_t size[], int rank,
                                  struct wf_err *err);
void wf_text_free(char *text);

struct wf_verify_info {
    bool same; /* within 1e-5 (bf16 and f16: 2e-2), or what rounding does */
    double loss, predictions, gradients, weights; /* the largest relative difference of each */
};

/* One step on the mesh against the same step on one rank, on random data. False where it cannot run. */
WF_CHECK bool wf_session_verify(struct wf_session *s, int count, const int64_t size[],
                                struct wf_verify_info *info, struct wf_err *err);

/* --- exec: a graph of one's own on the session's mesh, with arrays in and out ---
 *
 *     struct wf_exec *x = wf_exec_new(session, graph, &err);
 *     ok = x && wf_exec_put(x, "image", pixels, 64 * 64, &err) && wf_exec_step(x, &err) &&
 *          wf_exec_get(x, "grad.first.weight", gradient, 72, &err);
 *     wf_exec_free(x);
 *
 * Arrays are f32 and whole, `count` elements in the order [N, C, *spatial], weights as in PyTorch; under a
 * launcher the same on every process. A session has one exec or one trainer at a time. Threads: as the
 * session. */

struct wf_exec;

/* Plans the graph and makes its memory on all ranks, weights as their rules say. The graph is borrowed
 * until the exec is freed. */
WF_CHECK struct wf_exec *wf_exec_new(struct wf_session *s, struct wf_graph *g, struct wf_err *err);
void wf_exec_free(struct wf_exec *x);
/* Sets an input, weight or state of that name. */
WF_CHECK bool wf_exec_put(struct wf_exec *x, const char *name, const float *array, size_t count,
                          struct wf_err *err);
/* Sets the coordinates of a sparse input, `points` rows of a batch index and its dimensions, each place once. Ranks
 * along data take whole samples. Arrays of the same points, put and got, are [points, C] in their order; of
 * values on coordinates that the graph makes there are none. */
WF_CHECK bool wf_exec_put_points(struct wf_exec *x, const char *name, const int32_t *coords,
                                 size_t points, struct wf_err *err);
/* Sets a number (wf_input_number()) that gradients start from, on each rank to its weight in the mean over
 * the data ranks' own means: "train.reduction" rank_mean. `batch` is the input that is counted. */
WF_CHECK bool wf_exec_put_share(struct wf_exec *x, const char *name, const char *batch,
                                struct wf_err *err);
/* Runs all nodes once. Weights stay: they are yours to change. */
WF_CHECK bool wf_exec_step(struct wf_exec *x, struct wf_err *err);
/* A copy of an output, weight, state or gradient. */
WF_CHECK bool wf_exec_get(struct wf_exec *x, const char *name, float *array, size_t count,
                          struct wf_err *err);
/* The same between the ranks and an array in the memory of their device, in one copy there: on a GPU the array of
 * another library, all ranks on that GPU. What was issued to CUDA's default stream before is waited for, and the
 * copy is complete on return. The array is read (put) or written (get); get does not work under a launcher. */
WF_CHECK bool wf_exec_put_device(struct wf_exec *x, const char *name, float *array, size_t count,
                                 struct wf_err *err);
WF_CHECK bool wf_exec_get_device(struct wf_exec *x, const char *name, float *array, size_t count,
                                 struct wf_err *err);

/* --- data: images with labels, from disk or from memory ---
 *
 * Threads: may be shared once it is made. */

struct wf_data;

/* Arrays of yours, borrowed until the data is freed. Start with zeros. */
struct wf_arrays {
    int64_t samples;
    int dims;               /* 2 or 3 */
    const int64_t *extents; /* H, W or D, H, W of all samples; of each in turn where sizes_differ */
    bool sizes_differ;      /* then arrays are given for each sample, and "data.crop" is set */
    int64_t channels;
    enum wf_dtype image_dtype; /* WF_F32 or WF_U8 */
    const void *const *images; /* of each sample, [C, *spatial]; or */
    const void *image_block;   /* of all, [N, C, *spatial] */
    enum wf_dtype label_dtype; /* WF_I32 or WF_U8 */
    const void *const *labels; /* of each sample, [*spatial]; a negative label does not count; or */
    const void *label_block;   /* of all, [N, *spatial]; or */
    const int32_t *image_labels; /* one label for each image; or none of the three */
    const bool *validation;      /* of each sample; NULL: as "data.validation" says */
    bool raw; /* pixels as they are; otherwise their mean becomes 0 and their deviation 1 */
};

struct wf_data_info {
    int64_t samples;
    int dims, channels, classes;
    bool per_image; /* one label for each image, not for each pixel */
};

/* A folder in any layout that the command knows ("data.format", "data.align", "data.alpha"). */
WF_CHECK struct wf_data *wf_data_open(const char *path, const struct wf_options *o,
                                      struct wf_err *err);
WF_CHECK struct wf_data *wf_data_arrays(const struct wf_arrays *arrays, struct wf_err *err);
/* Trainers that use it are freed before. */
void wf_data_free(struct wf_data *d);
void wf_data_describe(const struct wf_data *d, struct wf_data_info *info);
/* The class's name, or NULL past the last. */
const char *wf_data_class(const struct wf_data *d, int label);

/* --- trainer: steps and epochs of the options' network, or of your own, on data ---
 *
 *     struct wf_trainer *t = wf_trainer_new(session, data, NULL, &err);
 *     struct wf_epoch_info epoch = WF_ZERO;
 *     while (t && ok && !epoch.ended)
 *         ok = wf_trainer_epoch(t, &epoch, &err);
 *     ok = ok && wf_trainer_save(t, "net.safetensors", &err);
 *     wf_trainer_free(t);
 *
 * It is the loop of the command: the same numbers, bit for bit, however it is stepped. After a failure
 * inside, every later call fails with the same error; freeing always works. Threads: as the session. */

struct wf_trainer;

struct wf_step_info {
    int64_t step, epoch; /* updates done; epochs that have ended */
    double loss, lr;
    double norm;    /* of the gradient, before clipping */
    bool skipped;   /* no update: a gradient was not finite */
    double seconds; /* of the step */
    bool ended;     /* "train.epochs" are done, or it was stopped early: no step was made */
};

struct wf_epoch_info {
    int64_t epoch, step; /* epochs that have ended, this one too; updates done */
    double loss;         /* mean over the epoch */
    bool validated;      /* then these are of the validation part: */
    double validation;   /* the loss */
    double metric;       /* mean IoU; accuracy of images; the negative loss without classes */
    bool is_best;        /* so far */
    bool ended;          /* it was the last */
};

struct wf_scores_info {
    double loss, accuracy, mean_iou, mean_dice; /* NaN: not defined */
    int64_t counted;                            /* pixels, or images */
    int classes;
};

/* `folder` is the run folder, as the command makes it: log, checkpoints, and where it is there already the
 * run goes on from its newest checkpoint. NULL: no files. The data is borrowed. */
WF_CHECK struct wf_trainer *wf_trainer_new(struct wf_session *s, const struct wf_data *d,
                                           const char *folder, struct wf_err *err);
/* In the middle of a run with a folder a checkpoint is written first. */
void wf_trainer_free(struct wf_trainer *t);
/* One step; and the end of the epoch, with validation, where it was the epoch's last. */
WF_CHECK bool wf_trainer_step(struct wf_trainer *t, struct wf_step_info *info, struct wf_err *err);
/* Steps to the end of the epoch. Where a checkpoint was the last epoch's no step is left: the position and
 * the loss are the checkpoint's, other numbers NaN. */
WF_CHECK bool wf_trainer_epoch(struct wf_trainer *t, struct wf_epoch_info *info,
                               struct wf_err *err);
/* The epoch that ended last, for who steps; false: none has. */
bool wf_trainer_last_epoch(const struct wf_trainer *t, struct wf_epoch_info *info);
/* Scores of the weights as they are, on the validation part. */
WF_CHECK bool wf_trainer_evaluate(struct wf_trainer *t, struct wf_scores_info *info,
                                  struct wf_err *err);
/* Of the last evaluation, for one class: hits / (truth + predicted - hits); NaN: the class is not there. */
double wf_trainer_iou(const struct wf_trainer *t, int label);
/* Writes a checkpoint that this library, the command and other safetensors readers take. */
WF_CHECK bool wf_trainer_save(struct wf_trainer *t, const char *path, struct wf_err *err);
/* Goes on from a checkpoint: weights, optimiser, position, normalisation. Not with a folder. */
WF_CHECK bool wf_trainer_load(struct wf_trainer *t, const char *path, struct wf_err *err);
/* Weights and states (running statistics), in order; the name and, where `shape` is not NULL, the extents as
 * in PyTorch, `rank` of them. NULL past the last. */
const char *wf_trainer_tensor(const struct wf_trainer *t, int index, int64_t shape[WF_AXES],
                              int *rank);
/* A copy of a weight, a state, or the last step's gradient ("grad.NAME"): f32, `count` elements. */
WF_CHECK bool wf_trainer_get(struct wf_trainer *t, const char *name, float *array, size_t count,
                             struct wf_err *err);
/* Sets a weight or state. */
WF_CHECK bool wf_trainer_set(struct wf_trainer *t, const char *name, const float *array,
                             size_t count, struct wf_err *err);

/* --- predictor: a trained network on images of any size, in windows, with the result of the whole ---
 *
 * Windows are as large as "memory.limit" allows (1GiB; on a GPU what is free, and as is fastest) and are
 * distributed over the session's ranks. There are no seams and no overlap to choose. Threads: as the session. */

struct wf_predictor;

/* Of a checkpoint: a file, or a run folder (its best). The session gives ranks, device, memory and
 * communication, and, where it has one, the network; its other options do not count. */
WF_CHECK struct wf_predictor *wf_predictor_new(struct wf_session *s, const char *checkpoint,
                                               struct wf_err *err);
/* Of a trainer's weights as they are now, which are copied. */
WF_CHECK struct wf_predictor *wf_predictor_of(struct wf_trainer *t, struct wf_err *err);
void wf_predictor_free(struct wf_predictor *p);
/* Channels of a prediction: classes, or 1 where there are two and one tells them apart. */
int wf_predictor_channels(const struct wf_predictor *p);
/* The size of a window, D, H and W; zeros: as the memory allows. */
void wf_predictor_window(struct wf_predictor *p, const int64_t window[3]);

/* Called with the part that is done, up to 1. */
typedef void wf_progress_fn(double part, void *user);
void wf_predictor_on_progress(struct wf_predictor *p, wf_progress_fn *fn, void *user);

struct wf_predict_arrays {
    int dims;             /* 2 or 3 */
    int64_t extents[3];   /* H, W or D, H, W */
    const float *image;   /* [C, *spatial], of the same meaning as the training images */
    int32_t *labels;      /* [*spatial], or one where labels are of images; NULL: not wanted */
    float *probabilities; /* [channels, *spatial], or one of each channel; NULL: not wanted */
};

struct wf_predict_files {
    const char *image;
    /* To be written, by extension .tif, .nii, .nii.gz, .png or .npy; NULL: not wanted. */
    const char *labels, *probabilities, *overlay;
};

/* Fills the arrays that are wanted. After training with "train.loss" mse, probabilities are the predicted
 * numbers themselves. */
WF_CHECK bool wf_predictor_array(struct wf_predictor *p, const struct wf_predict_arrays *arrays,
                                 struct wf_err *err);
/* Reads an image file and writes those that are wanted, in the memory of a window. For labels of pixels. */
WF_CHECK bool wf_predictor_file(struct wf_predictor *p, const struct wf_predict_files *files,
                                struct wf_err *err);

WF_API_END

#endif
