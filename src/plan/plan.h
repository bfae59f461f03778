/*
 * The plan: one rank's flat list of steps and the memory they run in.
 *
 * A global plan holds what all ranks share (program and geometry); a plan is made from it for one rank.
 * Both are pure functions of (graph, mesh, device, options): nothing runs, no rank talks, and a
 * laptop can make the plans of a thousand ranks. The graph must outlive the global plan, the global plan its
 * plans.
 *
 *     struct wf_global_plan *s = wf_global_plan_new(g, &mesh, &(struct wf_plan_options){ .device = &wf_device_cpu }, &err);
 *     struct wf_plan *p = wf_plan_new(s, rank, &err);
 *     printf("%zu bytes\n", p->arena_bytes);
 *
 * Invariants, checked by wf_plan_check() whenever a plan is made and wf_plan_check_all() over all
 * ranks:
 *   I1. Each read is of an earlier write: a step reads, sends or sums a slot only after its buffer
 *       was written.
 *   I2. Buffers that are live at the same step never overlap, and each lies inside its store.
 *   I3. Every exchange and sum that begins ends, once, later. What a step touches is live then, what
 *       an exchange or sum touches throughout, and no other step writes it in between, nor reads
 *       what is being summed or what has not come yet.
 *   I4. Every send has exactly one matching receive of the same box of the same value, in the same
 *       order.
 *   I5. All ranks of a group meet each sum in the same order with the same size.
 *   I6. No rank waits for ever: run together, all of them get to their end, whether communication goes on
 *       beside the work or is part of it, one after the other.
 *   I7. Micro-batches that are under way at once do not share memory.
 *   I8. Each part of the list has one turn for each micro-batch: work in the order of the list, what
 *       travels between its maker and its reader.
 */
#pragma once

#include "plan/figures.h"
#include "plan/geometry.h"
#include "plan/target.h"
#include "plan/turns.h"

#define WF_BUCKET_BYTES ((size_t)4 << 20)

struct wf_plan_options {
    const struct wf_device *device;
    int threads;       /* per rank, for the kernels' scratch; 0 means 1 */
    bool no_recompute; /* keep every result for the backward pass */
    bool no_overlap;   /* begin and end communication at the same place */
    bool split_always; /* inner part and halo wherever it can be done, not where it pays */
    bool strip_always; /* strips wherever they can be had, not where memory is short */
    bool check_passes; /* behind each pass of the planner (passes.c), for tests */
    /* Sums of gradients begin when this many bytes of them are made; 0: WF_BUCKET_BYTES; SIZE_MAX:
     * all of them at the end of the backward pass. */
    size_t bucket_bytes;
    const struct wf_stop *stop; /* looked at between plans of ranks; or NULL */
    /* Bytes that a rank may take; 0: any number. The planner then recomputes results, the cheapest
     * first, until every rank fits (fit.h); what cannot be made to fit comes out as small as it gets.
     * `more` are bytes of each rank that no plan knows of, such as the optimiser's. */
    size_t limit, more;
    /* For the cost estimate: what the ranks are connected by (zeros: as the device says), and what
     * kernels take on the machine (figures.h; NULL: not known), which is borrowed. */
    struct wf_links links;
    const struct wf_figures *figures;
    bool tf32;  /* as wf_device_options.tf32 */
    bool exact; /* as wf_device_options.exact, where the device is not at hand */
    /* Estimates do not ask libraries for the scratch of kernels, which takes long for large images. */
    bool rough;
    bool ahead; /* on a device with memory of its own: room for the inputs of the next step */
    /* One rank, no backward pass: weights and states stay as they are from step to step, so what is computed from them
     * alone is computed once (program.h, P5), and kept in the arena. */
    bool fixed_weights;
    /* One rank, no backward pass: only this part of the outputs is made, and of everything before
     * them only what that needs; NULL: all of it. For an output that is a sum it is the part of what
     * is summed. The numbers are those of the whole image, the memory is that of the part. */
    const struct wf_region *window;
    /* Where the nodes of the graph's domains 1, 2, ... run; none: on all ranks. */
    struct wf_layout_options layout;
    /* The micro-batches of a step, and how stages take turns (stages.h, turns.h). */
    struct wf_pipe_options pipe;
};

/* Items [first, last] that run strip by strip (strips.h). */
struct wf_strips {
    int first, last;
    enum wf_axis axis;
    int count;
};

/* Gradients whose sums begin together (buckets.c). */
struct wf_bucket {
    int *parts, n_parts; /* instances in the order of the weights */
    int last;            /* the item that makes the last of them */
    size_t bytes;
};

struct wf_global_plan {
    struct wf_arena arena;
    const struct wf_graph *graph;
    struct wf_mesh mesh;
    struct wf_plan_options options;
    struct wf_requests requests; /* for the limit */
    size_t bytes; /* of the rank that takes most; 0: there was no limit to hold it against */
    struct wf_stages stages;
    struct wf_program *program;
    struct wf_geometry geometry;
    struct wf_costs costs;
    struct wf_strips *strips;
    int n_strips;
    struct wf_bucket *buckets;
    int n_buckets;
};

/* Where bytes live. All but the arena are kept from step to step, flat, in the order of the graph's
 * values: the optimiser runs over them in one sweep. */
enum wf_store {
    WF_STORE_ARENA,
    WF_STORE_PARAM, /* frozen ones behind those that are trained */
    WF_STORE_GRAD,  /* of those that are trained, with the offsets of WF_STORE_PARAM */
    WF_STORE_STATE,
    WF_STORES
};

struct wf_plan_buffer {
    enum wf_store store;
    size_t offset, bytes; /* in its store */
    /* What micro-batches keep from one part of the list to another has as many slots as there are of them
     * at once, each of slot_bytes: micro-batch m has slot m modulo slots. Otherwise there is one. */
    int slots;
    size_t slot_bytes;
    int first, last;               /* the steps during which it is live */
    const char *name;              /* of the value, for explain */
    const struct wf_value *weight; /* outside the arena: the parameter or state it is of; or NULL */
    bool strip_local; /* holds one strip at a time: what was there is gone with the next one */
};

/* A box of a buffer. view.data is NULL until a run resolves it. */
struct wf_slot {
    int buffer;    /* -1: absent */
    size_t offset; /* bytes from the buffer's start to view.box.lo */
    struct wf_view view;
};

enum wf_step_kind {
    WF_STEP_KERNEL,
    WF_STEP_COPY, /* out[0] <- in[0] */
    WF_STEP_ADD,  /* out[0] += in[0], both packed */
    WF_STEP_FETCH_BEGIN,
    WF_STEP_FETCH_END,
    WF_STEP_SUM_BEGIN,
    WF_STEP_SUM_END,
};

/* An input of a kernel that is not made: in[first] and what follows it is what its node reads. */
struct wf_step_fused {
    const struct wf_node *node;
    int input, first;
};

struct wf_step {
    enum wf_step_kind kind;
    const struct wf_node *node; /* the item it belongs to, or NULL */
    int item;                   /* of the program, or -1 */
    int part;                   /* of the list (turns.h) */
    bool recompute;             /* a recomputation */
    int strip;                  /* its number, or -1 */
    int n_in, n_out;
    struct wf_slot *in, *out; /* in: the node's inputs, and behind them those of fused ones */
    /* kernel */
    struct wf_step_fused *fuses;
    int n_fused;
    const struct wf_kernel *kernel;
    struct wf_region work;
    int scratch; /* buffer, or -1 */
    void *prepared;
    const char *implementation;
    struct wf_load load; /* what the estimate is made of */
    double seconds;      /* estimate */
    /* communication: index into exchanges or sums */
    int which;
};

static inline bool wf_step_computes(const struct wf_step *step)
{
    return step->kind == WF_STEP_KERNEL || step->kind == WF_STEP_COPY || step->kind == WF_STEP_ADD;
}

struct wf_plan_message {
    int peer, tag;
    bool is_send;
    struct wf_slot slot; /* the box in the instance's buffer */
    int staging;         /* buffer for a packed copy, or -1: the box is packed where it lies */
    size_t bytes;
};

struct wf_exchange {
    const struct wf_value *value;
    int instance; /* of the program */
    struct wf_plan_message *messages;
    int n_messages;
};

struct wf_sum {
    const struct wf_value *value; /* the first, if there are several */
    int instance;                 /* of the program: the same */
    struct wf_slot slot;
    int *parts, n_parts; /* buffers that the slot's own covers, if it is none of a value */
    size_t count;
    int group; /* number in geometry.groups */
};

/* Steps [first, end) that run without a break, for one micro-batch. */
struct wf_plan_part {
    int first, end;
    double seconds; /* estimate */
};

struct wf_plan {
    struct wf_arena arena;
    const struct wf_global_plan *global;
    int rank;
    struct wf_context *context; /* of the device; NULL: it needs none, or was not at hand */
    struct wf_step *steps;
    int n_steps,
        n_fixed; /* the first so many compute what is fixed: before the first pass, and in no part */
    struct wf_plan_part *parts; /* of the list: two for each segment */
    int n_parts;
    struct wf_turns turns; /* of a step with all of its micro-batches */
    struct wf_plan_buffer *buffers;
    int n_buffers;
    struct wf_exchange *exchanges;
    int n_exchanges;
    struct wf_sum *sums;
    int n_sums;
    struct wf_slot
        *values; /* per value id: where an input, weight or output is; buffer -1: nowhere */
    struct wf_slot *ahead; /* per value id: room for the next step's input; buffer -1: none */
    /* Of several micro-batches, or parts: per value id, where the inputs of all of them wait and their
     * outputs stay; buffer -1: the value has its own place only. */
    struct wf_slot *queue;
    size_t *param_at; /* per value id: element offset in its flat store, for weights it holds */
    size_t store_bytes[WF_STORES];
    size_t trained_count; /* elements of the parameters' store that have gradients and moments */
    size_t arena_bytes,
        live_bytes; /* what is needed, and the lower bound: most bytes live at once */
    size_t fetch_bytes, reduce_bytes; /* received by this rank in a step; summed by this rank */
    double flops;
    /* Estimates: the step; what the rank and its link are busy in it. */
    double seconds, compute_seconds, link_seconds;
    int references; /* kernels with much work that fell back to the reference */
};

struct wf_global_plan *wf_global_plan_new(const struct wf_graph *g, const struct wf_mesh *mesh,
                                          const struct wf_plan_options *options,
                                          struct wf_err *err);
void wf_global_plan_free(struct wf_global_plan *global);

/* Fails with WF_ERR_FIT where the rank does not fit into options.limit. */
struct wf_plan *wf_plan_new(const struct wf_global_plan *global, int rank, struct wf_err *err);
/* The same with the device at hand, so that it can be run; borrows the context (target.h). */
struct wf_plan *wf_plan_new_on(const struct wf_global_plan *global, int rank,
                               struct wf_context *context, struct wf_err *err);
void wf_plan_free(struct wf_plan *plan);
/* A plan to be looked at: the same in all that plan.h shows, but its kernels are not prepared, so it
 * does not run. Plans of one global plan that are made with one plan cache share what depends on shapes only. */
struct wf_plan_cache;
struct wf_plan *wf_plan_estimate_on(const struct wf_global_plan *global, int rank,
                                    struct wf_context *context, struct wf_plan_cache *cache,
                                    struct wf_err *err);
/* The same without the device: primitives of external libraries are not checked. */
struct wf_plan *wf_plan_estimate(const struct wf_global_plan *global, int rank,
                                 struct wf_plan_cache *cache, struct wf_err *err);

/* Loads of what is no operator, for figures and estimates (cost.c): a copy, and an optimiser's sweep. */
struct wf_load wf_cost_copy_load(double bytes);
struct wf_load wf_cost_update_load(double weights, double bytes);

/* Seconds of a step on ranks that wait for each other, estimated (together.c): plans of some ranks of a global
 * plan. Other ranks are taken to have what is waited for. */
double wf_plans_seconds(const struct wf_plan *const plans[], int count);

/* Whether the step recomputes something for the limit. */
bool wf_step_is_for_limit(const struct wf_plan *plan, const struct wf_step *step);
/* Fails where the device has less room than the rank needs, by an estimate that takes no time: before
 * kernels are chosen for shapes that cannot be run. */
[[nodiscard]] bool wf_plan_fits(const struct wf_global_plan *global, int rank,
                                struct wf_context *context, struct wf_err *err);

/* Bytes that no plan of the rank can do without, found in no time: those of its largest image. */
size_t wf_global_plan_least_bytes(const struct wf_global_plan *global, int rank);

/* Bytes outside the arena: parameters, gradients, states. */
size_t wf_plan_param_bytes(const struct wf_plan *plan);

/* Whether the steps of a recording run in branches instead of one after the other (target.h): of networks of points,
 * whose coarse levels do not fill a device, where no step waits for other ranks. */
bool wf_plan_branches(const struct wf_plan *plan);

/* trained_count of a rank that holds all weights. */
size_t wf_plan_trained_count(const struct wf_graph *g);

[[nodiscard]] bool wf_plan_check(const struct wf_plan *plan, struct wf_err *err);
/* Plans of all ranks of one global plan, in rank order. */
[[nodiscard]] bool wf_plan_check_all(const struct wf_plan *const *plans, int n, struct wf_err *err);

/* Offsets for intervals that share one store: returns the bytes needed, fills offset[]. */
size_t wf_memory_pack(int n, const size_t bytes[], const int first[], const int last[],
                      size_t offset[]);
/* Other offsets in the same bytes (`height`): where there is room, memory that is given back is not taken anew for some
 * steps. So steps that may run beside each other seldom wait for memory only. */
void wf_memory_spread(int n, const size_t bytes[], const int first[], const int last[],
                      size_t height, size_t offset[]);
/* To the boundary on which a buffer of the arena begins. */
size_t wf_memory_round_up(size_t bytes);
/* Most bytes live at once; *peak (or NULL): the first step at which that is so. */
size_t wf_memory_live(int n, const size_t bytes[], const int first[], const int last[], int steps,
                      int *peak);
