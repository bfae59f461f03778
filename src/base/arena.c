#include "base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"

struct wf_arena_block {
    struct wf_arena_block *next;
    alignas(max_align_t) unsigned char data[];
};

void *wf_arena_take(struct wf_arena *arena, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    WF_BUG_ON(bytes > SIZE_MAX / 2, "%zu bytes", bytes);
    bytes = (bytes + align - 1) / align * align;
    if (arena->room - arena->used < bytes || !arena->blocks) {
        size_t room = arena->room ? arena->room * 2 : 4096;
        if (room > (size_t)1 << 22)
            room = (size_t)1 << 22;
        if (room < bytes)
            room = bytes;
        struct wf_arena_block *block = wf_take_zeroed(1, sizeof *block + room);
        block->next = arena->blocks;
        arena->blocks = block;
        arena->room = room;
        arena->used = 0;
    }
    void *at = arena->blocks->data + arena->used;
    arena->used += bytes;
    return at;
}

void *wf_arena_take_array(struct wf_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    WF_BUG_ON(__builtin_mul_overflow(count, size, &bytes), "%zu x %zu", count, size);
    return wf_arena_take(arena, bytes);
}

char *wf_arena_printf(struct wf_arena *arena, const char *format, ...)
{
    va_list args, recompute;
    va_start(args, format);
    va_copy(recompute, args);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    WF_BUG_ON(length < 0, "format '%s'", format);
    char *text = wf_arena_take(arena, (size_t)length + 1);
    (void)vsnprintf(text, (size_t)length + 1, format, recompute);
    va_end(recompute);
    return text;
}

char *wf_arena_copy(struct wf_arena *arena, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    return memcpy(wf_arena_take(arena, bytes), text, bytes);
}

void wf_arena_release(struct wf_arena *arena)
{
    for (struct wf_arena_block *b = arena->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *arena = (struct wf_arena){ 0 };
}

void wf_grow(void **items, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return;
    size_t wanted = *room ? *room * 2 : 16;
    while (wanted <= count)
        wanted *= 2;
    size_t bytes;
    WF_BUG_ON(__builtin_mul_overflow(wanted, size, &bytes), "%zu x %zu", wanted, size);
    void *grown = realloc(*items, bytes);
    if (!grown)
        wf_no_memory(bytes);
    memset((char *)grown + *room * size, 0, (wanted - *room) * size);
    *items = grown;
    *room = wanted;
}
