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

enum { LANES = 16 };

/* words() of LANES counters from `index` on, side by side for vectors: out[word][lane]. */
static void words_side_by_side(struct wf_random r, uint64_t index, uint32_t out[4][LANES])
{
    uint32_t k0 = (uint32_t)r.seed, k1 = (uint32_t)(r.seed >> 32);
    for (uint32_t i = 0; i < LANES; i++) {
        out[0][i] = (uint32_t)(index + i);
        out[1][i] = (uint32_t)((index + i) >> 32);
        out[2][i] = (uint32_t)r.stream;
        out[3][i] = (uint32_t)(r.stream >> 32);
    }
    for (int round = 0; round < PHILOX4x32_DEFAULT_ROUNDS; round++) {
        for (int i = 0; i < LANES; i++) {
            const uint64_t a = (uint64_t)PHILOX_M4x32_0 * out[0][i];
            const uint64_t b = (uint64_t)PHILOX_M4x32_1 * out[2][i];
            out[0][i] = (uint32_t)(b >> 32) ^ out[1][i] ^ k0;
            out[2][i] = (uint32_t)(a >> 32) ^ out[3][i] ^ k1;
            out[1][i] = (uint32_t)b;
            out[3][i] = (uint32_t)a;
        }
        k0 += PHILOX_W32_0;
        k1 += PHILOX_W32_1;
    }
}

void wf_random_uniforms(struct wf_random r, uint64_t first, int64_t count, float *out)
{
    int64_t i = 0;
    for (; i < count && (first + (uint64_t)i) % 4 != 0; i++)
        out[i] = wf_random_uniform(r, first + (uint64_t)i);
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        uint32_t w[4][LANES];
        words_side_by_side(r, (first + (uint64_t)i) / 4, w);
        for (int k = 0; k < 4 * LANES; k++)
            out[i + k] = (float)(w[k % 4][k / 4] >> 8) * 0x1p-24f;
    }
    for (; i < count; i++)
        out[i] = wf_random_uniform(r, first + (uint64_t)i);
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
