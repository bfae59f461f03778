/*
 * sparse_conv of 16-bit features by tensor cores. A block makes the results of some rows: of the offsets that any of
 * them has it gathers the rows of x into panels (panels.cuh), a part of the channels at a time, with the
 * weights beside them; what comes next is on its way while it computes. Rows without a neighbour at an
 * offset are zeros there. Where there are few rows, several blocks share the offsets of a tile, and a second
 * kernel adds their sums in order.
 */
#include "device/cuda/panels.cuh"
#include "device/cuda/sparse.cuh"

namespace wf
{

enum {
    DEEP = 64, /* channels of a panel */
    OFFSETS_MOST = 128,
    ROWS = 2 * WARPS_ROWS, /* of a tile */
    ROW_THREADS = 2 * ROWS,
    TOGETHER = ROW_THREADS / PIECE, /* rows that are copied at once, a piece by each thread */
    STAGES = 3,      /* so that two blocks share a multiprocessor */
    STAGES_DEEP = 6, /* where it has one block only */
    BLOCKS = 132,    /* multiprocessors */
    LOOKS = 8,       /* at the map, at once */
    SPLITS_MOST = 8,
};

struct RowsOf {
    Features x, y;
    const char *w; /* [offset][filter][channel] */
    Joins joins;
    Table bias;
    int64_t in, out; /* channels that are summed over, and that are made */
    float *part;     /* [split][row][out]; NULL: there is one split */
    int64_t rows;    /* capacity */
};

/* Which rows of x a tile reads, and the offsets that it has. Two threads for each row. */
struct TileRows {
    int32_t is_there[OFFSETS_MOST], n;
    int32_t active[OFFSETS_MOST], weight[OFFSETS_MOST]; /* columns of the map; offsets of the weight */
    int32_t own[ROWS]; /* rows of y; -1: none */
    int32_t row[1];    /* [offset][ROWS + 1] */

    static int bytes(int64_t offsets)
    {
        return (int)(sizeof(TileRows) + (size_t)offsets * (ROWS + 1) * sizeof(int32_t));
    }
    __device__ void look(const Joins &joins, int64_t first, int64_t rows)
    {
        for (int k = (int)threadIdx.x; k < joins.count; k += ROW_THREADS)
            is_there[k] = 0;
        for (int r = (int)threadIdx.x; r < ROWS; r += ROW_THREADS)
            own[r] = first + r >= rows ? -1
                     : joins.order     ? joins.order[first + r]
                                       : (int32_t)(first + r);
        __syncthreads();
        const int r = (int)threadIdx.x / 2;
        const int32_t mine = own[r];
        for (int first_k = (int)threadIdx.x % 2; first_k < joins.count; first_k += 2 * LOOKS) {
            int32_t from[LOOKS]; /* none waits for another */
#pragma unroll
            for (int i = 0; i < LOOKS; i++) {
                const int k = first_k + 2 * i;
                from[i] = mine >= 0 && k < joins.count ? joins.at(mine, k) : -1;
            }
#pragma unroll
            for (int i = 0; i < LOOKS; i++) {
                const int k = first_k + 2 * i;
                if (k < joins.count)
                    row[k * (ROWS + 1) + r] = from[i];
                if (from[i] >= 0)
                    is_there[k] = 1;
            }
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            int before = 0;
            for (int k = (int)threadIdx.x; k - (int)threadIdx.x < joins.count; k += 32) {
                const bool present = k < joins.count && is_there[k];
                const uint32_t bits = warp_bits(present);
                const int at = before + (int)__popcll(bits & ((1u << threadIdx.x) - 1));
                if (present) {
                    active[at] = k;
                    weight[at] = joins.weight(k);
                }
                before += __popcll(bits);
            }
            if (threadIdx.x == 0)
                n = before;
        }
        __syncthreads();
    }
};

template <bool BK, int N> struct RowStage {
    enum {
        A = ROWS * PANEL_ROW,
        B = BK ? (N + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_BYTES : N * PANEL_ROW,
        BYTES = A + B
    };
};

/*
 * What a thread copies for each stage: its piece of some rows of x, and of some rows of the weight. These are filters:
 * of the result, or with BK those that are summed over. What does not depend on the stage is found once: a stage takes
 * less time than 64-bit products for each piece would.
 */
template <bool BK, int N> struct RowCopies {
    enum {
        PANELS = BK ? (N + PANEL_COLUMNS - 1) / PANEL_COLUMNS : 1,
        PASSES = (BK ? (int)DEEP : N) / TOGETHER,
        GATHERED = ROWS / TOGETHER,
        APART = TOGETHER * PANEL_ROW, /* bytes in a panel between rows of one thread */
    };
    static_assert(TOGETHER % 8 == 0, "rows of one thread are exchanged alike");
    const char *x, *w; /* its pieces of row 0, and of its first row of the weight */
    int32_t x_row, w_row, w_offset, w_step; /* bytes: of a row; of the weight's; of an offset; APART */
    int32_t at;                             /* in a panel */
    int32_t first, left, rows_left;         /* its first row; channels and rows of the weight from there on */
    uint32_t valid; /* a bit for each row of the weight (BK: each panel) that there is */
    const char *from[GATHERED], *weight; /* at the offset that is copied */
    uint32_t there;                      /* a bit for each of `from` */

    __device__ RowCopies(const RowsOf &f, int column)
    {
        const int p = (int)threadIdx.x % PIECE, in = (int)f.in, out = (int)f.out;
        const int width = BK ? out : in;
        first = (int)threadIdx.x / PIECE;
        at = first * PANEL_ROW + ((p ^ (first & 7)) << 4);
        left = in - p * PIECE;
        rows_left = in - first;
        x_row = (int)f.x.row * 2;
        w_row = width * 2;
        w_offset = in * out * 2;
        w_step = TOGETHER * w_row;
        x = (const char *)f.x.data + p * PIECE * 2;
        w = f.w + (int64_t)(BK ? first : column + first) * w_row + ((BK ? column : 0) + p * PIECE) * 2;
        valid = 0;
        for (int i = 0; i < (BK ? (int)PANELS : (int)PASSES); i++)
            if (BK ? column + i * PANEL_COLUMNS + p * PIECE < out : column + first + i * TOGETHER < out)
                valid |= 1u << i;
    }
    /* From now on rows at the offset that is the a-th of the tile. */
    __device__ void take(const TileRows &tile, int a)
    {
        const int32_t *const rows = tile.row + tile.active[a] * (ROWS + 1) + first;
        weight = w + (int64_t)tile.weight[a] * w_offset;
        there = 0;
#pragma unroll
        for (int i = 0; i < GATHERED; i++) {
            const int32_t row = rows[i * TOGETHER];
            from[i] = x + (int64_t)row * x_row;
            there |= row >= 0 ? 1u << i : 0;
        }
    }
    /* DEEP channels from c on, and then those behind them. */
    __device__ void fetch(char *to, int c)
    {
        char *const to_weight = to + RowStage<BK, N>::A + at;
        const bool inside = c < left;
#pragma unroll
        for (int i = 0; i < GATHERED; i++) {
            copy_piece(to + at + i * APART, from[i], inside && (there >> i & 1));
            from[i] += DEEP * 2;
        }
#pragma unroll
        for (int i = 0; i < PASSES; i++)
#pragma unroll
            for (int j = 0; j < PANELS; j++) {
                const bool is_there = BK ? c + i * TOGETHER < rows_left && (valid >> j & 1)
                                         : inside && (valid >> i & 1);
                copy_piece(to_weight + j * PANEL_BYTES + i * APART,
                           weight + i * (int64_t)w_step + j * PANEL_ROW, is_there);
            }
        weight += BK ? DEEP * w_row : DEEP * 2;
    }
};

/* Of the tile: where a thread's sums lie, of its upper or lower half. */
__device__ inline int row_of_sum(int half)
{
    return (int)threadIdx.x / 32 * 16 + half * 8 + (int)threadIdx.x % 32 / 4;
}

template <class T, int N>
__device__ inline void put_rows(const RowsOf &f, const float (&sum)[N / 2], const int32_t *own,
                                int64_t column)
{
    const int q = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t r = own[row_of_sum(half)];
#pragma unroll
        for (int j = 0; j < N / 32; j++) {
            uint32_t v[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float *const s = &sum[(j * 4 + e) * 4 + half * 2];
                const int64_t c = column + (j * 4 + e) * PIECE + q * 2;
                float b[2] = {};
                if (f.bias.data && c < f.out) {
                    b[0] = (float)f.bias.get(0, c);
                    b[1] = (float)f.bias.get(0, c + 1);
                }
                v[e] = pair_of(T(), s[0] + b[0], s[1] + b[1]);
            }
            turn_four(v);
            const int64_t c = column + (j * 4 + q) * PIECE;
            if (r >= 0 && c < f.out)
                *(uint4 *)f.y.at<T>(r, c) = uint4{ v[0], v[1], v[2], v[3] };
        }
    }
}

template <int N>
__device__ inline void put_part(const RowsOf &f, const float (&sum)[N / 2], const int32_t *own,
                                int64_t column)
{
    float *const part = f.part + (int64_t)blockIdx.z * f.rows * f.out;
#pragma unroll
    for (int i = 0; i < N / 2; i += 2) {
        const int64_t r = own[row_of_sum(i % 4 / 2)];
        const int64_t c = column + i / 4 * PIECE + (int)threadIdx.x % 4 * 2;
        if (r >= 0 && c < f.out)
            *(uint2 *)&part[r * f.out + c] =
                uint2{ __float_as_uint(sum[i]), __float_as_uint(sum[i + 1]) };
    }
}

/* S: stages. */
template <class T, bool BK, int N, int S>
__global__ void __launch_bounds__(ROW_THREADS, S < STAGES_DEEP ? 2 : 1) rows_product(const RowsOf f)
{
    typedef RowStage<BK, N> Stage;
    const int64_t rows = *f.joins.there, first = (int64_t)blockIdx.x * ROWS;
    const int64_t column = (int64_t)blockIdx.y * N;
    TileRows *const tile = (TileRows *)(shared_memory() + S * Stage::BYTES);
    float sum[N / 2];
    if (first >= rows)
        return;
    tile->look(f.joins, first, rows);
    RowCopies<BK, N> copies(f, (int)column);
    const int begin = tile->n * (int)blockIdx.z / (int)gridDim.z;
    const int end = tile->n * ((int)blockIdx.z + 1) / (int)gridDim.z;
    const int in = (int)f.in, of_warps = same_in_warp((int)threadIdx.x / 128);
    int next = begin, next_channel = 0, put = 0, get = 0;
    const auto fetch = [&] {
        if (next < end) {
            if (next_channel == 0)
                copies.take(*tile, next);
            copies.fetch(shared_memory() + put * Stage::BYTES, next_channel);
            next_channel += DEEP;
            if (next_channel >= in) {
                next_channel = 0;
                next++;
            }
            put = put + 1 == S ? 0 : put + 1;
        }
        copies_commit();
    };
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sum[i] = 0;
    for (int i = 0; i < S - 1; i++)
        fetch();
    for (int left = (end - begin) * ((in + DEEP - 1) / DEEP); left > 0; left--) {
        copies_wait<S - 2>();
        __syncthreads(); /* this stage is there, and the last one has been read */
        char *const at = shared_memory() + get * Stage::BYTES;
        sums_stay(sum);
        products_begin();
        /* All columns, of the last panel zeros, too: products that depend on a condition, or are under way
         * where a loop ends, would wait for each other. */
#pragma unroll
        for (int k = 0; k < DEEP / 16; k++)
            product<T, false, BK>(sum, at + of_warps * PANEL_BYTES, at + Stage::A, k, 1);
        products_commit();
        get = get + 1 == S ? 0 : get + 1;
        fetch();
        products_wait<0>();
        sums_stay(sum);
    }
    if (f.part)
        put_part<N>(f, sum, tile->own, column);
    else
        put_rows<T, N>(f, sum, tile->own, column);
}

/* The sums of the splits, eight channels a thread. */
template <class T>
__global__ void __launch_bounds__(THREADS) add_row_parts(const RowsOf f, const int splits)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * PIECE;
    const int64_t r = i / f.out, c = i - r * f.out;
    float sum[PIECE] = {};
    if (r >= *f.joins.there)
        return;
    for (int s = 0; s < splits; s++) {
        Vec<float, 4> a[2];
        a[0].load(f.part + s * f.rows * f.out + i);
        a[1].load(f.part + s * f.rows * f.out + i + 4);
#pragma unroll
        for (int j = 0; j < PIECE; j++)
            sum[j] += a[j / 4].get(j % 4);
    }
    if (f.bias.data)
        for (int j = 0; j < PIECE; j++)
            sum[j] += (float)f.bias.get(0, c + j);
    Vec<T, PIECE> y;
    y.set_all(sum);
    y.store(f.y.at<T>(r, c));
}

/* --- launching --- */

/* Columns of a tile. */
static int width_of(int64_t out)
{
    return out <= 32 ? 32 : out <= 64 ? 64 : out % 128 == 0 ? 128 : out % 96 == 0 ? 96 : 128;
}

static int splits_of(const struct wf_node *node, int64_t rows)
{
    const struct wf_sparse_conv_attrs *a = (const struct wf_sparse_conv_attrs *)node->attrs;
    const struct wf_shape &w = node->in[1]->shape;
    const int64_t out = w.at[a->back ? WF_C : WF_W];
    const int64_t tiles = larger<int64_t>(1, ceil_div(rows, ROWS) * ceil_div(out, width_of(out)));
    return (int)larger<int64_t>(1, smaller(smaller<int64_t>(SPLITS_MOST, w.at[WF_N] / 2), BLOCKS / tiles));
}

template <class F> static void with_width(int width, F f)
{
    if (width == 32)
        f(Int<32>());
    else if (width == 64)
        f(Int<64>());
    else if (width == 96)
        f(Int<96>());
    else
        f(Int<128>());
}

/* False: not launched. */
template <class T, bool BK, int N>
static bool tiles_run(const struct wf_call *call, const RowsOf &f, int splits)
{
    const dim3 grid((unsigned)ceil_div(f.rows, ROWS), (unsigned)ceil_div(f.out, N),
                    (unsigned)splits);
    const int own = TileRows::bytes(f.joins.count), stage = RowStage<BK, N>::BYTES;
    struct CUstream_st *const stream = wf_cuda_stream(call);
    if (grid.x * grid.y * grid.z <= BLOCKS && STAGES_DEEP * stage + own <= SHARED_MOST)
        return launch_sharing(rows_product<T, BK, N, STAGES_DEEP>, grid, ROW_THREADS,
                              STAGES_DEEP * stage + own, stream, f);
    return launch_sharing(rows_product<T, BK, N, STAGES>, grid, ROW_THREADS, STAGES * stage + own,
                          stream, f);
}

template <class T, bool BK> static bool rows_run(const struct wf_call *call, const RowsOf &f)
{
    const int splits = f.part ? splits_of(call->node, f.rows) : 1;
    bool ran = false;
    with_width(width_of(f.out), [&](auto n) {
        enum { N = decltype(n)::value };
        ran = tiles_run<T, BK, N>(call, f, splits);
    });
    if (ran && splits > 1)
        launch(add_row_parts<T>, blocks_for(f.rows * f.out, THREADS * PIECE), THREADS,
               wf_cuda_stream(call), f, splits);
    return ran;
}

/* Whether whole pieces may be moved. */
static bool takes_pieces(const Features &m)
{
    return m.step == 1 && m.row % PIECE == 0 && (uintptr_t)m.data % 16 == 0;
}

} // namespace wf

using namespace wf;

bool wf_cuda_rows_fit(const struct wf_node *node)
{
    const struct wf_shape &w = node->in[1]->shape;
    return PANELS_HERE && gpu_has_panels() && wf_dtype_size(node->in[0]->dtype) == 2 &&
           w.at[WF_C] % PIECE == 0 && w.at[WF_W] % PIECE == 0 && w.at[WF_N] <= OFFSETS_MOST &&
           w.at[WF_C] * w.at[WF_W] <= INT32_MAX / 4;
}

bool wf_cuda_rows_prepare(struct wf_prepare *p, struct wf_err *)
{
    const int64_t rows = capacity_of(p->work);
    const int splits = splits_of(p->node, rows);
    if (splits > 1)
        p->scratch_bytes =
            (size_t)(splits * rows * p->node->out[0]->shape.at[WF_C]) * sizeof(float);
    return true;
}

void wf_cuda_rows_conv(const struct wf_call *call)
{
    const struct wf_sparse_conv_attrs *a = (const struct wf_sparse_conv_attrs *)call->node->attrs;
    const struct wf_shape &w = call->node->in[1]->shape;
    RowsOf f = {};
    f.x = features_of(call->in[0]);
    f.w = (const char *)call->in[1].data;
    f.y = features_of(call->out[0]);
    f.joins = joins_of(call, 2, w.at[WF_N]);
    f.joins.order = (const int32_t *)call->in[WF_SPARSE_CONV_ORDER].data;
    f.bias = table_of(call->in[3]);
    f.in = w.at[a->back ? WF_W : WF_C];
    f.out = w.at[a->back ? WF_C : WF_W];
    f.rows = capacity_of(call->work);
    f.part = splits_of(call->node, f.rows) > 1 ? (float *)call->scratch : NULL;
    if (f.rows < 1)
        return;
    const bool wide = takes_pieces(f.x) && takes_pieces(f.y) && (uintptr_t)f.w % 16 == 0;
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        if constexpr (sizeof(T) == 2)
            if (!wide ||
                !(a->back ? rows_run<T, true>(call, f) : rows_run<T, false>(call, f)))
                wf_cuda_sparse_conv(call);
    });
}
