/*
 * Memory for bookkeeping: small and essential. So these never return NULL; when there is no memory
 * the process ends with a message and status 3 (halt.h). Free it with free().
 *
 *     struct wf_lock *const l = wf_take_zeroed(1, sizeof *l);
 *
 * What grows with the images or the network (a window, a batch, weights) is allocated by malloc(),
 * and its failure is an error that names what did not fit: WF_ERR_FIT.
 */
#pragma once

#include <stddef.h>

void *wf_take(size_t bytes) __attribute__((malloc, returns_nonnull));
void *wf_take_zeroed(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
char *wf_take_text(const char *text) __attribute__((malloc, returns_nonnull));

/* Ends the process: an allocation of `bytes` failed; 0: unknown. */
void wf_no_memory(size_t bytes) __attribute__((noreturn));
