/*
 * A byte buffer that grows at its end, to build a text or a file.
 *
 *     struct wf_buffer b = { 0 };
 *     wf_buffer_printf(&b, "%d ranks", 4);
 *     ... b.data, b.size ...
 *     wf_buffer_release(&b);
 *
 * `data` always ends with a zero that `size` does not count, once something was added. Like an
 * arena, a buffer ends the process when there is no memory.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

struct wf_buffer {
    char *data;
    size_t size, room;
};

void wf_buffer_add(struct wf_buffer *b, const void *data, size_t bytes);
/* Room for so many more bytes, which the caller writes behind data + size. */
void wf_buffer_reserve(struct wf_buffer *b, size_t bytes);
void wf_buffer_text(struct wf_buffer *b, const char *text);
void wf_buffer_printf(struct wf_buffer *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void wf_buffer_vprintf(struct wf_buffer *b, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
/* The RFC 4648 alphabet with padding. */
void wf_buffer_base64(struct wf_buffer *b, const void *data, size_t bytes);
void wf_buffer_release(struct wf_buffer *b);
