/*
 * A sum over ranks as messages: who sends which elements to whom, in which round.
 *
 * A rank's schedule is a list of moves, in rounds. All moves of a round are sent at once. When they
 * have arrived, those with `adds` are added to the rank's own elements, in the order of the list,
 * and the others replace them. Every rank computes its own schedule without communication: a pair
 * of ranks has its moves in the same order on both sides.
 *
 * S1. After each algorithm, every element has the same value on all ranks: either one rank
 *     computed it and the others copied it, or two ranks have added the same two numbers (a + b is
 *     b + a).
 * S2. A move without elements is left out, on both sides.
 *
 *     struct wf_sum_schedule s = { 0 };
 *     wf_sum_schedule_ring(&s, &(struct wf_sum_group){ .rank = 1, .size = 3 }, 0, count);
 *     for (size_t i = 0; i < s.count; i++) ... s.moves[i] ...
 *     wf_sum_schedule_release(&s);
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct wf_move {
    int round, peer; /* peer: rank of the comm */
    bool sends;
    bool adds;           /* a receive: added to the element; otherwise it replaces it */
    bool exact;          /* a send: the sender continues with the value as sent, rounded or not */
    size_t first, count; /* elements */
};

struct wf_sum_schedule {
    struct wf_move *moves;
    size_t count, room;
    int rounds;
};

/* The participants: `rank` of `size`; participant i is rank ranks[i] of the comm (NULL: rank i). */
struct wf_sum_group {
    int rank, size;
    const int *ranks;
};

/* The distribution of ranks over machines, seen by one of them. */
struct wf_sum_nodes {
    struct wf_sum_group here;   /* those on this machine */
    struct wf_sum_group across; /* those with our local rank, on every machine that has one */
    int owners; /* ranks of each machine that talk to other machines: all of them, or 1 if the
                 * machines have different numbers of ranks */
};

/* All append to `s`. */
/* Each rank talks to its neighbours only: 2 (size - 1) rounds, each of count / size elements. */
void wf_sum_schedule_ring(struct wf_sum_schedule *s, const struct wf_sum_group *group, size_t first,
                          size_t count);
/* Recursive halving and doubling: 2 log2(size) rounds; the same bytes as a ring. A short one sends
 * everything log2(size) times. Ranks beyond the last power of two send theirs to a partner and
 * receive the result. */
void wf_sum_schedule_tree(struct wf_sum_schedule *s, const struct wf_sum_group *group, size_t first,
                          size_t count, bool is_short);
/* Within each machine to the owners of the elements, across by a tree, and back. */
void wf_sum_schedule_nodes(struct wf_sum_schedule *s, const struct wf_sum_nodes *nodes,
                           size_t first, size_t count, bool is_short);
void wf_sum_schedule_release(struct wf_sum_schedule *s);
