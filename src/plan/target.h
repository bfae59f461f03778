/*
 * A device as the planner sees it: memory, copies, and kernels looked up by operator.
 *
 * The planner asks find() for the kernel of every node and prepare()s it for the exact boxes it will
 * run on: primitives are made then, and the scratch they need becomes part of the memory plan. The
 * executor only calls run(). Kernels keep no state of their own: what prepare() makes belongs to the
 * plan's step and is given back by release(). The devices themselves are in device/.
 *
 * Context. A device is opened once by each rank: stream, handles, what was found out about kernels and
 * the first failure hang on the context, which every call is given. Ranks may be threads of one
 * process and may share a GPU. The CPU's context only keeps verdicts on primitives, so that plans and
 * runs do without one (NULL) too; the reference device has none. On a GPU run(), copy(), add(), put()
 * and the updater only enqueue, in order; what fails there is kept in the context and reported by the
 * next get() or synchronize().
 *
 *     struct wf_context *context;
 *     bool ok = wf_device_open(device, &options, &context, err);
 *     ... wf_plan_new_on(global plan, rank, context, err), wf_run_new(), ...
 *     wf_device_close(context);                           last: plans and runs borrow it
 */
#pragma once

#include "base/err.h"
#include "ops/op.h"

struct wf_device;

/* How a device's buffers go to other ranks: AUTO: by its own way where every rank has a device to
 * itself, else through the host. */
enum wf_device_path { WF_DEVICE_PATH_AUTO, WF_DEVICE_PATH_DEVICE, WF_DEVICE_PATH_HOST };

/* How a rank opens its device. */
struct wf_device_options {
    int local_rank;     /* among the ranks of this machine, which take its devices in turn */
    bool deterministic; /* the same bits in every run */
    bool exact;         /* sums in an order that does not depend on how the image is cut */
    bool tf32;          /* products of f32 may round their factors to 10 bits */
    size_t workspace;   /* bytes that a kernel's scratch may take; 0: the device's own limit */
    enum wf_device_path path;
    const char *cache; /* file for what is found out about kernels (device/choices.h); NULL: the
                        * usual place, "": none */
};

/* What every device's context begins with. */
struct wf_context {
    const struct wf_device *device;
};

/* The boxes a step will run on: views as in wf_call with data == NULL (an absent optional input has
 * an empty box). Filled by prepare(): scratch_bytes, prepared, implementation. With sizes_only the
 * plan is made to be looked at: a kernel that is costly to make is not made, prepared stays NULL. */
enum { WF_IMPLEMENTATION = 128 }; /* bytes */
struct wf_prepare {
    const struct wf_node *node;
    struct wf_region work;
    const struct wf_view *in, *out;
    int threads;
    bool sizes_only, exact; /* wf_device_options.exact */
    bool rough;             /* with sizes_only: about how much will do */
    /* NULL where a plan is made without the device at hand: what cannot be known is estimated then, and
     * on a device that is not the host the plan cannot be run. With a context primitives of external
     * libraries are checked even for a plan of sizes only. */
    struct wf_context *context;
    size_t scratch_bytes;
    void *prepared;
    /* For explain and tests, such as "brgconv:avx512_core", and what was found to be wrong. */
    char implementation[WF_IMPLEMENTATION];
};

enum wf_kernel_flags {
    /* Inputs and outputs that are images must be packed and cover exactly reads(work) within the
     * image, or the work: the planner copies where they are not. */
    WF_KERNEL_DENSE = 1u << 0,
    /* Cheap enough to run again in the backward pass, as an operator of WF_OP_CHEAP. */
    WF_KERNEL_CHEAP = 1u << 1,
};

struct wf_kernel {
    const char *op;
    unsigned flags;
    int preference;                              /* the highest that accepts a node is taken */
    bool (*accepts)(const struct wf_node *node); /* NULL: all nodes of the operator */
    bool (*prepare)(struct wf_prepare *p, struct wf_err *err); /* NULL: nothing to prepare */
    void (*run)(const struct wf_call *call);
    /* True where the kernel can do without in[input] and computes it from what its maker reads
     * (wf_call.fused), faster than by reading it. Where all readers can, the planner does not make
     * it. NULL: never. */
    bool (*fuses)(const struct wf_node *node, int input, const struct wf_node *maker);
    void (*release)(void *prepared); /* NULL: nothing to release */
};

struct wf_figures;          /* plan/figures.h */
struct wf_updater;          /* device/update.h */
struct wf_device_transport; /* comm/device_transport.h */
struct wf_comm;

/* What ranks are connected by, each way. Ranks of one machine (node) may have a faster link among them. */
struct wf_links {
    double bytes_per_second, seconds;
    int node_ranks; /* neighbouring ranks that have the following among them; 0: none has */
    double node_bytes_per_second, node_seconds;
};

/* Speeds that the cost estimate reckons with. */
struct wf_costs {
    double flops_per_second, bytes_per_second; /* of a rank */
    struct wf_links links;
    /* What kernels took on such a machine, on so many threads; NULL: not known. */
    const struct wf_figures *figures;
    int threads;
    bool tf32;
};

/* Seconds of a node on all of its image by one rank (cost.c). */
double wf_cost_node(const struct wf_costs *costs, const struct wf_node *node);

enum { WF_WIDEN_CHANNELS = 16 };

/* A device's buffers. */
struct wf_device_memory {
    void *(*alloc)(struct wf_context *context,
                   size_t bytes); /* 64-byte aligned, zeroed; NULL when there is no memory */
    void (*free)(struct wf_context *context, void *memory, size_t bytes);
    size_t (*room)(struct wf_context *context); /* bytes that are free; NULL: not known */
    /* Strided, same dtype. */
    void (*copy)(struct wf_context *context, const struct wf_view *dst, const struct wf_view *src);
    /* dst += src, same dtype, both packed. */
    void (*add)(struct wf_context *context, const struct wf_view *dst, const struct wf_view *src);
    /* Memory of the program that kernels are to read or write: fails where it is not this device's. What was in the
     * program's default stream has ended then. NULL: host memory. */
    bool (*adopt)(struct wf_context *context, const void *memory, struct wf_err *err);
};

/* Between host and device: same dtype and extents, the host's side packed. All NULL where the
 * device's memory is the host's. */
struct wf_device_transfer {
    /* Has read its source when it returns. */
    void (*put)(struct wf_context *context, const struct wf_view *dst, const struct wf_view *host);
    /* The same beside the work in order: send() begins, and take() copies what was sent to where it
     * is read, in order. What was sent may be sent anew after take(), its source filled again then. */
    void (*send)(struct wf_context *context, const struct wf_view *dst, const struct wf_view *host);
    void (*take)(struct wf_context *context, const struct wf_view *dst, const struct wf_view *sent);
    /* take() for bytes that were sent: dst, f32, is x * scale[c] + offset[c], rounded twice. Of at most
     * WF_WIDEN_CHANNELS channels, both packed. */
    void (*widen)(struct wf_context *context, const struct wf_view *dst, const struct wf_view *sent,
                  const float *scale, const float *offset);
    bool (*get)(struct wf_context *context, const struct wf_view *host, const struct wf_view *src,
                struct wf_err *err);
    /* A copy to the host beside the work that follows, of what is there after all work so far: keep() begins one, kept()
     * waits for all. Work that follows fence() begins after the copies before it. */
    void (*keep)(struct wf_context *context, const struct wf_view *host, const struct wf_view *src);
    void (*fence)(struct wf_context *context);
    bool (*kept)(struct wf_context *context, struct wf_err *err);
    void *(*host_alloc)(struct wf_context *context, size_t bytes); /* fast for put() and get() */
    void (*host_free)(struct wf_context *context, void *memory);
    /* Collective. How buffers in its memory go to other ranks, for so many transfers
     * (comm/device_transport.h); NULL, or none made: through the host. */
    bool (*transport)(struct wf_context *context, struct wf_comm *comm, int count,
                      struct wf_device_transport **transport, struct wf_err *err);
};

/* Of steps that are recorded in branches, two that are so far apart never run beside each other: a device may give
 * what its kernels share (counters of blocks that have ended) to steps in turn, so many sets of it. */
enum { WF_BRANCH_WINDOW = 64 };

/* The order of the work on a device that only enqueues. All NULL where calls do the work. */
struct wf_device_stream {
    bool (*synchronize)(struct wf_context *context, struct wf_err *err);
    /* A point in the order of the work, and waiting until the device has come there, once. */
    void *(*point)(struct wf_context *context);
    bool (*reach)(struct wf_context *context, void *point, struct wf_err *err);
    /* A pass over the plan begins, with this number; a kernel was run. */
    void (*start)(struct wf_context *context, uint64_t step);
    void (*ran)(struct wf_context *context, const struct wf_call *call);
    /* Work between record() and recorded() is not done but kept, to be replayed as often as wanted;
     * NULL where that failed, and nothing was done. */
    bool (*record)(struct wf_context *context);
    void *(*recorded)(struct wf_context *context);
    void (*replay)(struct wf_context *context, void *recording);
    void (*forget)(struct wf_context *context, void *recording);
    /* While recording: what follows is number `step` (0, 1, ...), and waits for the work of these earlier ones only
     * instead of all before it; among what they wait for is the one WF_BRANCH_WINDOW before it. In a recording
     * either all work has a number or none. NULL: work stays in order. */
    void (*branch)(struct wf_context *context, int step, const int after[], int count);
    /* A time mark in the order of the work; marks() waits and gives the seconds between marks
     * i and i + 1 for i < count - 1. */
    void (*mark)(struct wf_context *context, int index);
    bool (*marks)(struct wf_context *context, int count, double *seconds, struct wf_err *err);
};

struct wf_device {
    const char *name; /* "cpu", "reference", "cuda" */
    /* NULL: it has no context. */
    struct wf_context *(*open)(const struct wf_device_options *options, struct wf_err *err);
    void (*close)(struct wf_context *context);
    /* What takes long of open(), on any thread before it; NULL: nothing does. What fails is left to open(). */
    void (*warm)(int local_rank);

    /* Never NULL on a CPU: the last resort is the operator's reference kernel. NULL: the device
     * cannot run the node, which is an error when the plan is made. */
    const struct wf_kernel *(*find)(const struct wf_node *node);
    const struct wf_kernel *fallback; /* writes at least the zeros of a sum over nothing */
    const struct wf_updater *updater; /* the optimiser's sweeps over flat storage */

    struct wf_device_memory memory;
    struct wf_device_transfer transfer;
    struct wf_device_stream stream;
    /* What a rank has to itself when it runs `threads` threads (0: however many). */
    struct wf_costs cost;
    int threads;
};

/* `*context` is NULL for a device that has none. */
[[nodiscard]] bool wf_device_open(const struct wf_device *device,
                                  const struct wf_device_options *options,
                                  struct wf_context **context, struct wf_err *err);
void wf_device_close(struct wf_context *context); /* NULL is fine */
static inline bool wf_device_is_host(const struct wf_device *device)
{
    return !device->transfer.put;
}

bool wf_kernel_takes(const struct wf_kernel *kernel, const struct wf_node *node);
/* Whether the table has a row for the operator at all. */
bool wf_kernels_have(const struct wf_kernel *const table[], const struct wf_op *op);
/* Of a device's kernels (rows that end with an op of NULL, in a table that ends with NULL) the one of
 * the highest preference that takes the node; NULL: none. */
const struct wf_kernel *wf_kernel_find(const struct wf_kernel *const table[],
                                       const struct wf_node *node);
/* True when the kernel is the operator's reference. */
bool wf_kernel_is_reference(const struct wf_kernel *kernel);
