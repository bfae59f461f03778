/*
 * Convolutions of cuDNN 9 through its graph interface.
 *
 * A problem is all that a convolution is to cuDNN; everything is packed, channels last. Its graph can
 * be asked for candidates (what the library's heuristics suggest, less what the rules forbid), and a
 * plan can be built from any of them. A choice is an engine and its knobs, as plain numbers, so that
 * it can be kept in a file.
 *
 *     struct wf_cudnn_graph *g = wf_cudnn_graph_new(cuda, &problem);      NULL: cuDNN does not know it
 *     int n = wf_cudnn_candidates(g, choices, WF_CUDNN_CANDIDATES);
 *     struct wf_cudnn_plan *plan = wf_cudnn_plan_new(g, &choices[0]);     NULL: not on this GPU
 *     wf_cudnn_plan_run(plan, &pointers, workspace);
 *
 * A plan keeps what it needs of its graph alive; both may be freed in any order. One thread at a time.
 */
#pragma once

#include "device/conv_pass.h"
#include "device/cuda/cuda.h"

enum {
    WF_CUDNN_CANDIDATES = 16,
    WF_CUDNN_KNOBS = CUDNN_KNOB_TYPE_COUNTS,
    WF_CUDNN_SPACE = 3,
};

/* `image` is under the windows, `result` is where they stand: the same in all three passes. */
struct wf_cudnn_problem {
    enum wf_conv_pass pass;
    enum wf_dtype dtype; /* of all three tensors; sums are f32 */
    bool tf32, deterministic;
    bool bias;   /* FORWARD and DATA: f32, added to what is made */
    bool widely; /* ask both heuristics: for channels that are no multiple of 8 */
    bool large;  /* worth an engine that is compiled for it, which takes half a second */
    int64_t own; /* the engine of our own that can do it, or WF_ENGINE_NONE */
    int64_t n, in, out, groups;
    int64_t image[WF_CUDNN_SPACE], result[WF_CUDNN_SPACE], kernel[WF_CUDNN_SPACE];
    int64_t stride[WF_CUDNN_SPACE], dilation[WF_CUDNN_SPACE];
    int64_t pad_lo[WF_CUDNN_SPACE], pad_hi[WF_CUDNN_SPACE];
    int64_t align[2]; /* bytes: of the image, of the result */
};

/* Engines that are not cuDNN's: none at all, and kernels of our own (conv.h). */
enum { WF_ENGINE_NONE = -1, WF_ENGINE_TILED = -2, WF_ENGINE_STEM = -3, WF_ENGINE_VOLUME = -4 };

struct wf_cudnn_choice {
    int64_t engine;
    int n_knobs;
    struct {
        int64_t type, value;
    } knobs[WF_CUDNN_KNOBS];
};

struct wf_cudnn_pointers {
    void *image, *weights, *result;
    const void *bias; /* or NULL */
};

struct wf_cudnn_graph;
struct wf_cudnn_plan;

struct wf_cudnn_graph *wf_cudnn_graph_new(struct wf_cuda *cuda,
                                          const struct wf_cudnn_problem *problem);
void wf_cudnn_graph_free(struct wf_cudnn_graph *graph);
int wf_cudnn_candidates(struct wf_cudnn_graph *graph, struct wf_cudnn_choice list[], int most);

struct wf_cudnn_plan *wf_cudnn_plan_new(struct wf_cudnn_graph *graph,
                                        const struct wf_cudnn_choice *choice);
/* Whether its kernel was compiled for it, which takes half a second. Such a plan as cuDNN's text, which
 * holds the kernel; NULL where it has none; to be freed. And from there, which takes milliseconds. */
bool wf_cudnn_plan_is_compiled(const struct wf_cudnn_plan *plan);
char *wf_cudnn_plan_print(const struct wf_cudnn_plan *plan, size_t *size);
struct wf_cudnn_plan *wf_cudnn_plan_parse(struct wf_cudnn_graph *graph, const char *text,
                                          size_t size);
void wf_cudnn_plan_free(struct wf_cudnn_plan *plan);
size_t wf_cudnn_plan_workspace(const struct wf_cudnn_plan *plan);
/* Enqueues it. The workspace begins on a boundary of WF_CUDNN_ALIGN bytes. */
enum { WF_CUDNN_ALIGN = 256 };
[[nodiscard]] bool wf_cudnn_plan_run(struct wf_cudnn_plan *plan,
                                     const struct wf_cudnn_pointers *pointers, void *workspace);

/* A choice as a text without blanks, and back; false where it is none. */
void wf_cudnn_choice_print(const struct wf_cudnn_choice *choice, char *text, size_t room);
[[nodiscard]] bool wf_cudnn_choice_parse(const char *text, struct wf_cudnn_choice *choice);
/* All that makes a problem another one, as a text. */
void wf_cudnn_problem_print(const struct wf_cudnn_problem *problem, char *text, size_t room);
