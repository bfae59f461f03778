/*
 * A memo: what the plans of a scheme's ranks have in common.
 *
 * Most ranks of a large mesh have parts of the same shape, only elsewhere in the image. What depends
 * on shapes alone (the scratch of a kernel, the packing of an arena) is worked out once and found
 * again by its key: a run of bytes that holds everything the answer depends on, positions taken
 * relative to what they are held against. Keys are compared byte by byte, so an answer is never a
 * guess.
 *
 * A memo belongs to one thread and to one scheme; it is never needed for a plan that runs.
 */
#ifndef WF_PLAN_MEMO_H
#define WF_PLAN_MEMO_H

#include "base/arena.h"

struct wf_memo_entry;

struct wf_memo {
    struct wf_arena arena;
    struct wf_memo_entry **buckets;
    size_t n_buckets, count;
    unsigned char *key; /* being put together */
    size_t key_bytes, key_room;
};

void wf_memo_release(struct wf_memo *memo);
/* Start a key, and add to it. */
void wf_memo_begin(struct wf_memo *memo);
void wf_memo_add(struct wf_memo *memo, const void *bytes, size_t count);
/* The answer under the key, or NULL. */
const void *wf_memo_find(const struct wf_memo *memo);
/* Room for the answer under the key, which must not be there yet; lives as long as the memo. */
void *wf_memo_put(struct wf_memo *memo, size_t bytes);

#endif
