/*
 * Stages: which part of a network runs on which ranks of the mesh axis `pipe`.
 *
 * The forward nodes are cut into chunks, so that every value flows to the same chunk or a later one.
 * Chunk c is on stage c modulo pipe: with one chunk per stage a stage is a consecutive part of the network;
 * with two (the interleaved schedule) it has two parts. The gradient of a node is in its node's chunk. Cuts
 * are chosen so that the slowest chunk is as fast as can be, what travels between chunks included, or are
 * given by name.
 *
 * A chunk's forward nodes are one segment, its backward nodes another; with weight gradients apart (the
 * zero-bubble schedule) those are a third, but not on the first stage, where nobody waits for the rest. A rank runs a segment for one micro-batch without a break; the
 * schedule (turns.h) says in which order. Without `pipe` there is one segment: everything.
 *
 * T1. Segments are numbered in an order in which they can run: a node reads only what its own segment or an
 *     earlier one makes.
 * T2. A parameter is used in one chunk: its gradient is summed within a stage.
 */
#pragma once

#include "plan/mesh.h"

enum wf_pipe_schedule { WF_PIPE_1F1B, WF_PIPE_INTERLEAVED, WF_PIPE_ZERO_BUBBLE };
extern const char *const wf_pipe_schedule_names[]; /* ends with NULL */

struct wf_stages;

struct wf_pipe_options {
    enum wf_pipe_schedule schedule;
    int micro_batches; /* of a step; 0: one */
    /* Zero bubble: micro-batches that a stage may have begun and not ended with their weight
     * gradients, if that is more than 1F1B would have; 0: as many as stages. */
    int backlog;
    bool keeps_outputs;     /* of all micro-batches; otherwise only of small ones, such as a loss */
    const char *const *cut; /* layers with which the second and later chunks begin; NULL: chosen */
    int n_cut;
    /* Cut as another graph was that has the same parameters, such as that of another batch; or NULL. */
    const struct wf_graph *like;
    const struct wf_stages *like_stages;
};

static inline int wf_pipe_micro_batches(const struct wf_pipe_options *o)
{
    return o->micro_batches > 0 ? o->micro_batches : 1;
}

enum wf_segment_kind { WF_SEGMENT_FORWARD, WF_SEGMENT_BACKWARD, WF_SEGMENT_WEIGHTS };

struct wf_segment {
    enum wf_segment_kind kind;
    int chunk;
};

struct wf_stages {
    int n_stages, n_chunks;
    struct wf_segment *segments;
    int n_segments;
    int *chunk, *segment; /* per node id; NULL: all are in the first */
    int *order;           /* node ids, segment after segment; NULL: as they are */
};

struct wf_costs;

/* Everything lives in the arena. */
[[nodiscard]] bool wf_stages_init(struct wf_arena *arena, struct wf_stages *stages,
                                  const struct wf_graph *g, const struct wf_mesh *mesh,
                                  const struct wf_pipe_options *options,
                                  const struct wf_costs *costs, struct wf_err *err);

static inline int wf_stages_chunk(const struct wf_stages *s, const struct wf_node *n)
{
    return s->chunk ? s->chunk[n->id] : 0;
}
static inline int wf_stages_segment(const struct wf_stages *s, const struct wf_node *n)
{
    return s->segment ? s->segment[n->id] : 0;
}
/* The stage that a segment runs on. */
static inline int wf_stages_of_segment(const struct wf_stages *s, int segment)
{
    return s->segments[segment].chunk % s->n_stages;
}
