/*
 * Turns: in which order a stage runs its segments for the micro-batches of a step.
 *
 * A stage's list has a turn for each segment and micro-batch, and in front of it a turn for what travels
 * into that segment, at both ends. All lists are parts of one order of all turns of all stages. So no rank
 * waits for ever: the first turn in that order that has not been run can always run, whether messages wait
 * for their receiver and go one after the other (NCCL on one stream) or not (threads, MPI).
 *
 * Nothing depends on the number of micro-batches but the length of the list: a step with fewer of them
 * leaves the turns of the others out.
 *
 *     struct wf_turns turns = wf_turns_of(&arena, &stages, &options, stage, 8);
 */
#pragma once

#include "plan/stages.h"

/* A plan's steps are grouped: what travels into segment s, then the work of segment s. */
static inline int wf_part_transfers(int segment)
{
    return 2 * segment;
}
static inline int wf_part_work(int segment)
{
    return 2 * segment + 1;
}

struct wf_turn {
    int part; /* of a plan's steps, as above */
    int micro;
};

struct wf_turns {
    struct wf_turn *at;
    int n;
};

/* Of the first `count` micro-batches. Lives in the arena. */
struct wf_turns wf_turns_of(struct wf_arena *arena, const struct wf_stages *stages,
                            const struct wf_pipe_options *options, int stage, int count);

/* How long a step takes where a segment's work takes seconds[segment], and what travels into it
 * travel[segment]. */
struct wf_turns_time {
    double seconds;
    double *idle; /* per stage: the part of the time in which it does nothing */
};
struct wf_turns_time wf_turns_estimate(struct wf_arena *arena, const struct wf_stages *stages,
                                       const struct wf_pipe_options *options,
                                       const double seconds[], const double travel[]);

/* How many micro-batches have something between the first and the last of these parts' turns at once, so
 * that micro-batch m may use slot m modulo that number. `used`: per part. */
int wf_turns_slots(const struct wf_turns *turns, const bool used[], int count);
