/*
 * A plan cache: what the plans of a global plan's ranks have in common.
 *
 * Most ranks of a large mesh have parts of the same shape, only elsewhere in the image. What depends
 * on shapes alone (the scratch of a kernel, the packing of an arena) is worked out once and found
 * again by its key: a run of bytes that holds everything the answer depends on, positions taken
 * relative to what they are held against. Keys are compared byte by byte, so an answer is never a
 * guess.
 *
 * A plan cache belongs to one thread and to one global plan; it is never needed for a plan that runs.
 */
#ifndef WF_PLAN_PLAN_CACHE_H
#define WF_PLAN_PLAN_CACHE_H

#include "base/arena.h"

struct wf_plan_cache_entry;

struct wf_plan_cache {
    struct wf_arena arena;
    struct wf_plan_cache_entry **buckets;
    size_t n_buckets, count;
    unsigned char *key; /* being put together */
    size_t key_bytes, key_room;
};

void wf_plan_cache_release(struct wf_plan_cache *cache);
/* Start a key, and add to it. */
void wf_plan_cache_begin(struct wf_plan_cache *cache);
void wf_plan_cache_add(struct wf_plan_cache *cache, const void *bytes, size_t count);
/* The answer under the key, or NULL. */
const void *wf_plan_cache_find(const struct wf_plan_cache *cache);
/* Room for the answer under the key, which must not be there yet; lives as long as the plan cache. */
void *wf_plan_cache_put(struct wf_plan_cache *cache, size_t bytes);

#endif
