/*
 * Whether a primitive of oneDNN computes the right numbers.
 *
 * Every primitive is run once on operands of our own when it is first made, and held against sums that
 * are made here. dnnl_verdict.c keeps the result. Invariants:
 *
 * C1. Exact. Operands are small integers, few enough (in 16 bits: sparse enough) for every result to
 *     be an integer that its type holds, in whatever order a kernel adds. So the comparison has no
 *     tolerance: no false alarm, and no error is too small to be seen.
 * C2. All channels. Results are compared as sums over the written channels with random factors, all of
 *     them different: that costs one channel's work at each position and covers all of them. Where MOST_PRODUCTS do not
 *     cover all positions, some are drawn, every second one at a border; of a weight gradient all
 *     elements are compared, and only those positions contribute. In any case all results must be
 *     there and be integers.
 * C3. The same primitive. It is the step's own, at its own shape, while that is small; else one of
 *     fewer samples and rows, or columns where they alone are too many, if oneDNN runs that by the
 *     same implementation. Where it does not, the real one is run if its operands fit MOST_BYTES,
 *     and believed if not, which is not kept.
 * C4. Memory around what a primitive writes is looked after too.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/cpu/cpu.h"
#include "device/cpu/dnnl.h"

enum {
    GUARD = 4096,
    GUARD_BYTE = 0xa5,
    EXACT_16 = 256,             /* integers up to this are exact in bf16 */
    EXACT_32 = 1 << 24,         /* and in f32 */
    TERMS_16 = 400,             /* of a sum in 16 bits: 256 is 8 deviations then */
    FACTORS = 1 << 14,          /* of channels: their range */
    SMALL_ELEMENTS = 1'000'000, /* of all operands: beyond, fewer rows do */
    MOST_PRODUCTS = 2'000'000,  /* of our own sums */
    KEPT_ROWS = 16,             /* fewer rows leave the same rest of these */
    FEW_ROWS = 4,               /* in place of them where channels are many; not along W */
    MUCH = 10,                  /* times as much work as wanted */
    ALONE = 1 << 15,            /* elements: below, one thread is as fast */
};
static const double small_products = 1e8;           /* of the primitive: some milliseconds */
static const double slow_products = 1e6;            /* of one that is a reference itself */
static const size_t most_bytes = (size_t)128 << 20; /* 3x3 from 1024 to 1024 channels: 90 */

/* --- random numbers --- */

static const uint64_t draw_step = 0x9e3779b97f4a7c15u;

static uint64_t draw_at(uint64_t z) /* splitmix64 */
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t draw(uint64_t *state)
{
    return draw_at(*state += draw_step);
}

static int64_t draw_below(uint64_t *state, int64_t n)
{
    return (int64_t)(draw(state) % (uint64_t)n);
}

/* 1 .. most, a power of two, with a sign. */
static int8_t draw_value(uint64_t bits, int most)
{
    const int v = 1 + (int)((bits >> 1) & (unsigned)(most - 1));
    return (int8_t)(bits & 1 ? v : -v);
}

/* --- the sample --- */

/* A tensor as integers and, behind a guard on both sides, as the primitive gets it. */
struct operand {
    int64_t count;
    enum wf_dtype dtype;
    int8_t *values;
    char *data;
};

struct sample {
    const struct wf_dnnl_problem *p;
    struct wf_dnnl_conv *conv;
    struct operand src, dst, weights, bias;
    char *blocked, *scratch;
    double *factors;  /* per written channel; of a weight gradient per channel of dst */
    double *combined; /* per tap and read channel: weights times factors */
    uint64_t random;
    int64_t taps, in, out; /* channels in all */
    char *memory;
    size_t bytes;
};

static int64_t product3(const int64_t v[3])
{
    return v[0] * v[1] * v[2];
}

static int64_t elements_of(const struct wf_dnnl_problem *p)
{
    return p->batch * (product3(p->src) * p->in + product3(p->dst) * p->out) +
           product3(p->kernel) * p->in * (p->out / p->groups);
}

static double products_of(const struct wf_dnnl_problem *p)
{
    return (double)p->batch * (double)product3(p->dst) * (double)product3(p->kernel) *
           (double)p->in * (double)p->out / (double)p->groups;
}

/* So many of dst along an axis, with the src that belongs to them. */
static void set_extent(struct wf_dnnl_problem *p, int axis, int64_t dst)
{
    const int64_t span = p->dilation[axis] * (p->kernel[axis] - 1) + 1;
    p->dst[axis] = dst;
    p->src[axis] = (dst - 1) * p->stride[axis] + span - p->pad_lo[axis] - p->pad_hi[axis];
}

/* The fewest of dst along an axis that still have both borders and something between them. */
static int64_t least_extent(const struct wf_dnnl_problem *p, int axis, int kept)
{
    const int64_t span = p->dilation[axis] * (p->kernel[axis] - 1) + 1;
    const int64_t padded = wf_max(p->pad_lo[axis], 0) + wf_max(p->pad_hi[axis], 0);
    return wf_ceil_div(2 * (span + padded), p->stride[axis]) + kept;
}

/* C3. `excess`: how much less work it has to be. */
static void shorten(struct wf_dnnl_problem *p, int axis, double excess, int kept)
{
    const int64_t all = p->dst[axis], least = least_extent(p, axis, kept);
    int64_t less = wf_max(least, (int64_t)((double)all / excess));
    less += (all - less) % kept;
    if (less < all)
        set_extent(p, axis, less);
}

static double excess_of(const struct wf_dnnl_problem *p, double most)
{
    const double work = products_of(p) / most;
    const double room = (double)elements_of(p) / SMALL_ELEMENTS;
    return work > room ? work : room;
}

/* False where nothing can be left out. */
static bool make_small(struct wf_dnnl_problem *p, double most)
{
    const struct wf_dnnl_problem before = *p;
    if (excess_of(p, most) > 1 && p->batch > 2)
        p->batch = wf_max(2, (int64_t)((double)p->batch / excess_of(p, most)));
    for (int axis = 0; axis < 3; axis++)
        if (excess_of(p, most) > 1)
            shorten(p, axis, excess_of(p, most), KEPT_ROWS);
    for (int axis = 0; axis < 2; axis++)
        if (excess_of(p, most) > MUCH)
            shorten(p, axis, excess_of(p, most), FEW_ROWS);
    if (excess_of(p, most) > 1)
        p->batch = 1;
    return p->batch != before.batch || memcmp(p->dst, before.dst, sizeof p->dst) != 0;
}

/* --- memory --- */

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t guarded(size_t bytes)
{
    return lines(bytes) + 2 * GUARD;
}

static size_t operand_bytes(const struct operand *o)
{
    return (size_t)o->count * wf_dtype_size(o->dtype);
}

static size_t room_for(const struct operand *o)
{
    return guarded(operand_bytes(o)) + lines((size_t)o->count);
}

static void describe(struct sample *s, const struct wf_dnnl_problem *p, struct wf_dnnl_conv *conv)
{
    const bool gradient = p->pass == WF_CONV_WEIGHTS;
    *s = (struct sample){ .p = p, .conv = conv, .taps = product3(p->kernel), .in = p->in };
    s->out = p->out;
    s->src = (struct operand){ p->batch * product3(p->src) * p->in, p->dtype, NULL, NULL };
    s->dst = (struct operand){ p->batch * product3(p->dst) * p->out, p->dtype, NULL, NULL };
    s->weights = (struct operand){ s->taps * (p->in / p->groups) * p->out,
                                   gradient ? WF_F32 : p->dtype, NULL, NULL };
    s->bias = (struct operand){ p->bias ? p->out : 0, WF_F32, NULL, NULL };
    s->bytes = room_for(&s->src) + room_for(&s->dst) + room_for(&s->weights) + room_for(&s->bias) +
               guarded(wf_dnnl_conv_blocked(conv)) + guarded(wf_dnnl_conv_scratch(conv)) +
               lines((size_t)(p->in + p->out) * sizeof(double)) +
               lines((size_t)(s->taps * (p->in + p->out)) * sizeof(double));
}

static char *take(char **at, size_t bytes)
{
    char *const data = *at + GUARD;
    memset(*at, GUARD_BYTE, guarded(bytes));
    *at += guarded(bytes);
    return data;
}

/* Only the guards are written: an operand's own bytes all follow, by several threads. */
static void place(struct operand *o, char **at)
{
    const size_t bytes = operand_bytes(o);
    o->data = *at + GUARD;
    memset(*at, GUARD_BYTE, GUARD);
    memset(o->data + bytes, GUARD_BYTE, guarded(bytes) - GUARD - bytes);
    *at += guarded(bytes);
    o->values = (int8_t *)*at;
    *at += lines((size_t)o->count);
}

static bool allocate(struct sample *s)
{
    s->memory = NULL;
    if (s->bytes <= most_bytes) /* not by malloc(), which would keep pieces of this size for ever */
        s->memory =
            mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->memory = s->memory == MAP_FAILED ? NULL : s->memory;
    if (s->memory)
        (void)madvise(s->memory, s->bytes, MADV_HUGEPAGE); /* a third of the time is page faults */
    if (!s->memory)
        return false;
    char *at = s->memory;
    struct operand *const operands[] = { &s->src, &s->dst, &s->weights, &s->bias };
    for (int i = 0; i < 4; i++)
        place(operands[i], &at);
    s->blocked = take(&at, wf_dnnl_conv_blocked(s->conv));
    s->scratch = take(&at, wf_dnnl_conv_scratch(s->conv));
    s->factors = (double *)(void *)at;
    s->combined = s->factors + lines((size_t)(s->in + s->out) * sizeof(double)) / sizeof(double);
    return true;
}

/* C4 */
static bool is_intact(const char *data, size_t bytes)
{
    bool ok = true;
    for (int i = 0; i < GUARD; i++)
        ok = ok && (unsigned char)data[-1 - i] == GUARD_BYTE &&
             (unsigned char)data[bytes + (size_t)i] == GUARD_BYTE;
    return ok;
}

static bool guards_are_intact(const struct sample *s)
{
    return is_intact(s->src.data, operand_bytes(&s->src)) &&
           is_intact(s->dst.data, operand_bytes(&s->dst)) &&
           is_intact(s->weights.data, operand_bytes(&s->weights)) &&
           is_intact(s->blocked, wf_dnnl_conv_blocked(s->conv)) &&
           is_intact(s->scratch, wf_dnnl_conv_scratch(s->conv));
}

/* --- operands --- */

static void put_values(const struct operand *o)
{
    const int8_t *const values = o->values;
    float *const f32 = (float *)(void *)o->data;
    uint16_t *const bf16 = (uint16_t *)(void *)o->data;
    if (o->dtype == WF_F32) {
#pragma omp parallel for simd schedule(static) if (o->count > ALONE)
        for (int64_t i = 0; i < o->count; i++)
            f32[i] = values[i];
        return;
    }
#pragma omp parallel for schedule(static) if (o->count > ALONE)
    for (int64_t i = 0; i < o->count; i++)
        bf16[i] = wf_f32_to_bf16(values[i]);
}

/* Values up to `most`, this part of them not zero. */
static void fill(struct sample *s, struct operand *o, int most, double density)
{
    const uint64_t kept = (uint64_t)(density * 65536);
    const uint64_t first = s->random + draw_step;
    int8_t *const values = o->values;
#pragma omp parallel for simd schedule(static) if (o->count > ALONE)
    for (int64_t i = 0; i < o->count; i++) {
        const uint64_t bits = draw_at(first + (uint64_t)i * draw_step);
        values[i] = (bits & 0xffff) < kept ? draw_value(bits >> 16, most) : 0;
    }
    s->random += (uint64_t)o->count * draw_step;
    put_values(o);
}

/* NaN in both types. */
static void fill_result(const struct operand *o)
{
    enum { PART = 1 << 20 }; /* bytes; parts are first touched by the threads that fill them */
    const int64_t bytes = (int64_t)operand_bytes(o);
#pragma omp parallel for schedule(static) if (bytes > PART)
    for (int64_t at = 0; at < bytes; at += PART)
        memset(o->data + at, 0xff, (size_t)wf_min(PART, bytes - at));
}

/* C1 */
static double density_of(const struct wf_dnnl_problem *p, int64_t terms)
{
    const double most = p->dtype == WF_F32 ? EXACT_32 / 4 : TERMS_16;
    return (double)terms > most ? most / (double)terms : 1;
}

/* One from each of as many parts of the range. */
void wf_dnnl_factors(uint64_t *random, double *factors, int64_t count)
{
    const int64_t width = wf_max(FACTORS / count, 1);
    for (int64_t i = 0; i < count; i++) {
        const double size = (double)(1 + i * width + draw_below(random, width));
        factors[i] = draw(random) & 1 ? size : -size;
    }
}

/* C2: per tap and read channel, the weights of the group's written channels times their factors. */
static void combine(struct sample *s)
{
    const bool forward = s->p->pass == WF_CONV_FORWARD;
    const int64_t groups = s->p->groups, in = s->in / groups, out = s->out / groups;
    const int64_t read = forward ? s->in : s->out;
    memset(s->combined, 0, (size_t)(s->taps * read) * sizeof(double));
    const int64_t all = s->out, taps = s->taps;
#pragma omp parallel for schedule(static) if (s->weights.count > ALONE)
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t o = 0; o < all; o++) {
            const int8_t *const w = s->weights.values + (o * taps + tap) * in; /* (out, taps, in) */
            double *const to = s->combined + tap * read;
            const int64_t first = o / out * in;
            for (int64_t i = 0; forward && i < in; i++)
                to[first + i] += s->factors[o] * w[i];
            for (int64_t i = 0; !forward && i < in; i++)
                to[o] += s->factors[first + i] * w[i];
        }
}

/* --- comparing images --- */

/* Where a tap of the window at `at` reads; -1 outside. The data pass goes the other way. */
static int64_t read_at(const struct sample *s, const int64_t at[4], int64_t tap)
{
    const struct wf_dnnl_problem *const p = s->p;
    const bool forward = p->pass != WF_CONV_DATA;
    const int64_t *const extent = forward ? p->src : p->dst;
    const int64_t k[3] = { tap / (p->kernel[1] * p->kernel[2]), tap / p->kernel[2] % p->kernel[1],
                           tap % p->kernel[2] };
    int64_t index = at[0];
    for (int i = 0; i < 3; i++) {
        const int64_t shift = k[i] * p->dilation[i] - p->pad_lo[i];
        int64_t from = forward ? at[1 + i] * p->stride[i] + shift : at[1 + i] - shift;
        if (!forward) {
            if (from % p->stride[i] != 0)
                return -1;
            from /= p->stride[i];
        }
        if (from < 0 || from >= extent[i])
            return -1;
        index = index * extent[i] + from;
    }
    return index;
}

static double dot(const int8_t *a, const double *b, int64_t n)
{
    double sum = 0;
#ifdef _OPENMP
#pragma omp simd reduction(+ : sum)
#endif
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static double element(const struct operand *o, int64_t i)
{
    const float bf16 = o->dtype == WF_F32 ? 0 : wf_bf16_to_f32(((uint16_t *)(void *)o->data)[i]);
    return o->dtype == WF_F32 ? (double)((float *)(void *)o->data)[i] : (double)bf16;
}

static bool position_is_right(const struct sample *s, const int64_t at[4], int64_t index)
{
    const bool forward = s->p->pass == WF_CONV_FORWARD;
    const struct operand *const read = forward ? &s->src : &s->dst;
    const struct operand *const made = forward ? &s->dst : &s->src;
    const int64_t channels = forward ? s->in : s->out, written = forward ? s->out : s->in;
    double want = 0, got = 0;
    for (int64_t tap = 0; tap < s->taps; tap++) {
        const int64_t from = read_at(s, at, tap);
        if (from >= 0)
            want += dot(read->values + from * channels, s->combined + tap * channels, channels);
    }
    for (int64_t c = 0; c < written; c++) {
        got += s->factors[c] * element(made, index * written + c);
        want += s->p->bias ? s->factors[c] * s->bias.values[c] : 0;
    }
    return got == want;
}

/* A coordinate, every second one near an end. */
static int64_t draw_near_ends(uint64_t *state, int64_t n)
{
    const int64_t any = draw_below(state, n), near = draw_below(state, wf_min(n, 3));
    switch (draw(state) % 4) {
    case 0:
        return near;
    case 1:
        return n - 1 - near;
    default:
        return any;
    }
}

static bool images_are_right(struct sample *s)
{
    const bool forward = s->p->pass == WF_CONV_FORWARD;
    const int64_t *const e = forward ? s->p->dst : s->p->src;
    const int64_t all = s->p->batch * product3(e);
    const int64_t each = s->taps * (forward ? s->in : s->out) + (forward ? s->out : s->in);
    const int64_t some = wf_max(64, MOST_PRODUCTS / each);
    bool ok = true;
    for (int64_t i = 0; ok && i < wf_min(all, some); i++) {
        int64_t at[4] = { i / product3(e), i / (e[1] * e[2]) % e[0], i / e[2] % e[1], i % e[2] };
        for (int a = 0; all > some && a < 4; a++)
            at[a] = draw_near_ends(&s->random, a ? e[a - 1] : s->p->batch);
        ok = position_is_right(s, at, ((at[0] * e[0] + at[1]) * e[1] + at[2]) * e[2] + at[3]);
    }
    return ok;
}

/* --- comparing weight gradients --- */

/* Per tap and channel of src: the sum over positions of src times dst, dst's channels of the group with
 * their factors. `of_group`: room for one number per group. */
static void add_position(const struct sample *s, const int64_t at[4], const int8_t *dst,
                         double *of_group)
{
    const int64_t groups = s->p->groups, in = s->in / groups, out = s->out / groups;
    for (int64_t g = 0; g < groups; g++)
        of_group[g] = dot(dst + g * out, s->factors + g * out, out);
    for (int64_t tap = 0; tap < s->taps; tap++) {
        const int64_t from = read_at(s, at, tap);
        if (from < 0)
            continue;
        const int8_t *const src = s->src.values + from * s->in;
        double *const to = s->combined + tap * s->in;
        for (int64_t g = 0; g < groups; g++)
            for (int64_t i = g * in; i < (g + 1) * in; i++)
                to[i] += of_group[g] * src[i];
    }
}

/* C2: only so many positions of dst are not zero. */
static void keep_fewer(struct sample *s)
{
    const int64_t *const e = s->p->dst;
    const int64_t all = s->p->batch * product3(e);
    const int64_t some = wf_max(64, MOST_PRODUCTS / (s->taps * s->in + s->out));
    if (all <= some)
        return;
    int8_t *const kept = s->dst.values;
    memset(kept, 0, (size_t)s->dst.count);
    for (int64_t k = 0; k < some; k++) {
        int64_t at = draw_near_ends(&s->random, s->p->batch);
        for (int a = 0; a < 3; a++)
            at = at * e[a] + draw_near_ends(&s->random, e[a]);
        for (int64_t c = 0; c < s->out; c++)
            kept[at * s->out + c] = draw_value(draw(&s->random), 2);
    }
    put_values(&s->dst);
}

static bool is_zero(const int8_t *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (v[i] != 0)
            return false;
    return true;
}

static bool gradient_is_right(struct sample *s)
{
    const int64_t *const e = s->p->dst;
    const int64_t all = s->p->batch * product3(e), in = s->in / s->p->groups;
    const int64_t out = s->out / s->p->groups;
    double *const of_group = s->factors + s->out;
    memset(s->combined, 0, (size_t)(s->taps * s->in) * sizeof(double));
    for (int64_t i = 0; i < all; i++) {
        const int64_t at[4] = { i / product3(e), i / (e[1] * e[2]) % e[0], i / e[2] % e[1],
                                i % e[2] };
        if (!is_zero(s->dst.values + i * s->out, s->out))
            add_position(s, at, s->dst.values + i * s->out, of_group);
    }
    const float *const dw = (const float *)(const void *)s->weights.data;
    const int64_t taps = s->taps, all_out = s->out;
#pragma omp parallel for schedule(static) if (s->weights.count > ALONE)
    for (int64_t tap = 0; tap < taps; tap++) /* C1: exact in any order, so nothing may be left */
        for (int64_t o = 0; o < all_out; o++) {
            const float *const got = dw + (o * s->taps + tap) * in;
            double *const left = s->combined + tap * s->in + o / out * in;
            for (int64_t i = 0; i < in; i++)
                left[i] -= s->factors[o] * (double)got[i];
        }
    bool ok = true;
    for (int64_t i = 0; i < s->taps * s->in; i++)
        ok = ok && s->combined[i] == 0;
    return ok;
}

/* --- running --- */

/* C1: what is not there, or not an integer in range, is wrong wherever it is. */
static bool are_integers(const struct operand *o)
{
    const float most = o->dtype == WF_F32 ? EXACT_32 : EXACT_16;
    int64_t wrong = 0;
#pragma omp parallel for schedule(static) reduction(+ : wrong) if (o->count > ALONE)
    for (int64_t i = 0; i < o->count; i++) {
        const float v = (float)element(o, i);
        wrong += !(v >= -most && v <= most && (float)(int32_t)v == v);
    }
    return wrong == 0;
}

/* False where oneDNN refuses. */
static bool run(const struct sample *s)
{
    struct wf_dnnl_conv *const conv = s->conv;
    const bool gradient = s->p->pass == WF_CONV_WEIGHTS, blocked = wf_dnnl_conv_blocked(conv) > 0;
    const struct wf_dnnl_args args = { .src = s->src.data,
                                       .weights = blocked ? s->blocked : s->weights.data,
                                       .bias = s->bias.data,
                                       .dst = s->dst.data,
                                       .scratch = s->scratch };
    if (blocked && !gradient &&
        !wf_dnnl_conv_reorder(conv, s->weights.data, s->blocked, s->scratch))
        return false;
    if (!wf_dnnl_conv_run(conv, &args))
        return false;
    return !blocked || !gradient ||
           wf_dnnl_conv_reorder(conv, s->weights.data, s->blocked, s->scratch);
}

static bool run_and_compare(struct sample *s)
{
    const struct wf_dnnl_problem *const p = s->p;
    s->random = 1;
    switch (p->pass) {
    case WF_CONV_FORWARD:
        fill(s, &s->src, 1, density_of(p, s->taps * (p->in / p->groups)));
        fill(s, &s->weights, 2, 1);
        fill(s, &s->bias, 2, 1);
        fill_result(&s->dst);
        wf_dnnl_factors(&s->random, s->factors, s->out);
        combine(s);
        return run(s) && guards_are_intact(s) && are_integers(&s->dst) && images_are_right(s);
    case WF_CONV_DATA:
        fill(s, &s->dst, 1, density_of(p, s->taps * (p->out / p->groups)));
        fill(s, &s->weights, 2, 1);
        fill_result(&s->src);
        wf_dnnl_factors(&s->random, s->factors, s->in);
        combine(s);
        return run(s) && guards_are_intact(s) && are_integers(&s->src) && images_are_right(s);
    case WF_CONV_WEIGHTS:
        fill(s, &s->src, 2, 1);
        fill(s, &s->dst, 2,
             density_of(&(struct wf_dnnl_problem){ .dtype = WF_F32 }, p->batch * product3(p->dst)));
        keep_fewer(s);
        fill_result(&s->weights);
        wf_dnnl_factors(&s->random, s->factors, s->out);
        return run(s) && guards_are_intact(s) && are_integers(&s->weights) && gradient_is_right(s);
    }
    return false;
}

/* C3 */
bool wf_dnnl_conv_compare(struct wf_dnnl *lib, struct wf_dnnl_conv *conv,
                          const struct wf_dnnl_problem *p, bool *sure)
{
    const char *const name = wf_dnnl_conv_name(conv);
    struct wf_dnnl_problem small = *p;
    struct wf_dnnl_conv *other = NULL;
    if (make_small(&small, strstr(name, "ref") ? slow_products : small_products))
        other = wf_dnnl_conv_new(lib, &small);
    const bool alike = other && strcmp(wf_dnnl_conv_name(other), name) == 0;
    struct sample s;
    describe(&s, alike ? &small : p, alike ? other : conv);
    *sure = allocate(&s);
    const bool right = !*sure || run_and_compare(&s);
    if (s.memory)
        (void)munmap(s.memory, s.bytes);
    wf_dnnl_conv_free(other);
    return right;
}
