#include "plan/plan_cache.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"

struct wf_plan_cache_entry {
    struct wf_plan_cache_entry *next;
    uint64_t hash;
    const unsigned char *key;
    size_t key_bytes;
    void *answer;
};

void wf_plan_cache_release(struct wf_plan_cache *cache)
{
    free(cache->buckets);
    free(cache->key);
    wf_arena_release(&cache->arena);
    *cache = (struct wf_plan_cache){ 0 };
}

void wf_plan_cache_begin(struct wf_plan_cache *cache)
{
    cache->key_bytes = 0;
}

void wf_plan_cache_add(struct wf_plan_cache *cache, const void *bytes, size_t count)
{
    while (cache->key_room <= cache->key_bytes + count) /* there is a key, also an empty one */
        WF_GROW(cache->key, cache->key_room, cache->key_room);
    memcpy(cache->key + cache->key_bytes, bytes, count);
    cache->key_bytes += count;
}

/* Eight bytes at a time, multiplied and fused. */
static uint64_t hash_of(const unsigned char *bytes, size_t count)
{
    uint64_t hash = 0x9e3779b97f4a7c15u ^ count;
    for (size_t i = 0; i < count; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, count - i < 8 ? count - i : 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

const void *wf_plan_cache_find(const struct wf_plan_cache *cache)
{
    if (cache->count == 0)
        return NULL;
    const uint64_t hash = hash_of(cache->key, cache->key_bytes);
    for (const struct wf_plan_cache_entry *e = cache->buckets[hash & (cache->n_buckets - 1)]; e;
         e = e->next)
        if (e->hash == hash && e->key_bytes == cache->key_bytes &&
            memcmp(e->key, cache->key, e->key_bytes) == 0)
            return e->answer;
    return NULL;
}

static void grow(struct wf_plan_cache *cache)
{
    struct wf_plan_cache_entry **const old = cache->buckets;
    const size_t n_old = cache->n_buckets;
    cache->n_buckets = n_old ? 2 * n_old : 256;
    cache->buckets = wf_take_zeroed(cache->n_buckets, sizeof(struct wf_plan_cache_entry *));
    for (size_t i = 0; i < n_old; i++)
        for (struct wf_plan_cache_entry *e = old[i], *next; e; e = next) {
            struct wf_plan_cache_entry **const bucket =
                &cache->buckets[e->hash & (cache->n_buckets - 1)];
            next = e->next;
            e->next = *bucket;
            *bucket = e;
        }
    free(old);
}

void *wf_plan_cache_put(struct wf_plan_cache *cache, size_t bytes)
{
    if (cache->count >= cache->n_buckets)
        grow(cache);
    unsigned char *const key = wf_arena_take(&cache->arena, cache->key_bytes + 1);
    memcpy(key, cache->key, cache->key_bytes);
    struct wf_plan_cache_entry *const e = wf_arena_one(&cache->arena, struct wf_plan_cache_entry);
    *e = (struct wf_plan_cache_entry){ .hash = hash_of(key, cache->key_bytes),
                                       .key = key,
                                       .key_bytes = cache->key_bytes,
                                       .answer = wf_arena_take(&cache->arena, bytes ? bytes : 1) };
    struct wf_plan_cache_entry **const bucket = &cache->buckets[e->hash & (cache->n_buckets - 1)];
    e->next = *bucket;
    *bucket = e;
    cache->count++;
    return e->answer;
}
