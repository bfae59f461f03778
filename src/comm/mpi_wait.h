/*
 * Ranks as processes under mpirun or srun.
 *
 * M1. All traffic runs on a private duplicate of the world (or a split of it), where errors return.
 * M2. No call that can wait for another rank blocks inside MPI: it is begun nonblocking and
 *     polled, and the polls check for an abort on a second duplicate, which is used for nothing
 *     else. The calls that have no nonblocking form (dup, split) come directly after a barrier.
 * M3. A message is floor(bytes / piece) full pieces and one that is not full (perhaps empty): so a
 *     receiver that expects another size detects it at one of the pieces.
 * M4. After an abort it is unknown what MPI still uses: handles and buffers in flight are not freed
 *     before the end of the process.
 * M5. A receive is passed to MPI only when its message has arrived and its size is known. Open
 *     MPI 4.1 writes past the end of a receive buffer that is too small when it copies directly
 *     from the sender's memory. So MPI is probed for any message, and matching in order is done
 *     here.
 */
#pragma once

#include <mpi.h>

#include "comm/comm.h"

/* Shared by the comm of the world and all that was split from it. */
struct wf_mpi_world {
    MPI_Comm control;
    int rank, size;
    bool aborted, settled;
    struct wf_err why;
    MPI_Request *telling; /* our own abort message in flight */
    struct wf_request *in_flight;
    struct wf_mpi_comm *comms;
};

/* A receive whose message has not come, and a message whose receive has not been begun. */
struct wf_mpi_expected {
    struct wf_request *request;
    int at; /* its piece */
};
struct wf_mpi_early {
    int source, tag, bytes;
    MPI_Message message;
};

struct wf_mpi_comm {
    struct wf_comm base;
    MPI_Comm mpi;
    struct wf_mpi_world *world;
    struct wf_mpi_comm *next; /* of the world */
    bool owns_world;
    size_t piece;
    struct wf_request *spare;
    struct wf_mpi_expected *expected;
    struct wf_mpi_early *early;
    size_t expected_count, expected_room, early_count, early_room;
};

/* What one MPI request carries; neither send nor recv is set in a collective. */
struct wf_mpi_piece {
    struct wf_message message; /* all of it */
    size_t bytes;
    void *place;   /* of a receive */
    void *scratch; /* place of what does not fit */
    int first;     /* of the pieces of this message */
    bool torn;     /* came in another size */
};

struct wf_request {          /* arch-ok: every comm has its own, opaque to all others */
    struct wf_request *next; /* in flight or spare */
    struct wf_mpi_comm *comm;
    int count, left; /* pieces; not yet complete */
    struct wf_mpi_piece *pieces;
    MPI_Request *handles;
    MPI_Status *statuses;
    int *indices;
    size_t pieces_room, handles_room, statuses_room, indices_room;
    struct wf_err err; /* the first thing that went wrong in it */
    /* Where a collective works, when not in the caller's memory `data`: see wf_mpi_stage(). */
    void *stage, *data;
    size_t stage_room, staged;
    enum wf_dtype dtype;
};

/* "<what> failed: <MPI's text>". Returns false. */
bool wf_mpi_failed(struct wf_err *err, int code, const char *what);

struct wf_request *wf_mpi_request_take(struct wf_mpi_comm *comm);
/* Where the handle of the next piece goes; valid until the next call. */
MPI_Request *wf_mpi_request_add(struct wf_request *r, const struct wf_mpi_piece *piece);
void wf_mpi_request_free(struct wf_request *r);

/* Piece `at` of `r`, the newest, is a receive. */
void wf_mpi_expect(struct wf_request *r, int at);
/* Look what has come, in all comms: a sender may wait for any of it. */
void wf_mpi_match(struct wf_mpi_world *world);
/* Expect nothing more for the message that begins with piece `first`, or for all. */
enum { WF_MPI_ALL = -1 };
void wf_mpi_forget(struct wf_request *r, int first);

/* Has somebody aborted? Also lets everything else advance. */
bool wf_mpi_look_for_abort(struct wf_mpi_world *world);
/* Fills `err` with the reason of the abort; returns false. */
bool wf_mpi_give_up(struct wf_mpi_world *world, struct wf_err *err);
void wf_mpi_abort(struct wf_comm *base, const struct wf_err *err);

/* The memory in which a collective over `data` shall work. */
void *wf_mpi_stage(struct wf_request *r, void *data, size_t count, enum wf_dtype dtype);
bool wf_mpi_is_half(enum wf_dtype dtype);

/* Is all of it there, or has somebody aborted? Lets it advance; does not wait. */
bool wf_mpi_test(struct wf_request *r);

/* A begin ends in one of these two: well (no request where there is nothing to wait for), or with
 * MPI's failure half way, after which the world must end. */
bool wf_mpi_begun(struct wf_mpi_comm *comm, struct wf_request *r, struct wf_request **request,
                  struct wf_err *err);
bool wf_mpi_not_begun(struct wf_mpi_comm *comm, struct wf_request *r, int code, const char *what,
                      struct wf_err *err);
/* Waits for `r` and ends it, well or not. */
bool wf_mpi_finish(struct wf_mpi_comm *comm, struct wf_request *r, struct wf_err *err);
