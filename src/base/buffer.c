#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"

void wf_buffer_add(struct wf_buffer *b, const void *data, size_t bytes)
{
    WF_GROW(b->data, b->room, b->size + bytes);
    if (bytes)
        memcpy(b->data + b->size, data, bytes);
    b->size += bytes;
    b->data[b->size] = '\0';
}

void wf_buffer_reserve(struct wf_buffer *b, size_t bytes)
{
    WF_GROW(b->data, b->room, b->size + bytes);
}

void wf_buffer_text(struct wf_buffer *b, const char *text)
{
    wf_buffer_add(b, text, strlen(text));
}

void wf_buffer_vprintf(struct wf_buffer *b, const char *format, va_list args)
{
    va_list recompute;
    va_copy(recompute, args);
    const int length = vsnprintf(NULL, 0, format, recompute);
    va_end(recompute);
    WF_BUG_ON(length < 0, "format '%s'", format);
    WF_GROW(b->data, b->room, b->size + (size_t)length);
    (void)vsnprintf(b->data + b->size, (size_t)length + 1, format, args);
    b->size += (size_t)length;
}

void wf_buffer_printf(struct wf_buffer *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    wf_buffer_vprintf(b, format, args);
    va_end(args);
}

void wf_buffer_base64(struct wf_buffer *b, const void *data, size_t bytes)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = data;
    WF_GROW(b->data, b->room, b->size + (bytes + 2) / 3 * 4);
    char *to = b->data + b->size;
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t left = bytes - i;
        const unsigned three = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0u) |
                               (left > 2 ? in[i + 2] : 0u);
        *to++ = alphabet[three >> 18];
        *to++ = alphabet[three >> 12 & 63];
        *to++ = left > 1 ? alphabet[three >> 6 & 63] : '=';
        *to++ = left > 2 ? alphabet[three & 63] : '=';
    }
    *to = '\0';
    b->size = (size_t)(to - b->data);
}

void wf_buffer_release(struct wf_buffer *b)
{
    free(b->data);
    *b = (struct wf_buffer){ 0 };
}
