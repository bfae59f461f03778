/*
 * Small images are kept in memory once they are decoded: a JPEG of 32 x 32 pixels costs more to
 * open than to process, and every epoch needs it. Kept as bytes, so only images with integers up to
 * 255; others are read each time.
 *
 * K1. A slot goes once from empty to an image or to REFUSED, by one atomic exchange. An image is
 *     never written again, so any thread may read it.
 */
#include <stdlib.h>

#include "data/dataset_inside.h"

#include "base/memory.h"

enum { KEEP_BYTES = 512 << 20 /* of all images */ };

struct wf_keep {
    int64_t bytes; /* taken so far */
    const uint8_t **slots;
};

static const uint8_t refused[1];

struct wf_keep *wf_keep_new(int64_t samples)
{
    struct wf_keep *const k = wf_take_zeroed(1, sizeof *k);
    k->slots = wf_take_zeroed((size_t)samples + 1, sizeof *k->slots);
    return k;
}

void wf_keep_free(struct wf_keep *k, int64_t samples)
{
    if (!k)
        return;
    for (int64_t i = 0; i < samples; i++)
        if (k->slots[i] != refused)
            free((void *)(uintptr_t)k->slots[i]);
    free(k->slots);
    free(k);
}

const uint8_t *wf_keep_find(const struct wf_keep *k, int64_t sample, bool *is_asked)
{
    const uint8_t *const found = __atomic_load_n(&k->slots[sample], __ATOMIC_ACQUIRE);
    *is_asked = found == NULL;
    return found == refused ? NULL : found;
}

static uint8_t *as_bytes(const float *pixels, int64_t count)
{
    uint8_t *const bytes = malloc((size_t)count);
    bool whole = bytes != NULL;
    for (int64_t i = 0; whole && i < count; i++) {
        whole = pixels[i] >= 0 && pixels[i] <= 255 && pixels[i] == (float)(uint8_t)pixels[i];
        bytes[i] = whole ? (uint8_t)pixels[i] : 0;
    }
    if (whole)
        return bytes;
    free(bytes);
    return NULL;
}

void wf_keep_offer(struct wf_keep *k, int64_t sample, const float *pixels, int64_t count)
{
    const int64_t before = __atomic_fetch_add(&k->bytes, count, __ATOMIC_RELAXED);
    uint8_t *const bytes = before + count <= KEEP_BYTES ? as_bytes(pixels, count) : NULL;
    const uint8_t *empty = NULL, *const put = bytes ? bytes : refused;
    const bool ours = __atomic_compare_exchange_n(&k->slots[sample], &empty, put, false,
                                                  __ATOMIC_RELEASE, __ATOMIC_RELAXED); /* K1 */
    if (!ours || !bytes)
        (void)__atomic_fetch_sub(&k->bytes, count, __ATOMIC_RELAXED);
    if (!ours)
        free(bytes);
}
