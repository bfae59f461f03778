/* What the implementations of comm share beside the contract: who is named in an error, and what the
 * launcher has said. */
#ifndef WF_COMM_BLAME_H
#define WF_COMM_BLAME_H

#include "base/err.h"

enum { WF_NOBODY = -1 };

/* Put "rank N: " in front, unless a rank is named there already (an error that was agreed on before
 * stays as it is). WF_NOBODY, for a group of one, adds no name. An empty error gets a text. */
void wf_comm_blame(int rank, struct wf_err *err);

/* How many processes the launcher says it has started; 1 when it only says that it did; 0 without
 * a launcher. */
int wf_comm_launched_size(void);

/* srun has started several processes and told them nothing of each other (--mpi=none). */
bool wf_comm_launched_apart(void);

#endif
