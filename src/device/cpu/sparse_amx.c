/*
 * Sparse convolution in bf16 on processors with AMX: tiles of 16 rows, 32 numbers deep, summed in f32.
 *
 * A block of the output's rows is summed offset by offset, as in sparse_conv.c: rows that have a neighbour are
 * gathered, 32 at a time, and multiplied with panels of the weight; results are added to the block's sums. Each
 * element is a sum over offsets of sums over channels in a fixed order, so its bits do not depend on blocks,
 * threads or ranks.
 *
 * The gradient of a weight sums over pairs of rows, which are gathered so that two rows lie beside each other
 * number by number, as the tiles want them.
 */
#include "device/cpu/sparse.h"

#if defined __AMX_BF16__ && defined __AMX_TILE__ && defined __AVX512BW__ &&                        \
    defined __AVX512BF16__ && defined __AVX512VL__ && defined __linux__
#define HAS_AMX
#endif

#ifdef HAS_AMX
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SIDE = 16,           /* rows of a tile, and its columns of 4 bytes */
    DEEP = 32,           /* numbers of bf16 that a tile sums over */
    PANEL = 2 * SIDE,    /* columns, and rows, that are multiplied together: two tiles by two */
    TILE = SIDE * DEEP,  /* numbers of bf16 */
    CHANNELS_MAX = 2048, /* that gathered rows have room for */
    PAIRS = 256,         /* of the gradient of a weight */
};

/* --- tiles --- */

/* Linux grants the registers to a process that asks. */
static bool has_tiles(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

/* All tiles whole. Of the thread, until tiles_end(). */
static void tiles_begin(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = SIDE;
    }
    _tile_loadconfig(&config);
}

static void tiles_end(void)
{
    _tile_release();
}

/* c [32][32] or less = (add: +=) the product of tiles a [2][deep] and b [2][deep], in memory SIDE rows of 64 bytes
 * a_stride apart, and packed; `a_next` bytes lie between the two rows of tiles of a, `b_next` between the two of b. */
struct product {
    const void *a, *b;
    int64_t a_stride, a_step, a_next, b_next;
    float *c;
    int64_t c_stride; /* numbers */
    int64_t deep;
    bool tall, wide, add; /* two tiles of rows, of columns */
};

static void product_begin(const struct product *p)
{
    const int64_t stride = p->c_stride * 4;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!p->add)
        return;
    _tile_loadd(0, p->c, stride);
    if (p->wide)
        _tile_loadd(1, p->c + SIDE, stride);
    if (p->tall)
        _tile_loadd(2, p->c + SIDE * p->c_stride, stride);
    if (p->wide && p->tall)
        _tile_loadd(3, p->c + SIDE * p->c_stride + SIDE, stride);
}

static void product_end(const struct product *p)
{
    const int64_t stride = p->c_stride * 4;
    _tile_stored(0, p->c, stride);
    if (p->wide)
        _tile_stored(1, p->c + SIDE, stride);
    if (p->tall)
        _tile_stored(2, p->c + SIDE * p->c_stride, stride);
    if (p->wide && p->tall)
        _tile_stored(3, p->c + SIDE * p->c_stride + SIDE, stride);
}

static void product_run(const struct product *p)
{
    const char *a = p->a, *b = p->b;
    product_begin(p);
    for (int64_t i = 0; i < p->deep; i++, a += p->a_step, b += TILE * 2) {
        _tile_loadd(4, a, p->a_stride);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (p->wide) {
            _tile_loadd(7, b + p->b_next, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (p->tall) {
            _tile_loadd(5, a + p->a_next, p->a_stride);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (p->tall && p->wide)
            _tile_dpbf16ps(3, 5, 7);
    }
    product_end(p);
}

/* --- rows as tiles want them --- */

static __mmask32 first_lanes(int64_t n)
{
    return (__mmask32)((UINT64_C(1) << n) - 1);
}

static __m256i sixteen(const uint16_t *row, __mmask16 some)
{
    return row ? _mm256_maskz_loadu_epi16(some, row) : _mm256_setzero_si256();
}

/* Two rows of at most 16 numbers, number by number; NULL: zeros. */
static __m512i beside(const uint16_t *a, const uint16_t *b, __mmask16 some)
{
    const __m512i both =
        _mm512_inserti64x4(_mm512_castsi256_si512(sixteen(a, some)), sixteen(b, some), 1);
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, both);
}

/* --- sparse_conv --- */

static int64_t tiles_of(int64_t channels, int64_t side)
{
    return wf_ceil_div(channels, side);
}

/* A tile of the weight, at (i, o) of the sum's channels and the output's: pairs of numbers along i, 16 along o. */
static void pack_tile(const struct wf_sparse_product *p, const uint16_t *w, int64_t i, int64_t o,
                      uint16_t *to)
{
    const int64_t deep = wf_min(DEEP, p->in - i), n = wf_min(SIDE, p->out - o);
    const __mmask32 some = first_lanes(p->a->back ? n : deep);
    __m512i r[SIDE];
    for (int k = 0; k < SIDE; k++)
        if (p->a->back)
            r[k] =
                beside(2 * k < deep ? w + (i + 2 * k) * p->out + o : NULL,
                       2 * k + 1 < deep ? w + (i + 2 * k + 1) * p->out + o : NULL, (__mmask16)some);
        else
            r[k] = k < n ? _mm512_maskz_loadu_epi16(some, w + (o + k) * p->in + i)
                         : _mm512_setzero_si512();
    if (!p->a->back)
        wf_turn(r);
    for (int k = 0; k < SIDE; k++)
        _mm512_store_si512(to + (ptrdiff_t)k * DEEP, r[k]);
}

/* [K][tile of columns][tile of the sum] */
static void pack(const struct wf_sparse_product *p, uint16_t *to)
{
    const int64_t deep = tiles_of(p->in, DEEP), wide = tiles_of(p->out, SIDE);
    WF_PARALLEL_FOR
    for (int64_t j = 0; j < p->count * wide; j++) {
        const uint16_t *const w = (const uint16_t *)(const void *)p->w + j / wide * p->in * p->out;
        for (int64_t i = 0; i < deep; i++)
            pack_tile(p, w, i * DEEP, j % wide * SIDE, to + (j * deep + i) * TILE);
    }
}

struct part {
    const struct wf_sparse_product *p;
    const uint16_t *w; /* packed */
    int64_t u0, u1, first, end;
    int64_t width; /* end - first, of whole panels */
    int32_t columns[WF_SPARSE_COLUMNS * WF_SPARSE_BLOCK];
    int32_t in[WF_SPARSE_BLOCK + WF_SPARSE_RUN], out[WF_SPARSE_BLOCK + WF_SPARSE_RUN];
    _Alignas(64) uint16_t rows[PANEL * CHANNELS_MAX];
    _Alignas(64) float made[PANEL * PANEL];
    _Alignas(64) float sums[WF_SPARSE_BLOCK * WF_SPARSE_GROUP]; /* [row][width] */
};

static void gather(struct part *t, int i, int n, int64_t stride)
{
    const struct wf_sparse_product *const p = t->p;
    const int64_t whole = p->in / DEEP * DEEP;
    const __mmask32 rest = first_lanes(p->in - whole);
    for (int r = 0; r < n; r++) {
        const uint16_t *const from = (const uint16_t *)(const void *)p->x + t->in[i + r] * p->in;
        uint16_t *const to = t->rows + r * stride;
        for (int64_t c = 0; c < whole; c += DEEP)
            _mm512_store_si512(to + c, _mm512_loadu_si512(from + c));
        if (rest)
            _mm512_store_si512(to + whole, _mm512_maskz_loadu_epi16(rest, from + whole));
    }
}

static void scatter(struct part *t, int i, int n, int64_t column)
{
    for (int r = 0; r < n; r++) {
        float *const to = t->sums + (t->out[i + r] - t->u0) * t->width + column;
        const float *const made = t->made + (ptrdiff_t)r * PANEL;
        _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_load_ps(made)));
        _mm512_store_ps(to + SIDE,
                        _mm512_add_ps(_mm512_load_ps(to + SIDE), _mm512_load_ps(made + SIDE)));
    }
}

static void multiply_rows(struct part *t, int64_t of, int i, int n)
{
    const struct wf_sparse_product *const p = t->p;
    const int64_t deep = tiles_of(p->in, DEEP), wide = tiles_of(p->out, SIDE);
    gather(t, i, n, deep * DEEP);
    for (int64_t o = t->first / SIDE; o < tiles_of(t->end, SIDE); o += 2) {
        product_run(&(struct product){ .a = t->rows,
                                       .a_stride = deep * 64,
                                       .a_step = 64,
                                       .a_next = SIDE * deep * 64,
                                       .b = t->w + (of * wide + o) * deep * TILE,
                                       .b_next = deep * TILE * 2,
                                       .c = t->made,
                                       .c_stride = PANEL,
                                       .deep = deep,
                                       .tall = n > SIDE,
                                       .wide = o + 1 < wide });
        scatter(t, i, n, o * SIDE - t->first);
    }
}

/* The sums as bf16, to y. */
static void put(const struct part *t)
{
    const struct wf_sparse_product *const p = t->p;
    for (int64_t u = t->u0; u < t->u1; u++)
        for (int64_t o = t->first; o < t->end; o += SIDE) {
            const __mmask16 some = (__mmask16)first_lanes(wf_min(SIDE, t->end - o));
            __m512 v = _mm512_load_ps(t->sums + (u - t->u0) * t->width + o - t->first);
            if (p->bias)
                v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(some, p->bias + o));
            _mm256_mask_storeu_epi16((uint16_t *)(void *)p->y + u * p->out + o, some,
                                     (__m256i)_mm512_cvtneps_pbh(v));
        }
}

static void part_run(struct part *t)
{
    const struct wf_sparse_product *const p = t->p;
    memset(t->sums, 0, (size_t)((t->u1 - t->u0) * t->width) * sizeof *t->sums);
    for (int64_t k = 0; k < p->count; k++) {
        const int64_t column = k % WF_SPARSE_COLUMNS, rows = t->u1 - t->u0;
        int64_t at = 0;
        if (column == 0)
            wf_sparse_columns(p, t->u0, rows, k, wf_min(WF_SPARSE_COLUMNS, p->count - k),
                              t->columns, WF_SPARSE_BLOCK);
        const int n = wf_sparse_pairs(t->columns + column * WF_SPARSE_BLOCK, rows, t->u0, &at,
                                      WF_SPARSE_BLOCK + WF_SPARSE_RUN, t->in, t->out);
        for (int i = 0; i < n; i += PANEL)
            multiply_rows(t, wf_sparse_conv_weight(p->a, k, p->count), i,
                          n - i < PANEL ? n - i : PANEL);
    }
    put(t);
}

static bool conv_prepare(struct wf_prepare *p, struct wf_err *)
{
    const struct wf_sparse_conv_attrs *a = p->node->attrs;
    const struct wf_shape *const w = &p->node->in[1]->shape;
    const int64_t in = w->at[a->back ? WF_W : WF_C], out = w->at[a->back ? WF_C : WF_W];
    p->scratch_bytes =
        (size_t)(w->at[WF_N] * tiles_of(in, DEEP) * tiles_of(out, SIDE) * TILE) * sizeof(uint16_t);
    return true;
}

static void conv_run(const struct wf_call *call)
{
    const struct wf_sparse_product p = wf_sparse_product(call);
    const struct wf_sparse_tasks tasks = wf_sparse_tasks(&p);
    pack(&p, call->scratch);
    WF_PARALLEL_TASKS
    for (int64_t j = 0; j < tasks.blocks * tasks.groups; j++) {
        struct part t;
        t.p = &p;
        t.w = call->scratch;
        t.u0 = j / tasks.groups * tasks.block;
        t.u1 = wf_min(p.rows, t.u0 + tasks.block);
        t.first = j % tasks.groups * tasks.width;
        t.end = wf_min(p.out, t.first + tasks.width);
        t.width = wf_ceil_div(t.end - t.first, PANEL) * PANEL;
        tiles_begin();
        part_run(&t);
        tiles_end();
    }
}

/* --- sparse_conv_wgrad: x, dy, [map] --- */

struct pairs {
    const uint16_t *x[PAIRS], *dy[PAIRS];
    int32_t in[PAIRS], out[PAIRS];
    _Alignas(64) uint16_t rows[PAIRS * WF_SPARSE_GROUP];    /* of dw: [tile][deep], from dy */
    _Alignas(64) uint16_t columns[PAIRS * WF_SPARSE_GROUP]; /* likewise, from x */
};

/* Columns first .. end of rows, as tiles that sum over pairs; `turned` for the left side of a product. */
static void pack_pairs(const uint16_t *const rows[], int64_t deep, int64_t first, int64_t end,
                       bool turned, uint16_t *to)
{
    for (int64_t c = first; c < end; c += SIDE) {
        const __mmask16 some = (__mmask16)first_lanes(wf_min(SIDE, end - c));
        for (int64_t d = 0; d < deep; d++, to += TILE) {
            __m512i r[SIDE];
            for (int i = 0; i < SIDE; i++)
                r[i] = beside(rows[d * DEEP + 2 * i] + c, rows[d * DEEP + 2 * i + 1] + c, some);
            if (turned)
                wf_turn(r);
            for (int i = 0; i < SIDE; i++)
                _mm512_store_si512(to + (ptrdiff_t)i * DEEP, r[i]);
        }
    }
}

/* Where the rows of n pairs are, filled up with rows of zeros. Returns how many tiles deep. */
static int64_t find_rows(const struct wf_sparse_product *p, int n, const uint16_t *zeros,
                         struct pairs *l)
{
    const int64_t deep = wf_ceil_div(n, DEEP);
    for (int i = 0; i < deep * DEEP; i++) {
        l->x[i] = i < n ? (const uint16_t *)(const void *)p->x + l->in[i] * p->in : zeros;
        l->dy[i] = i < n ? (const uint16_t *)(void *)p->y + l->out[i] * p->out : zeros;
    }
    return deep;
}

/* Some rows and columns of dw, in place, or where a tile has too few of them, beside it. */
static void add_product(struct product t, float *dw, int64_t stride, int64_t rows, int64_t columns)
{
    _Alignas(64) float whole[PANEL * PANEL];
    const bool fits = rows % SIDE == 0 && columns % SIDE == 0;
    const size_t bytes = (size_t)columns * sizeof *dw;
    t.tall = rows > SIDE;
    t.wide = columns > SIDE;
    t.add = true;
    t.c = fits ? dw : whole;
    t.c_stride = fits ? stride : PANEL;
    for (int64_t r = 0; !fits && r < rows; r++)
        memcpy(whole + r * PANEL, dw + r * stride, bytes);
    product_run(&t);
    for (int64_t r = 0; !fits && r < rows; r++)
        memcpy(dw + r * stride, whole + r * PANEL, bytes);
}

/* Rows first .. end of dw of one offset, at most GROUP. */
static void add_pairs(const struct wf_sparse_product *p, struct pairs *l, int64_t deep, float *dw,
                      int64_t first, int64_t end)
{
    const int64_t next = deep * TILE;
    pack_pairs(l->dy, deep, first, end, true, l->rows);
    for (int64_t c0 = 0; c0 < p->in; c0 += WF_SPARSE_GROUP) {
        const int64_t c1 = wf_min(p->in, c0 + WF_SPARSE_GROUP);
        pack_pairs(l->x, deep, c0, c1, false, l->columns);
        for (int64_t o = first; o < end; o += PANEL)
            for (int64_t c = c0; c < c1; c += PANEL)
                add_product((struct product){ .a = l->rows + (o - first) / SIDE * next,
                                              .a_stride = 64,
                                              .a_step = TILE * 2,
                                              .a_next = next * 2,
                                              .b = l->columns + (c - c0) / SIDE * next,
                                              .b_next = next * 2,
                                              .deep = deep },
                            dw + o * p->in + c, p->in, wf_min(PANEL, end - o),
                            wf_min(PANEL, c1 - c));
    }
}

static bool wgrad_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = wf_sparse_span_bytes(p->node);
    return true;
}

/* Of rows u0 .. u0 + n. */
static void wgrad_span(const struct wf_sparse_product *p, int64_t u0, int64_t n,
                       const int32_t *columns, float *dw)
{
    const int64_t share = p->count < WF_SPARSE_TASKS / 2 ? PANEL : WF_SPARSE_GROUP;
    const int64_t shares = wf_ceil_div(p->out, share);
    WF_PARALLEL_TASKS
    for (int64_t j = 0; j < p->count * shares; j++) {
        static const uint16_t zeros[CHANNELS_MAX];
        struct pairs list;
        const int64_t of = j / shares, k = wf_sparse_conv_weight(p->a, of, p->count);
        const int64_t first = j % shares * share, end = wf_min(p->out, first + share);
        float *const part = dw + of * p->out * p->in;
        if (u0 == 0)
            memset(part + first * p->in, 0, (size_t)((end - first) * p->in) * sizeof *part);
        tiles_begin();
        for (int64_t at = 0; at < n;) {
            const int made =
                wf_sparse_pairs(columns + k * WF_SPARSE_SPAN, n, u0, &at, PAIRS, list.in, list.out);
            if (made > 0)
                add_pairs(p, &list, find_rows(p, made, zeros, &list), part, first, end);
        }
        tiles_end();
    }
}

static void wgrad_run(const struct wf_call *call)
{
    const struct wf_sparse_product p = wf_sparse_wgrad_product(call);
    for (int64_t u0 = 0; u0 == 0 || u0 < p.rows; u0 += WF_SPARSE_SPAN) {
        const int64_t n = wf_min(WF_SPARSE_SPAN, p.rows - u0);
        wf_sparse_span(&p, u0, n, call->scratch);
        wgrad_span(&p, u0, n, call->scratch, call->out[0].data);
    }
}

/* --- the table --- */

static bool is_narrow(const struct wf_value *x, const struct wf_value *y)
{
    return x->dtype == WF_BF16 && x->shape.at[WF_C] <= CHANNELS_MAX &&
           y->shape.at[WF_C] <= CHANNELS_MAX && has_tiles();
}

static bool accepts(const struct wf_node *node)
{
    return is_narrow(node->in[0], node->out[0]) && (!node->in[3] || node->in[3]->dtype == WF_F32);
}

static bool wgrad_accepts(const struct wf_node *node)
{
    return is_narrow(node->in[0], node->in[1]) && node->out[0]->dtype == WF_F32;
}

#endif

const struct wf_kernel wf_cpu_kernels_sparse_amx[] = {
#ifdef HAS_AMX
    { .op = "sparse_conv",
      .flags = WF_KERNEL_DENSE,
      .preference = 1,
      .accepts = accepts,
      .prepare = conv_prepare,
      .run = conv_run,
      .fuses = wf_sparse_skips_order },
    { .op = "sparse_conv_wgrad",
      .flags = WF_KERNEL_DENSE,
      .preference = 1,
      .accepts = wgrad_accepts,
      .prepare = wgrad_prepare,
      .run = wgrad_run },
#endif
    { 0 },
};
