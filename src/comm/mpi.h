/*
 * What libwidefield-mpi.so offers. Only that module is linked with MPI; the library and the command
 * open it under a launcher (mpi_open.c), so they also start where there is no MPI.
 *
 * The module has copies of what it uses of base/ and comm/, and is of the same build: both sides see
 * the same structs. It is never closed: MPI cannot be started twice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct wf_comm;
struct wf_err;

struct wf_mpi_module {
    const char *version; /* WF_VERSION_STRING */
    struct wf_comm *(*comm)(struct wf_err *err);
    void (*finish)(void);
    void (*set_piece)(struct wf_comm *comm, size_t bytes);
    /* "Open MPI v4.1.4, /usr/lib/libmpi.so.40" */
    void (*about)(char *text, size_t room);
    void (*halt_to)(void (*halt)(const char *text)); /* base/halt.h, of the module's copy */
};

/* The module's only symbol. */
extern const struct wf_mpi_module wf_mpi_module;

/* --- of the library, for `check` and the tests --- */

/* The module's path and its `about`, or false with what to install. */
[[nodiscard]] bool wf_comm_mpi_about(char *text, size_t room, struct wf_err *err);

/* MPI counts in int: messages larger than `bytes` (a multiple of 8) are sent in pieces. Collective:
 * the same on all ranks, before anything is begun. A test makes the pieces small. */
void wf_comm_mpi_set_piece(struct wf_comm *comm, size_t bytes);
