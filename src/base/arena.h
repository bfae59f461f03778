/*
 * An arena: memory that is freed all at once.
 *
 * A leading `struct wf_arena *` in a signature means that the result lives as long as the arena.
 * Blocks are zeroed and aligned for every type. Allocation never returns NULL: host bookkeeping is
 * small, and without memory for it the process ends with a message (tensors are not allocated here:
 * they are part of a plan).
 *
 *     struct wf_arena arena = { 0 };
 *     int64_t *cuts = wf_arena_array(&arena, n, int64_t);
 *     wf_arena_release(&arena);
 */
#pragma once

#include <stddef.h>

struct wf_arena_block;

struct wf_arena {
    struct wf_arena_block *blocks; /* newest first */
    size_t used, room;             /* in the newest block */
};

void *wf_arena_take(struct wf_arena *arena, size_t bytes);
void *wf_arena_take_array(struct wf_arena *arena, size_t count, size_t size);
char *wf_arena_printf(struct wf_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *wf_arena_copy(struct wf_arena *arena, const char *text);
void wf_arena_release(struct wf_arena *arena);

#define wf_arena_array(arena, count, type)                                                         \
    ((type *)wf_arena_take_array((arena), (size_t)(count), sizeof(type)))
#define wf_arena_one(arena, type) wf_arena_array((arena), 1, type)

/* Grows a heap array so that index `count` exists: doubles, zeroes the new part, ends the process
 * when memory is out. `*items` belongs to the caller, who frees it. */
void wf_grow(void **items, size_t *room, size_t count, size_t size);
#define WF_GROW(items, room, count) wf_grow((void **)&(items), &(room), (count), sizeof *(items))
