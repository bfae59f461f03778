/*
 * Running a body on every kind of comm, for the tests of comm/.
 *
 * A case is a body that runs on every rank. It returns false with a text where the contract is
 * broken: cmocka's own checks may not be used on other threads than the first.
 */
#ifndef WF_TESTS_SUPPORT_COMM_H
#define WF_TESTS_SUPPORT_COMM_H

#include "comm/comm.h"

enum { RANKS_MOST = 8 };

typedef bool body(struct wf_comm *comm, void *arg, struct wf_err *err);

/* Started by mpirun, with WIDEFIELD_TEST_COMM=mpi? */
bool under_mpi(void);
void run_on_mpi(body *b, void *arg);
void run_on_threads(int size, body *b, void *arg);
/* Every way to sum. */
enum { SUM_WAYS = 5 };
extern const struct wf_sum_options sum_ways[SUM_WAYS];

/* `mpi` under mpirun; otherwise `self`, and `threads` with 1, 2, 3, 5 and 7 ranks; and over an emulated
 * link. */
void on_every_comm(body *b, void *arg);
/* The same by every way to sum, for bodies that sum. */
void on_every_comm_and_way(body *b, void *arg);

/* --- for bodies: true, or an error that says what was expected --- */
bool is(int64_t got, int64_t want, const char *what, struct wf_err *err);
bool says(const struct wf_err *got, const char *want, struct wf_err *err);

struct wf_message to(int peer, int tag, const void *data, size_t bytes);
struct wf_message from(int peer, int tag, void *data, size_t bytes);
bool exchange(struct wf_comm *comm, int count, const struct wf_message *m, struct wf_err *err);
bool sum(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype, struct wf_err *err);
int right_of(const struct wf_comm *comm);
int left_of(const struct wf_comm *comm);

#endif
