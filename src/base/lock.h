/*
 * A lock on a folder that holds between machines that share a file system.
 *
 * The lock is a file that names its owner: host, process, start time. It is created by link(),
 * which is atomic on every file system. If the kernel supports flock, the owner holds a lock on the
 * file, which is released when the process ends in any way: a run that was killed can be resumed at
 * once. If two machines do not see each other's kernel locks, the file's age decides: the owner
 * touches it every few seconds, and a file that was not touched for two minutes is taken over, with
 * a warning. Until either is certain, wf_lock_take() waits.
 *
 *     struct wf_lock *lock = wf_lock_take("run", &log, err);     NULL: another process has it
 *     ok = wf_lock_check(lock, err);                             before something is replaced
 *     wf_lock_free(lock);
 *
 *   L1. At most one process has a folder's lock, and knows it when it has lost it.
 *   L2. Only a lock whose owner is gone is taken over.
 */
#pragma once

#include "base/err.h"
#include "base/log.h"

struct wf_lock;

struct wf_lock *wf_lock_take(const char *folder, const struct wf_log *log, struct wf_err *err);
/* Whether it is still ours. Another machine may have taken it if this one was stalled for
 * minutes. */
[[nodiscard]] bool wf_lock_check(const struct wf_lock *lock, struct wf_err *err);
void wf_lock_free(struct wf_lock *lock);
