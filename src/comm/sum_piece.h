/*
 * A piece of a sum over ranks: some of its elements, carried out by a schedule (schedule.h) on the
 * point-to-point slots of a comm, round by round.
 *
 * P1. Between two rounds nothing is in flight; receive memory is allocated then, and kept.
 *
 *     wf_sum_piece_begin(piece, &task);
 *     while (!piece->over)
 *         wf_sum_piece_advance(piece);        or wf_sum_piece_wait(piece)
 *     if (piece->err.code != WF_OK) ...
 */
#pragma once

#include "comm/sums.h"

struct wf_sum_task {
    struct wf_comm *comm;
    enum wf_sum_way way; /* ring, tree or nodes */
    int tag;
    char *work; /* the elements, in `dtype` */
    size_t count;
    enum wf_dtype dtype, sent_dtype;
};

struct wf_sum_piece {
    struct wf_sum_piece *next; /* of its sum, or spare */
    uint64_t number;
    bool held, over; /* held: a caller waits for it */
    struct wf_err err;
    /* --- its own --- */
    struct wf_sum_task task;
    struct wf_sum_schedule schedule;
    size_t at, end; /* moves of the current round */
    struct wf_request *request;
    bool under_way;
    struct wf_message *messages;
    char **places; /* per move of the round: its send or receive buffer; NULL: in `work` */
    char *staging;
    size_t messages_room, places_room, staging_room;
};

void wf_sum_piece_begin(struct wf_sum_piece *piece, const struct wf_sum_task *task);
/* Advances as far as possible without waiting. */
void wf_sum_piece_advance(struct wf_sum_piece *piece);
/* Waits for the end of the current round. */
void wf_sum_piece_wait(struct wf_sum_piece *piece);
void wf_sum_piece_free(struct wf_sum_piece *piece);
