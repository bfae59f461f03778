#include "plan/memo.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"

struct wf_memo_entry {
    struct wf_memo_entry *next;
    uint64_t hash;
    const unsigned char *key;
    size_t key_bytes;
    void *answer;
};

void wf_memo_release(struct wf_memo *memo)
{
    free(memo->buckets);
    free(memo->key);
    wf_arena_release(&memo->arena);
    *memo = (struct wf_memo){ 0 };
}

void wf_memo_begin(struct wf_memo *memo)
{
    memo->key_bytes = 0;
}

void wf_memo_add(struct wf_memo *memo, const void *bytes, size_t count)
{
    while (memo->key_room < memo->key_bytes + count)
        WF_GROW(memo->key, memo->key_room, memo->key_room);
    memcpy(memo->key + memo->key_bytes, bytes, count);
    memo->key_bytes += count;
}

/* Eight bytes at a time, multiplied and folded. */
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

const void *wf_memo_find(const struct wf_memo *memo)
{
    if (memo->count == 0)
        return NULL;
    const uint64_t hash = hash_of(memo->key, memo->key_bytes);
    for (const struct wf_memo_entry *e = memo->buckets[hash & (memo->n_buckets - 1)]; e;
         e = e->next)
        if (e->hash == hash && e->key_bytes == memo->key_bytes &&
            memcmp(e->key, memo->key, e->key_bytes) == 0)
            return e->answer;
    return NULL;
}

static void grow(struct wf_memo *memo)
{
    struct wf_memo_entry **const old = memo->buckets;
    const size_t n_old = memo->n_buckets;
    memo->n_buckets = n_old ? 2 * n_old : 256;
    memo->buckets = wf_take_zeroed(memo->n_buckets, sizeof(struct wf_memo_entry *));
    for (size_t i = 0; i < n_old; i++)
        for (struct wf_memo_entry *e = old[i], *next; e; e = next) {
            struct wf_memo_entry **const bucket = &memo->buckets[e->hash & (memo->n_buckets - 1)];
            next = e->next;
            e->next = *bucket;
            *bucket = e;
        }
    free(old);
}

void *wf_memo_put(struct wf_memo *memo, size_t bytes)
{
    if (memo->count >= memo->n_buckets)
        grow(memo);
    unsigned char *const key = wf_arena_take(&memo->arena, memo->key_bytes + 1);
    memcpy(key, memo->key, memo->key_bytes);
    struct wf_memo_entry *const e = wf_arena_one(&memo->arena, struct wf_memo_entry);
    *e = (struct wf_memo_entry){ .hash = hash_of(key, memo->key_bytes),
                                 .key = key,
                                 .key_bytes = memo->key_bytes,
                                 .answer = wf_arena_take(&memo->arena, bytes ? bytes : 1) };
    struct wf_memo_entry **const bucket = &memo->buckets[e->hash & (memo->n_buckets - 1)];
    e->next = *bucket;
    *bucket = e;
    memo->count++;
    return e->answer;
}
