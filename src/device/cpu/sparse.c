#include "device/cpu/sparse.h"

#include "device/cpu/lanes.h"

#ifdef __AVX512F__
void wf_turn(__m512i r[WF_SPARSE_RUN])
{
    enum { SIDE = WF_SPARSE_RUN };
    __m512i t[SIDE];
    for (int i = 0; i < SIDE; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < SIDE; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
    for (int i = 0; i < SIDE; i += 8)
        for (int j = 0; j < 4; j++) {
            t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        r[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
        r[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
    }
}

static void turn_part(const int32_t *from, int64_t count, int64_t rows, int64_t columns,
                      int32_t *to, int64_t stride)
{
    __m512i r[WF_SPARSE_RUN];
    for (int i = 0; i < WF_SPARSE_RUN; i++)
        r[i] = i < rows ? _mm512_maskz_loadu_epi32(wf_lane_mask_of(columns), from + i * count)
                        : _mm512_setzero_si512();
    wf_turn(r);
    for (int c = 0; c < wf_min(columns, WF_SPARSE_RUN); c++)
        _mm512_storeu_si512(to + c * stride, r[c]);
}
#else
static void turn_part(const int32_t *from, int64_t count, int64_t rows, int64_t columns,
                      int32_t *to, int64_t stride)
{
    for (int64_t c = 0; c < wf_min(columns, WF_SPARSE_RUN); c++)
        for (int64_t i = 0; i < wf_min(rows, WF_SPARSE_RUN); i++)
            to[c * stride + i] = from[i * count + c];
}
#endif

void wf_sparse_columns(const struct wf_sparse_product *p, int64_t u0, int64_t n, int64_t k0,
                       int64_t columns, int32_t *to, int64_t stride)
{
    for (int64_t i = 0; !p->map && i < n; i++)
        to[i] = (int32_t)(u0 + i);
    for (int64_t i = 0; p->map && i < n; i += WF_SPARSE_RUN)
        for (int64_t k = 0; k < columns; k += WF_SPARSE_RUN)
            turn_part(p->map + (u0 + i) * p->count + k0 + k, p->count, n - i, columns - k,
                      to + k * stride + i, stride);
}

int wf_sparse_pairs(const int32_t *column, int64_t n, int64_t u0, int64_t *at, int room,
                    int32_t in[], int32_t out[])
{
    int made = 0;
    int64_t i = *at;
    for (; i < n && made + WF_SPARSE_RUN <= room; i += WF_SPARSE_RUN) {
#ifdef __AVX512F__
        const __m512i ramp = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        const __mmask16 inside = wf_lane_mask_of(n - i);
        const __m512i rows = _mm512_maskz_loadu_epi32(inside, column + i);
        const __mmask16 there = _mm512_mask_cmpge_epi32_mask(inside, rows, _mm512_setzero_si512());
        const __m512i own = _mm512_add_epi32(ramp, _mm512_set1_epi32((int32_t)(u0 + i)));
        _mm512_storeu_si512(in + made, _mm512_maskz_compress_epi32(there, rows));
        _mm512_storeu_si512(out + made, _mm512_maskz_compress_epi32(there, own));
        made += __builtin_popcount(there);
#else
        for (int64_t j = i; j < wf_min(n, i + WF_SPARSE_RUN); j++) {
            in[made] = column[j];
            out[made] = (int32_t)(u0 + j);
            made += column[j] >= 0;
        }
#endif
    }
    *at = wf_min(i, n);
    return made;
}

void wf_sparse_span(const struct wf_sparse_product *p, int64_t u0, int64_t n, int32_t *to)
{
    enum { PART = 512 };
    WF_PARALLEL_FOR
    for (int64_t i = 0; i < n; i += PART)
        wf_sparse_columns(p, u0 + i, wf_min(PART, n - i), 0, p->count, to + i, WF_SPARSE_SPAN);
}
