/*
 * What the CPU kernels share: walking over strided views in small pieces.
 *
 * A kernel says over which boxes it goes (its sides: inputs and outputs of equal N, D, H, W); the
 * walk merges axes that lie without gaps in all of them and hands out pieces of about WF_CPU_BLOCK
 * elements. A piece's elements are loaded as packed f32 (the memory itself when it is that already,
 * so f32 images are never copied), computed in plain loops that the compiler turns into vector
 * code, and stored. So each kernel is one loop over packed f32, and takes every dtype and stride.
 *
 *     struct wf_cpu_walk walk;
 *     wf_cpu_walk_call(&walk, call, 1, WF_CPU_FLAT);
 *     wf_cpu_walk_run(&walk, body, &context);
 *
 * Nothing here allocates. How pieces and chunks are cut depends on the boxes alone, never on the
 * number of threads, so sums have the same bits for any number of threads.
 */
#pragma once

#include "device/device.h"
#include "ops/attrs.h"
#include "ops/build.h"

struct wf_choices;

/* What a rank that opened the CPU keeps. */
struct wf_cpu {
    struct wf_context base;
    struct wf_choices *verdicts; /* on primitives of external libraries (device/choices.h) */
};

/* NULL without a context. */
static inline struct wf_choices *wf_cpu_verdicts(struct wf_context *context)
{
    return context ? ((struct wf_cpu *)context)->verdicts : NULL;
}

#ifdef _OPENMP
#define WF_SIMD _Pragma("omp simd")
#define WF_PARALLEL_FOR _Pragma("omp parallel for schedule(static)")
#else
#define WF_SIMD
#define WF_PARALLEL_FOR
#endif

enum {
    WF_CPU_BLOCK = 1024,     /* elements of a piece, about: buffers of a few stay in L1 */
    WF_CPU_BLOCK_MAX = 4096, /* elements of a piece, at most: most channels of a position */
    WF_CPU_SIDES = 6,
    WF_CPU_CHUNKS = 64, /* partial sums, at most */
    WF_CPU_SUMS = 3,    /* kinds of sums made in one walk, at most */
};

enum wf_cpu_unit {
    WF_CPU_FLAT,     /* elements are alike: a piece may begin and end anywhere */
    WF_CPU_POSITION, /* a piece is whole positions, all channels of each */
};

struct wf_cpu_side {
    char *data; /* at the first element */
    enum wf_dtype dtype;
    int64_t unit;  /* elements that are taken together: the channels of a position */
    int64_t inner; /* stride within a unit */
    int64_t base;  /* see wf_cpu_walk_add_index() */
    int64_t stride[WF_AXES];
};

struct wf_cpu_walk {
    struct wf_region work;
    int n_sides, n_axes;
    struct wf_cpu_side side[WF_CPU_SIDES];
    int64_t extent[WF_AXES]; /* merged axes, in units; the last one is cut into blocks */
    int64_t block, blocks, pieces;
};

struct wf_cpu_piece {
    const struct wf_cpu_walk *walk;
    int64_t units;
    int64_t at[WF_CPU_SIDES]; /* offset of the first element from side.data (+ base), in elements */
};

void wf_cpu_walk_init(struct wf_cpu_walk *walk, struct wf_region work);
/* The part of `view` that the walk goes over: extents of N, D, H, W as in the work. */
void wf_cpu_walk_add(struct wf_cpu_walk *walk, const struct wf_view *view, struct wf_region part);
/* A side without memory: piece->at is the index of the element in the whole tensor. */
void wf_cpu_walk_add_index(struct wf_cpu_walk *walk, struct wf_shape whole);
void wf_cpu_walk_plan(struct wf_cpu_walk *walk, enum wf_cpu_unit unit);
struct wf_cpu_piece wf_cpu_piece_at(const struct wf_cpu_walk *walk, int64_t index);

/* In parallel over pieces. `context` is shared: bodies only read it. */
typedef void wf_cpu_body(const struct wf_cpu_piece *piece, const void *context);
void wf_cpu_walk_run(const struct wf_cpu_walk *walk, wf_cpu_body *body, const void *context);

/* These sides, all over the work: wf_cpu_walk_over(&walk, part, WF_CPU_FLAT, WF_CPU_VIEWS(a, b)). */
void wf_cpu_walk_over(struct wf_cpu_walk *walk, struct wf_region work, enum wf_cpu_unit unit,
                      const struct wf_view *const views[]);
#define WF_CPU_VIEWS(...)                                                                          \
    (const struct wf_view *const[])                                                                \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
/* The sides in[0 .. n_in) and then out[0], all over the work. */
void wf_cpu_walk_call(struct wf_cpu_walk *walk, const struct wf_call *call, int n_in,
                      enum wf_cpu_unit unit);
/* Kernels that go position by position leave work of only some of the channels to the reference:
 * true where that was so, and it is done. */
bool wf_cpu_parts_channels(const struct wf_call *call);

/* How a piece's or a line's elements lie in memory. */
struct wf_cpu_place {
    char *start;
    enum wf_dtype dtype;
    int64_t units, channels;   /* so many positions, and elements of each */
    int64_t step, inner, size; /* bytes: from position to position, of channels, of an element */
    bool packed;
};
/* As packed f32, or class numbers: the memory itself, or `buffer` filled. */
const float *wf_cpu_place_load(struct wf_cpu_place p, float *buffer);
void wf_cpu_place_load_int(struct wf_cpu_place p, int32_t *buffer);
/* Where to put results: the memory itself or `buffer`; then store them from there. */
float *wf_cpu_place_dest(struct wf_cpu_place p, float *buffer);
void wf_cpu_place_store(struct wf_cpu_place p, const float *values);

/* The same for the piece's elements of one side. */
const float *wf_cpu_load(const struct wf_cpu_piece *piece, int side, float *buffer);
float *wf_cpu_dest(const struct wf_cpu_piece *piece, int side, float *buffer);
void wf_cpu_store(const struct wf_cpu_piece *piece, int side, const float *values);
void wf_cpu_load_int(const struct wf_cpu_piece *piece, int side, int32_t *buffer);
/* Bytes from one side to another of the same dtype; nothing when it is the same memory. */
void wf_cpu_move(const struct wf_cpu_piece *piece, int from, int to);
void wf_cpu_zero(const struct wf_cpu_piece *piece, int side);
static inline int64_t wf_cpu_count(const struct wf_cpu_piece *piece, int side)
{
    return piece->units * piece->walk->side[side].unit;
}

/*
 * Sums per channel. A body adds its piece into lanes: lane i belongs to channel i % channels. Lanes
 * are f64: then statistics come out the same to the last bit of an f32 however the image is cut, and
 * with them the whole forward pass; memory, not the adding, sets the pace.
 */
struct wf_cpu_lanes {
    double sum[WF_CPU_SUMS][WF_CPU_BLOCK_MAX];
    /* For sums that are few numbers per piece; sum number k, not per channel. */
    double total[WF_CPU_SUMS];
};
typedef void wf_cpu_sum_body(const struct wf_cpu_piece *piece, const void *context,
                             struct wf_cpu_lanes *lanes);
struct wf_cpu_sum {
    wf_cpu_sum_body *body;
    const void *context;
    int sums;         /* kinds */
    int64_t channels; /* of each kind; 0: the body fills lanes->total */
};
/* Bytes of scratch for wf_cpu_walk_sum(). */
size_t wf_cpu_sum_scratch(int sums, int64_t channels);
/* The sums, kind by kind, at the begin of the scratch. An empty walk gives zeros. */
const double *wf_cpu_walk_sum(const struct wf_cpu_walk *walk, const struct wf_cpu_sum *sum,
                              void *scratch);

/*
 * Lines, for kernels that look at neighbours: a stretch of positions along W with all channels.
 * Index i of 0 .. count-1 goes over the work in order.
 */
struct wf_cpu_lines {
    struct wf_region work;
    int64_t block, blocks, count;
};
struct wf_cpu_line {
    int64_t n, d, h, w0, w1;
};
/* Lines of at most `block` positions. */
struct wf_cpu_lines wf_cpu_lines(struct wf_region work, int64_t block);
struct wf_cpu_line wf_cpu_line_at(const struct wf_cpu_lines *lines, int64_t index);
struct wf_cpu_place wf_cpu_line_place(const struct wf_view *view, struct wf_cpu_line line);
/* The view's channels [lo, hi). */
struct wf_view wf_cpu_channels(const struct wf_view *view, int64_t lo, int64_t hi);
void wf_cpu_line_store_int(const struct wf_view *view, struct wf_cpu_line line,
                           const int32_t *values);

/* In parallel: copy equal shapes with equal dtypes (positions may differ), fill with zeros. */
void wf_cpu_copy(const struct wf_view *dst, const struct wf_view *src);
void wf_cpu_clear(const struct wf_view *dst);

/* Packed conversions. */
void wf_cpu_to_f32(enum wf_dtype dtype, const void *from, float *to, int64_t n);
void wf_cpu_from_f32(enum wf_dtype dtype, const float *from, void *to, int64_t n);

/* Repeat values[0, channels) until `length` is filled. */
void wf_cpu_tile(float *values, int64_t channels, int64_t length);

/* For accepts(): dtypes that the walk loads as f32 without loss. */
static inline bool wf_cpu_is_float(const struct wf_value *v)
{
    return !v || v->dtype == WF_F32 || v->dtype == WF_BF16 || v->dtype == WF_F16;
}
/* ... of in[0] and out[0], whatever the rest. */
bool wf_cpu_accepts_float(const struct wf_node *node);
/* ... of in[0] (sums are f64), with channels that fit a piece. */
bool wf_cpu_accepts_channels(const struct wf_node *node);

/* yes ? a : b without a branch. As a condition the compiler would move floating-point operations
 * into its arms, and then keep it out of vector code, because they could trap. */
static inline float wf_cpu_select(bool yes, float a, float b)
{
    uint32_t p, q;
    memcpy(&p, &a, sizeof p);
    memcpy(&q, &b, sizeof q);
    const uint32_t mask = -(uint32_t)yes, bits = (p & mask) | (q & ~mask);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp() to about 1e-7, in a form that becomes vector code: 0 below -87.3, infinity above 88.3, and
 * NaN stays NaN. */
static inline float wf_cpu_exp(float x)
{
    const float low = -87.3f, high = 88.3f;
    const float above = wf_cpu_select(x < low, low, x);
    const float t = wf_cpu_select(above > high, high, above);
    /* Adding 1.5 * 2^23 rounds to the nearest integer, which then stands in the low bits. */
    const float magic = 12582912.0f;
    const float shifted = t * 1.44269504088896341f + magic;
    const float n = shifted - magic;
    const float r = (t - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u - 0x4b400000u) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    const float y = wf_cpu_select(x > high, __builtin_inff(), p * power);
    return wf_cpu_select(x < low, 0.0f, y);
}
