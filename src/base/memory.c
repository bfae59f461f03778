#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/halt.h"

void wf_no_memory(size_t bytes)
{
    char refused[64] = "";
    if (bytes)
        (void)snprintf(refused, sizeof refused, ": %zu bytes more were refused", bytes);
    wf_halt("out of memory%s: end other programs, use a smaller train.batch or data.crop or more "
            "ranks, or raise the limit ('ulimit -v unlimited')",
            refused);
}

void *wf_take(size_t bytes)
{
    void *const taken = malloc(bytes ? bytes : 1);
    if (!taken)
        wf_no_memory(bytes);
    return taken;
}

void *wf_take_zeroed(size_t count, size_t size)
{
    void *const taken = calloc(count ? count : 1, size ? size : 1);
    size_t bytes;
    if (!taken)
        wf_no_memory(__builtin_mul_overflow(count, size, &bytes) ? (size_t)-1 : bytes);
    return taken;
}

char *wf_take_text(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    return memcpy(wf_take(bytes), text, bytes);
}
