/*
 * A lock on a folder that holds between machines that share a file system.
 *
 * The lock is a file with the name of its owner in it: host, process, since when. Who makes it by link()
 * has it, on every file system. Where the kernel knows locks (flock), the owner holds one on the file,
 * which goes with the process however that ends: a run that was killed can go on at once. Where two
 * machines do not see each other's kernel locks, the file's age tells: the owner touches it every some
 * seconds, and one that was not touched for two minutes is taken over, with a warning. Until one of
 * both is known, wf_lock_take() waits.
 *
 *     struct wf_lock *lock = wf_lock_take("run", &log, err);     NULL: another process has it
 *     ok = wf_lock_check(lock, err);                             before something is replaced
 *     wf_lock_free(lock);
 *
 *   L1. At most one process has a folder's lock, and knows it when it has lost it.
 *   L2. Only a lock whose owner is gone is taken over.
 */
#ifndef WF_BASE_LOCK_H
#define WF_BASE_LOCK_H

#include "base/err.h"
#include "base/log.h"

struct wf_lock;

struct wf_lock *wf_lock_take(const char *folder, const struct wf_log *log, struct wf_err *err);
/* Is it still ours? Another machine may have taken it where this one did not answer for minutes. */
[[nodiscard]] bool wf_lock_check(const struct wf_lock *lock, struct wf_err *err);
void wf_lock_free(struct wf_lock *lock);

#endif
