/*
 * Random numbers that are a function, not a sequence.
 *
 * Philox 4x32-10 keyed by (seed, stream) and counted by a global element index: weight init,
 * dropout and augmentation give the same numbers on any mesh and any thread count, because a
 * number is found by its index in the stream, not by its predecessor.
 *
 *     struct wf_random r = wf_random(seed, wf_random_stream("enc0.conv0.weight"));
 *     float u = wf_random_uniform(r, index);
 */
#pragma once

#include <stdint.h>

struct wf_random {
    uint64_t seed, stream;
};

static inline struct wf_random wf_random(uint64_t seed, uint64_t stream)
{
    return (struct wf_random){ seed, stream };
}

/* A stream's number from its name (FNV-1a), so that adding a layer does not move the others. */
uint64_t wf_random_stream(const char *name);

uint32_t wf_random_bits(struct wf_random r, uint64_t index);
/* In [0, 1), 24 bits. */
float wf_random_uniform(struct wf_random r, uint64_t index);
/* The same for `count` indices from `first` on, side by side. */
void wf_random_uniforms(struct wf_random r, uint64_t first, int64_t count, float *out);
/* Standard normal, by Box-Muller on two words of the same counter. */
float wf_random_normal(struct wf_random r, uint64_t index);
/* In [0, bound), bound > 0. */
uint32_t wf_random_below(struct wf_random r, uint64_t index, uint32_t bound);
