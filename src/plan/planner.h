/* The planner's state while it makes one rank's plan; for plan/ only. */
#pragma once

#include "plan/plan_cache.h"
#include "plan/plan.h"

struct wf_steps {
    struct wf_step *at;
    int n;
    size_t room;
};

struct wf_planner {
    struct wf_plan *plan;
    const struct wf_geometry *geo;
    const struct wf_program *program;
    const struct wf_device *device;
    int rank, threads;
    int item, strip; /* that are being emitted, or -1 */
    int part;        /* of the list, where there is no item */
    const struct wf_plan_options *options;
    struct wf_plan_cache *cache; /* the plan is to be looked at; NULL: it runs */
    int *root;                   /* per instance: the instance whose buffer it shares */
    int *n_inside;               /* per instance: how many others share its buffer */
    int64_t (*shift)[WF_AXES];   /* per instance: own coordinate + shift = the root's */
    struct wf_slot *slot;        /* per instance: all of its box; buffer -1: not on this rank */
    /* What has begun and not ended, per instance: the exchange or sum, or -1; and when the exchange
     * is expected to be there, by the clock of estimated seconds. */
    int *exchange, *sum;
    double *arrives, clock;
    int n_on_way;             /* exchanges */
    bool *is_late;            /* per item: it is left for the end of the step (overlap.c) */
    struct wf_region **parts; /* per strips: of strip after strip, and in it of item after item */
    size_t room_steps, room_buffers, room_exchanges, room_sums;
    struct wf_steps spare; /* room for the next list */
};

/* Passes over the program, the same on all ranks: each in a file of its own, in this order (passes.c).
 * What a pass finds out of an item or instance stands there (program.h). */
void wf_pass_fuse(struct wf_global_plan *global);    /* fuse.c */
void wf_pass_strips(struct wf_global_plan *global);  /* strips.c */
void wf_pass_buckets(struct wf_global_plan *global); /* buckets.c */
/* The name of what breaks a rule of the pass, or NULL; so below. */
const char *wf_pass_fuse_check(const struct wf_global_plan *global);
const char *wf_pass_strips_check(const struct wf_global_plan *global);
const char *wf_pass_buckets_check(const struct wf_global_plan *global);

/* Passes over a rank's steps, likewise. */
void wf_pass_overlap(struct wf_planner *p); /* overlap.c */
void wf_pass_split(struct wf_planner *p);   /* split.c */
void wf_pass_pack(struct wf_planner *p);    /* pack.c */
const char *wf_pass_overlap_check(const struct wf_plan *plan);
const char *wf_pass_split_check(const struct wf_plan *plan);
const char *wf_pass_pack_check(const struct wf_plan *plan);

/* passes.c: all of them; and whether a plan keeps the rules of all. */
[[nodiscard]] bool wf_passes_over_program(struct wf_global_plan *global, struct wf_err *err);
[[nodiscard]] bool wf_passes_over_steps(struct wf_planner *p, struct wf_err *err);
[[nodiscard]] bool wf_passes_check(const struct wf_plan *plan, struct wf_err *err);
/* prepare.c: makes the kernels ready for their boxes, and finds their scratch. */
[[nodiscard]] bool wf_planner_prepare(struct wf_planner *p, struct wf_err *err);
/* lives.c: from when to when buffers are needed, and memory of their own for inputs ahead and micro-batches; then where
 * they lie in the arena (`cache` may be NULL). */
void wf_planner_live(struct wf_planner *p);
void wf_plan_pack(struct wf_plan *plan, struct wf_plan_cache *cache);

/* place.c: which instances share memory, and a buffer for each of the rest. */
void wf_planner_place(struct wf_planner *p);
/* Places strip-local instances for strip number `at`. */
void wf_planner_place_strip(struct wf_planner *p, const struct wf_strips *s, int at);
/* emit.c: the steps as a plain list; and those of an item on all of its work or a part. */
void wf_planner_emit(struct wf_planner *p);
void wf_planner_emit_item(struct wf_planner *p, int item, struct wf_region work);
struct wf_step *wf_planner_add_step(struct wf_planner *p, enum wf_step_kind kind,
                                    const struct wf_node *node);
void wf_planner_add_copy(struct wf_planner *p, const struct wf_node *node, struct wf_slot to,
                         struct wf_slot from);
/* A packed buffer of its own for a box. */
struct wf_slot wf_planner_add_packed(struct wf_planner *p, const struct wf_slot *like);
/* What a pass rewrites: the list so far, while the plan's begins anew, to be given back as p->spare for
 * the next pass; and a step of it that stays. */
struct wf_steps wf_planner_take_steps(struct wf_planner *p);
void wf_planner_put(struct wf_planner *p, const struct wf_step *step);
/* The region of an item's input that a part of its work reads, inside the image. */
struct wf_region wf_planner_reads(const struct wf_planner *p, int item, int input,
                                  struct wf_region work);

/* emit_comm.c: what the item's results need: sums and fetches. */
void wf_planner_emit_comm(struct wf_planner *p, int item);
/* And what travels from other stages into a segment, at both ends. */
void wf_planner_emit_transfers(struct wf_planner *p, int segment);
/* pack.c: what copies of the step's boxes would take. */
double wf_pack_seconds(const struct wf_planner *p, const struct wf_step *s);

/* cost.c: seconds, all of them estimates. */
struct wf_costs wf_costs_of(const struct wf_plan_options *options);
double wf_cost_load(const struct wf_costs *costs, const struct wf_load *load);
/* The same of a reference kernel; where none of its type was measured, by a speed such kernels have about. */
double wf_cost_reference(const struct wf_costs *costs, const struct wf_load *load);
struct wf_load wf_cost_kernel_load(const struct wf_planner *p, int item, struct wf_region work);
double wf_cost_copy(const struct wf_global_plan *global, double bytes);
double wf_cost_exchange(const struct wf_global_plan *global, int rank, const struct wf_exchange *x);
double wf_cost_sum(const struct wf_global_plan *global, const struct wf_sum *sum);
/* Fills the plan's seconds: the whole step, with communication in parallel to computation. */
void wf_cost_plan(struct wf_plan *plan);

/* backlog.c: settles options->pipe.backlog. */
[[nodiscard]] bool wf_plan_choose_backlog(const struct wf_graph *g, const struct wf_mesh *mesh,
                                          struct wf_plan_options *options, struct wf_err *err);

/* plan.c: a global plan, whether it fits or not; no rank is placed yet. */
struct wf_global_plan *wf_global_plan_make(const struct wf_graph *g, const struct wf_mesh *mesh,
                                           const struct wf_plan_options *options,
                                           const struct wf_requests *requests, struct wf_err *err);
/* Places all ranks, or only one of them and without what travels, and runs the passes over the program
 * with what is then known. NULL stays NULL. */
struct wf_global_plan *wf_global_plan_of_all(struct wf_global_plan *global, struct wf_err *err);
struct wf_global_plan *wf_global_plan_of_rank(struct wf_global_plan *global, int rank,
                                              struct wf_err *err);
/* An estimate that is neither packed nor checked: steps, and live ranges of buffers. */
struct wf_plan *wf_plan_estimate_lives(const struct wf_global_plan *global, int rank,
                                       struct wf_plan_cache *cache, struct wf_err *err);

int wf_planner_add_buffer(struct wf_planner *p, enum wf_store store, size_t bytes,
                          const char *name);
/* The part of an instance's slot inside `box`, in the instance's coordinates. */
struct wf_slot wf_slot_part(const struct wf_slot *slot, struct wf_region box);
