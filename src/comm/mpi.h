/* Internals of mpi.c for the tests. */
#pragma once

#include <stddef.h>

struct wf_comm;

/* MPI counts in int: messages larger than `bytes` (a multiple of 8) are sent in pieces. Collective:
 * the same on all ranks, before anything is begun. A test makes the pieces small. */
void wf_comm_mpi_set_piece(struct wf_comm *comm, size_t bytes);
