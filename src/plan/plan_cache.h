/*
 * A plan cache: results shared by the plans of a global plan's ranks.
 *
 * Most ranks of a large mesh have parts of the same shape at other positions of the image. Results
 * that depend on shapes alone (the scratch of a kernel, the packing of an arena) are computed once
 * and found by their key: a byte string of everything the result depends on, with positions
 * relative to each other. Keys are compared byte by byte, so a hit is exact.
 *
 * A plan cache belongs to one thread and to one global plan; it is never needed for a plan that
 * runs.
 */
#pragma once

#include "base/arena.h"

struct wf_plan_cache_entry;

struct wf_plan_cache {
    struct wf_arena arena;
    struct wf_plan_cache_entry **buckets;
    size_t n_buckets, count;
    unsigned char *key; /* being built */
    size_t key_bytes, key_room;
};

void wf_plan_cache_release(struct wf_plan_cache *cache);
/* Starts a key, and appends to it. */
void wf_plan_cache_begin(struct wf_plan_cache *cache);
void wf_plan_cache_add(struct wf_plan_cache *cache, const void *bytes, size_t count);
/* The result under the key, or NULL. */
const void *wf_plan_cache_find(const struct wf_plan_cache *cache);
/* Memory for the result under the key, which must be new; lives as long as the plan cache. */
void *wf_plan_cache_put(struct wf_plan_cache *cache, size_t bytes);
