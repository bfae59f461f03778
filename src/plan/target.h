/*
 * A device as the planner sees it: memory, copies, and kernels looked up by operator.
 *
 * The planner asks find() for the kernel of every node and prepare()s it for the exact boxes it will
 * run on: primitives are made then, and the scratch they need becomes part of the memory plan. The
 * executor only calls run(). Kernels keep no state of their own: what prepare() makes belongs to the
 * plan's step and is given back by release(). The devices themselves are in device/.
 */
#ifndef WF_PLAN_TARGET_H
#define WF_PLAN_TARGET_H

#include "base/err.h"
#include "ops/op.h"

/* The boxes a step will run on: views as in wf_call with data == NULL (an absent optional input has
 * an empty box). Filled by prepare(): scratch_bytes, prepared, implementation. With sizes_only the
 * plan is made to be looked at: a kernel that is costly to make is not made, prepared stays NULL. */
struct wf_prepare {
    const struct wf_node *node;
    struct wf_region work;
    const struct wf_view *in, *out;
    int threads;
    bool sizes_only;
    size_t scratch_bytes;
    void *prepared;
    char implementation[64]; /* for explain and tests, such as "brgconv:avx512_core" */
};

enum wf_kernel_flags {
    /* Inputs and outputs that are images must be packed and cover exactly reads(work) within the
     * image, or the work: the planner copies where they are not. */
    WF_KERNEL_DENSE = 1u << 0,
};

struct wf_kernel {
    const char *op;
    unsigned flags;
    int preference;                              /* the highest that accepts a node is taken */
    bool (*accepts)(const struct wf_node *node); /* NULL: all nodes of the operator */
    bool (*prepare)(struct wf_prepare *p, struct wf_err *err); /* NULL: nothing to prepare */
    void (*run)(const struct wf_call *call);
    void (*release)(void *prepared); /* NULL: nothing to release */
};

struct wf_updater; /* device/update.h */

struct wf_device {
    const char *name; /* "cpu", "reference" */
    /* Never NULL on a CPU: the last resort is the operator's reference kernel. NULL: the device
     * cannot run the node, which is an error when the plan is made. */
    const struct wf_kernel *(*find)(const struct wf_node *node);
    const struct wf_kernel
        *fallback;                /* runs every operator's reference; NULL: the device has none */
    void *(*alloc)(size_t bytes); /* 64-byte aligned, zeroed; NULL when there is no memory */
    void (*free)(void *memory, size_t bytes);
    void (*copy)(const struct wf_view *dst, const struct wf_view *src); /* strided, same dtype */
    const struct wf_updater *updater; /* the optimiser's sweeps over flat storage */
    /* For the cost estimate: what a rank has to itself when it runs `threads` threads (0: however
     * many), and a link between ranks. */
    double flops_per_second, bytes_per_second, link_bytes_per_second, link_seconds;
    int threads;
};

/* True when the kernel is the operator's reference. */
bool wf_kernel_is_reference(const struct wf_kernel *kernel);

#endif
