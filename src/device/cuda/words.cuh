/*
 * Products of words of 32 bits by tensor cores, a warp at a time, from panels in shared memory (panels.cuh; a panel has
 * 32 columns of words). Tensor cores read tf32: eleven bits of a factor. `Short` products round each factor to that.
 * The others take each factor as a sum of two such numbers, and leave out only the product of the two small ones: what
 * is left out is below f32's last bit. Tensor cores round sums down, so those are begun anew with every stage and added
 * by ordinary additions.
 *
 * A block has eight warps, Up of them on top of each other. Each makes 32 rows of the result, in two blocks of 16, and a
 * number of columns, in blocks of 8; of these blocks a thread has the four sums put_words() shows.
 */
#pragma once

#include "device/cuda/panels.cuh"

namespace wf
{

enum {
    WORDS_WARPS = 8,
    WORDS_ROWS = 32, /* of a warp */
    WORDS_DEEP = 8,  /* summed over by one product */
    STAGE_DEEP = PANEL_ROW / 4,
};

/* Columns of a warp. */
template <int Up, int N> __host__ __device__ constexpr int words_columns()
{
    return N / (WORDS_WARPS / Up);
}

#ifdef WF_CUDA_EMULATED

inline bool gpu_has_words(void)
{
    return true;
}

/* As on a GPU: a thread's words are those of its lane, and tensor cores do not see the last 13 bits. */
inline void multiply_words(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    static uint32_t of_warps[WORDS_WARPS][32][6];
    uint32_t(*const words)[6] = of_warps[threadIdx.x / 32];
    const int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 6; i++)
        words[lane][i] = (i < 4 ? a[i] : b[i - 4]) & 0xffffe000u;
    __syncwarp();
    float sum[4];
    for (int i = 0; i < 4; i++) {
        double exact = (double)d[i];
        for (int k = 0; k < WORDS_DEEP; k++) {
            const uint32_t *const row = words[lane / 4 * 4 + k % 4];
            const uint32_t *const column = words[(lane % 4 * 2 + i % 2) * 4 + k % 4];
            exact += (double)__uint_as_float(row[k / 4 * 2 + i / 2]) *
                     (double)__uint_as_float(column[4 + k / 4]);
        }
        sum[i] = (float)exact;
    }
    __syncwarp();
    memcpy(d, sum, sizeof sum);
}

inline void words_along(uint32_t (&v)[4], char *panel, int rows, int pieces, int row, int p)
{
    const int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 4; i++)
        v[i] = ((const uint32_t *)piece(panel, row + (i & rows ? 8 : 0) + lane / 4,
                                        p + (i & pieces ? 1 : 0)))[lane % 4];
}

#else

/* On a GPU of another kind a kernel is not launched. */
inline bool gpu_has_words(void)
{
    return wf_cuda_about_major() >= 8;
}

/* d[16 x 8] += a[16 x 8] b[8 x 8] */
__device__ inline void multiply_words(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four blocks of eight rows and a piece: v[i] is word lane % 4 of row lane / 4 of the i-th, which lies eight rows
 * further where i has the bit `rows`, and a piece further where it has the bit `pieces`. */
__device__ inline void words_along(uint32_t (&v)[4], char *panel, int rows, int pieces, int row, int p)
{
    const int lane = (int)threadIdx.x % 32, i = lane / 8;
    const uint32_t at =
        shared_at(piece(panel, row + (i & rows ? 8 : 0) + lane % 8, p + (i & pieces ? 1 : 0)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
}

#endif

/* Word `column` of row `row` of a panel whose rows are summed over. */
__device__ inline uint32_t word_across(const char *panel, int row, int column)
{
    return *(const uint32_t *)(panel + place_across<float>(row, column / 4) + column % 4 * 4);
}

/* Rounded to tf32, but for the bits that tensor cores do not see. */
__device__ inline uint32_t word_rounded(uint32_t x)
{
    return x + 0x1000u;
}

template <int Count> struct Halves {
    uint32_t high[Count], low[Count];

    /* Numbers within 2^-12 of the largest f32 become infinite. */
    __device__ void split(const uint32_t (&x)[Count])
    {
#pragma unroll
        for (int i = 0; i < Count; i++) {
            high[i] = word_rounded(x[i]) & 0xffffe000u;
            low[i] = __float_as_uint(__uint_as_float(x[i]) - __uint_as_float(high[i]));
        }
    }
    __device__ void shorten(const uint32_t (&x)[Count])
    {
#pragma unroll
        for (int i = 0; i < Count; i++)
            high[i] = word_rounded(x[i]);
    }
};

template <bool Short, int Count>
__device__ inline void take_words(Halves<Count> &h, const uint32_t (&x)[Count])
{
    if constexpr (Short)
        h.shorten(x);
    else
        h.split(x);
}

template <bool Short>
__device__ inline void multiply_halves(float (&d)[4], const Halves<4> &a, const Halves<2> &b)
{
    if constexpr (!Short) {
        multiply_words(d, a.low, b.high);
        multiply_words(d, a.high, b.low);
    }
    multiply_words(d, a.high, b.high);
}

/* Where a warp's part of the tile begins. */
template <int Up, int N> struct WarpPart {
    int row, column;
    __device__ WarpPart()
    {
        const int warp = same_in_warp((int)threadIdx.x / 32);
        row = warp % Up * WORDS_ROWS;
        column = warp / Up * words_columns<Up, N>();
    }
};

/*
 * sum += a b over a stage's 32 words. Rows of the result are rows of `a`, and its columns rows of `b`; with AK, with BK,
 * they are columns, of several panels one behind the other, and rows are summed over.
 */
template <bool Short, bool AK, bool BK, int Up, int N, int C>
__device__ inline void stage_of_words(float (&sum)[2][C][4], const WarpPart<Up, N> &part, char *a, char *b)
{
    enum { PANEL = STAGE_DEEP * PANEL_ROW };
    static_assert(C == words_columns<Up, N>() / 8 && (BK || C % 2 == 0), "blocks of columns");
    const int lane = (int)threadIdx.x % 32;
    float now[2][C][4];
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int j = 0; j < C; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                now[m][j][i] = Short ? sum[m][j][i] : 0.0f;
#pragma unroll(Short ? 2 : 1) /* or the next words would take the registers of sums */
    for (int k = 0; k < STAGE_DEEP / WORDS_DEEP; k++) {
        Halves<4> of_a[2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            uint32_t v[4];
            if constexpr (AK) {
                const int r = k * WORDS_DEEP + lane % 4, c = part.row + m * 16 + lane / 4;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    v[i] = word_across(a + c / STAGE_DEEP * PANEL, r + i / 2 * 4,
                                       c % STAGE_DEEP + i % 2 * 8);
            } else {
                words_along(v, a, 1, 2, part.row + m * 16, k * 2);
            }
            take_words<Short>(of_a[m], v);
        }
#pragma unroll
        for (int j = 0; j < C; j += 2) {
            uint32_t v[4];
            if constexpr (BK) {
                const int r = k * WORDS_DEEP + lane % 4, c = part.column + j * 8 + lane / 4;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (j + i / 2 < C)
                        v[i] = word_across(b + (c + i / 2 * 8) / STAGE_DEEP * PANEL, r + i % 2 * 4,
                                           (c + i / 2 * 8) % STAGE_DEEP);
            } else {
                words_along(v, b, 2, 1, part.column + j * 8, k * 2);
            }
#pragma unroll
            for (int i = 0; i < 2 && j + i < C; i++) {
                Halves<2> of_b;
                const uint32_t two[2] = { v[2 * i], v[2 * i + 1] };
                take_words<Short>(of_b, two);
#pragma unroll
                for (int m = 0; m < 2; m++)
                    multiply_halves<Short>(now[m][j + i], of_a[m], of_b);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int j = 0; j < C; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[m][j][i] = Short ? now[m][j][i] : sum[m][j][i] + now[m][j][i];
}

/* put(row, column, two neighbouring sums), both within the tile. */
template <int Up, int N, int C, class F>
__device__ inline void put_words(const float (&sum)[2][C][4], const WarpPart<Up, N> &part, F put)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int j = 0; j < C; j++)
                put(part.row + m * 16 + half * 8 + lane / 4, part.column + j * 8 + lane % 4 * 2,
                    sum[m][j][half * 2], sum[m][j][half * 2 + 1]);
}

} // namespace wf
