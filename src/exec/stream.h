/*
 * A stream: a graph over an image that is too large for the memory, run a window of its result at a
 * time, with the numbers of the whole image.
 *
 * Each window is planned on the whole image's shapes (plan.h: window): what it reads beyond its own
 * edges is given by the operators' reads, the image's border is padding and a window's is not. So
 * there is no overlap to choose and there are no seams. Windows that lie alike share a plan: of a grid
 * there are at most 9 kinds in 2D.
 *
 * Sums over the image (norms over all of it, global pooling) cannot be computed in one window. If
 * the image needs more than one, each such sum is computed first, in a pass of its own over windows
 * of its input, and is an input from then on. What a pass computes and a later one reads is kept in host
 * memory, as far as options.keep allows, so that together the passes are one run through the network. What
 * is not kept is recomputed: without any a network with k sums runs k + 1 times, each time a little
 * further.
 *
 *     struct wf_stream *s = wf_stream_new(g, 1, &probabilities, &options, comm, &err);     Collective.
 *     for (int64_t i = wf_comm_rank(comm); i < wf_stream_windows(s); i += wf_comm_size(comm)) {
 *         struct wf_view part;
 *         if (!wf_stream_run(s, i, &part, &err)) ...     part.box is wf_stream_window(s, i)
 *     }
 *     wf_stream_free(s);
 *
 * wf_stream_run() asks for the input, runs and waits. A caller that reads ahead and writes behind fills
 * the input itself and begins the next window before it ends the last one (train/pipeline.h):
 *
 *     wf_stream_reads(s, i, image, &work.input.box, &err)     ... fill work.input ...
 *     wf_stream_begin(s, i, &work, &err)                      work.input may be filled again
 *     wf_stream_end(s, &work, &err)                           work.outputs are there
 *
 * With options.blend windows overlap and are blended, and a window is what is called a band there.
 *
 * Windows share no edge: each element of the output is in exactly one. The last axis is the
 * fastest.
 */
#pragma once

#include "exec/run.h"

struct wf_stream;

enum { WF_STREAM_OUTPUTS = 2 };

/* Overlapping windows, each an image of its own: the graph is that of a window, or of N of them, its input is
 * filled from an image of these extents, and what the stream makes is the blended output (exec/blend.h), in bands
 * over the whole width. */
struct wf_stream_blend {
    struct wf_shape whole; /* of the image; channels as its input */
    int64_t step[WF_AXES]; /* from one window to the next, along D, H, W */
    /* Makes the caller's outputs (wf_stream_work) of the graph's output at so many pixels. */
    void (*finish)(void *user, const float *blended, int64_t pixels, void *const outputs[]);
};

struct wf_stream_options {
    struct wf_plan_options plan; /* the window is not read */
    struct wf_context *context;  /* of the device */
    /* Bytes that a window may need beside the weights, of which the least of all ranks counts; 0: no limit. */
    size_t limit;
    size_t beside; /* bytes that the caller needs for each position of a window, within the limit */
    int slots; /* inputs and outputs that the caller keeps in host memory: where that is the device's
                * they are within the limit */
    size_t keep; /* bytes of host memory for results between passes, the least of all ranks */
    bool keeps_within_limit; /* they are taken from the limit, of which they are less */
    int64_t window[WF_AXES]; /* extents of a window, where one is not 0: the others are whole then.
                              * All 0: as large as the limit allows */
    int64_t most[WF_AXES];   /* upper bound of a chosen window; 0: none */
    int64_t tile;            /* a window that does not span H or W has a multiple of
                              * wf_stream_tile(tile, its extent) there; 0: any */
    const struct wf_stream_blend
        *blend; /* NULL: windows are parts of the whole; read by wf_stream_new() */
    /* A number that is made of sums over the image, such as a loss: they are added up as windows of the outputs run
     * (wf_stream_run()), and wf_stream_number() makes it of them. NULL: none. */
    struct wf_value *number;
    /* Whose weights the windows have, and whose arena where that is large enough: `limit` is what it is then. It
     * has all weights and waits meanwhile. NULL: they have their own. */
    struct wf_run *lender;
    void *user;
    /* Without a lender: fills parameters and states of a new run; by name, because parts of the graph are run
     * too. */
    bool (*weights)(void *user, struct wf_run *run, struct wf_err *err);
    /* Fills the box of an input, known by its name. */
    bool (*fill)(void *user, const struct wf_value *input, const struct wf_view *view,
                 struct wf_err *err);
    void (*progress)(void *user, double part); /* of this rank's work, up to 1; or NULL */
};

/* The tile, a power of two, or half of it and so on where a window is shorter than two. */
int64_t wf_stream_tile(int64_t tile, int64_t extent);

/* Collective: computes the sums over the image. Borrows the graph, which is not for training, and
 * the comm. Outputs have equal extents, but for their channels, of which the first has most. NULL on failure, on every rank; WF_ERR_FIT when no window is small enough for the
 * limit. */
struct wf_stream *wf_stream_new(const struct wf_graph *g, int n, struct wf_value *const outputs[],
                                const struct wf_stream_options *options, struct wf_comm *comm,
                                struct wf_err *err);
void wf_stream_free(struct wf_stream *s);

int64_t wf_stream_windows(const struct wf_stream *s);
/* Windows that are computed, and their extents (of the first): with options.blend those that are blended. */
int64_t wf_stream_computed(const struct wf_stream *s, int64_t extents[WF_AXES]);
struct wf_region wf_stream_window(const struct wf_stream *s, int64_t index);
/* Number of sums over the image that were computed in a pass of their own. */
int wf_stream_passes(const struct wf_stream *s);
/* Plans that were made so far: one for each kind of windows that lie alike (exec/translate.h). */
int64_t wf_stream_plans(const struct wf_stream *s);
/* Most elements of an input that a window reads. */
int64_t wf_stream_most_read(const struct wf_stream *s, const struct wf_value *input);
/* The part of the work so far that was done for more than one window, 0 to 1. */
double wf_stream_halo(const struct wf_stream *s);
/* Most bytes that a window needed so far, weights included. */
size_t wf_stream_bytes(const struct wf_stream *s);
/* Most bytes that were kept between passes. */
size_t wf_stream_kept(const struct wf_stream *s);

/* Another image of the same shape begins; only where there are no passes for sums. */
void wf_stream_restart(struct wf_stream *s);

/* What a stream of one output would take, on paper: its inputs, context and lender are not looked at, and weights are
 * a lender's, which may change. */
struct wf_stream_estimate {
    int64_t windows;
    double seconds; /* of all windows and passes on one rank */
    size_t kept;    /* bytes between passes */
};
/* Fails as wf_stream_new() would. */
[[nodiscard]] bool wf_stream_estimate(struct wf_stream_estimate *e, const struct wf_graph *g,
                                      struct wf_value *output,
                                      const struct wf_stream_options *options, struct wf_err *err);

/* What a window reads of an input. */
[[nodiscard]] bool wf_stream_reads(struct wf_stream *s, int64_t index, const struct wf_value *input,
                                   struct wf_region *box, struct wf_err *err);

/* A window that is being computed. The caller's memory is of wf_host_take(). */
struct wf_stream_work {
    const struct wf_value *value; /* the graph's only input */
    struct wf_view input;        /* dense over wf_stream_reads(): of the value's dtype, or bytes: */
    const float *scale, *offset; /* of each channel, where the device widens them (plan/target.h) */
    /* Room for each output, dense over wf_stream_window(); NULL: not wanted. */
    void *outputs[WF_STREAM_OUTPUTS];
    void *point; /* where the device stands when it is done */
};
/* Begins a window; when it returns the input has been read. On a device that only enqueues, at most two
 * are begun and not ended. They end in their order. */
[[nodiscard]] bool wf_stream_begin(struct wf_stream *s, int64_t index, struct wf_stream_work *work,
                                   struct wf_err *err);
[[nodiscard]] bool wf_stream_end(struct wf_stream *s, struct wf_stream_work *work,
                                 struct wf_err *err);

/* Runs one window; `parts` are the outputs over it, valid until the next call. */
[[nodiscard]] bool wf_stream_run(struct wf_stream *s, int64_t index, struct wf_view parts[],
                                 struct wf_err *err);

/* Collective. options.number, once every window has run on some rank; once for an image (wf_stream_restart()). */
[[nodiscard]] bool wf_stream_number(struct wf_stream *s, double *number, struct wf_err *err);
