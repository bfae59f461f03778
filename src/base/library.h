/*
 * Libraries that are not linked but opened when they are needed, so that a program starts without them.
 *
 * A library is a list of its functions and a struct of pointers to them, both of one macro:
 *
 *     #define FUNCTIONS(F) F(ncclSend) F(ncclRecv)
 *     struct nccl { FUNCTIONS(WF_LIBRARY_POINTER) };
 *     static const char *const names[] = { FUNCTIONS(WF_LIBRARY_NAME) NULL };
 *     if (!wf_library_open(&about, names, &nccl, err)) ...
 *     nccl.ncclSend(...)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct wf_err;

struct wf_library {
    const char *title, *soname;
    const char *install; /* what to install where it is missing */
};

#define WF_LIBRARY_POINTER(function) __typeof__(&function) function;
#define WF_LIBRARY_NAME(function) #function,

/* Fills `table` with the functions of `names`, which ends with NULL. One that is in the process already
 * (PyTorch brings its own) is taken; then the system's is looked for, then CUDA_HOME/lib64.
 * It stays open: libraries of this kind keep threads and handlers. */
[[nodiscard]] bool wf_library_open(const struct wf_library *library, const char *const names[],
                                   void *table, struct wf_err *err);
/* The file that the first function of a filled table is in. */
const char *wf_library_path(const void *table);
