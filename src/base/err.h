/*
 * Errors travel in the last argument of every function that can fail.
 *
 * The place that knows the value fills the error once with wf_err_set(); callers add
 * their context with wf_err_wrap(). Both return false, so that failing is one line:
 *
 *     if (got != want)
 *         return wf_err_set(err, WF_ERR_INPUT, "'%s': expected %zu bytes, got %zu", path, want, got);
 *     if (!wf_raster_read(r, window, dst, err))
 *         return wf_err_wrap(err, "loading tile (%d,%d)", ty, tx);
 *
 * `struct wf_err` is plain storage on the caller's stack; nothing is allocated. Start it with
 * `struct wf_err err = { 0 };`. Text is lower case without a full stop, and tells the user what to
 * do.
 *
 * A mistake of the programmer is not an error: WF_BUG_ON() stops the program, in every build.
 */
#pragma once

#include "widefield_types.h"

/* Fills `err` and returns false. The first cause is kept: setting a filled error again is
 * ignored. */
bool wf_err_set(struct wf_err *err, enum wf_err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prefixes the text with "<format>: " and returns false. */
bool wf_err_wrap(struct wf_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The process's exit status for a code: 0, 1, 2, 3 or 75. */
int wf_err_exit_status(enum wf_err_code code);

void wf_bug(const char *file, int line, const char *what, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

/* WF_BUG_ON(condition, "i = %d", i): stops with file, line, condition and the values. */
#define WF_BUG_ON(condition, ...)                                                                  \
    ((condition) ? wf_bug(__FILE__, __LINE__, #condition, __VA_ARGS__) : (void)0)
