/* Shared by the implementations of comm: which rank an error names, and what the launcher's
 * environment says. */
#pragma once

#include "base/err.h"

enum { WF_NOBODY = -1 };

/* Prefixes the message with "rank N: ", unless it already names a rank (an error that was agreed on
 * before is not changed). WF_NOBODY, for a group of one, adds no prefix. An empty error gets a
 * text. */
void wf_comm_blame(int rank, struct wf_err *err);

/* Number of processes that the launcher started; 1 if it does not give the number; 0 without a
 * launcher. */
int wf_comm_launched_size(void);

/* srun has started several processes that cannot find each other (--mpi=none). */
bool wf_comm_launched_apart(void);
