#include "base/random.h"

#include <Random123/philox.h>
#include <math.h>

uint64_t wf_random_stream(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* The key carries the seed; the counter carries (index, stream), so no two streams meet. */
static philox4x32_ctr_t words(struct wf_random r, uint64_t index)
{
    const philox4x32_ctr_t counter = { { (uint32_t)index, (uint32_t)(index >> 32),
                                         (uint32_t)r.stream, (uint32_t)(r.stream >> 32) } };
    const philox4x32_key_t key = { { (uint32_t)r.seed, (uint32_t)(r.seed >> 32) } };
    return philox4x32(counter, key);
}

uint32_t wf_random_bits(struct wf_random r, uint64_t index)
{
    return words(r, index >> 2).v[index & 3];
}

float wf_random_uniform(struct wf_random r, uint64_t index)
{
    return (float)(wf_random_bits(r, index) >> 8) * 0x1p-24f;
}

void wf_random_uniforms(struct wf_random r, uint64_t first, int64_t count, float *out)
{
    for (int64_t i = 0; i < count;) {
        const uint64_t index = first + (uint64_t)i;
        const philox4x32_ctr_t w = words(r, index >> 2);
        for (uint64_t at = index & 3; at < 4 && i < count; at++)
            out[i++] = (float)(w.v[at] >> 8) * 0x1p-24f;
    }
}

float wf_random_normal(struct wf_random r, uint64_t index)
{
    const philox4x32_ctr_t w = words(r, index >> 1);
    const int at = (int)(index & 1) * 2;
    const double u = ((double)w.v[at] + 0.5) * 0x1p-32, v = (double)w.v[at + 1] * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

uint32_t wf_random_below(struct wf_random r, uint64_t index, uint32_t bound)
{
    return (uint32_t)(((uint64_t)wf_random_bits(r, index) * bound) >> 32);
}
