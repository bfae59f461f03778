/*
 * Memory for bookkeeping: small, and without it nothing can go on. So these never return NULL; when
 * there is no memory the process ends with a message and status 3 (halt.h). What is freed is freed by
 * free().
 *
 *     struct wf_lock *const l = wf_take_zeroed(1, sizeof *l);
 *
 * What grows with the images or the network (a window, a batch, weights) is taken by malloc(), and no
 * memory for it is an error that says what did not fit: WF_ERR_FIT.
 */
#ifndef WF_BASE_MEMORY_H
#define WF_BASE_MEMORY_H

#include <stddef.h>

void *wf_take(size_t bytes) __attribute__((malloc, returns_nonnull));
void *wf_take_zeroed(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
char *wf_take_text(const char *text) __attribute__((malloc, returns_nonnull));

/* Ends the process: so many bytes were refused; 0: nobody knows how many. */
void wf_no_memory(size_t bytes) __attribute__((noreturn));

#endif
