/*
 * A message check: who sends what to whom and who sums with whom, in the order each rank does it. Plans are
 * written into it one by one, in rank order, and need not be kept; then the book is closed and I4 to
 * I6 of plan/plan.h are looked at over all ranks. Time and memory grow with the number of messages,
 * not with the number of pairs of ranks.
 */
#pragma once

#include <stdint.h>

#include "plan/plan.h"

/* One end of a message. */
struct wf_checked_message {
    int from, to, tag;
    int event;   /* of the rank that wrote it: where it begins */
    int partner; /* the other end, filled when the book is closed */
    bool is_send;
    size_t bytes;
    uint64_t what; /* digest of the value and the box */
};

struct wf_checked_sum {
    const struct wf_value *value;
    size_t count;
    int group;
    int meeting; /* the leader's entry, filled when the book is closed */
};

/* A step that communicates. */
struct wf_checked_event {
    enum wf_step_kind kind;
    int first, count; /* of its messages, or its sum */
};

struct wf_message_check {
    int n_ranks;
    size_t n_events, n_messages, n_sums;
    struct wf_checked_event *events;
    struct wf_checked_message *messages;
    struct wf_checked_sum *sums;
    int *first_event, *first_sum; /* per rank, and one behind the last */
    size_t room_events, room_messages, room_sums, room_first_event, room_first_sum;
};

/* The next rank's plan, which passes wf_plan_check(). */
void wf_message_check_add(struct wf_message_check *check, const struct wf_plan *plan);
[[nodiscard]] bool wf_message_check_run(struct wf_message_check *check,
                                        const struct wf_groups *groups, struct wf_err *err);
void wf_message_check_release(struct wf_message_check *check);
