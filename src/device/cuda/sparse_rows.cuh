/*
 * What sparse_conv on tensor cores has in common for all element types: which rows of x a tile of rows reads, their way
 * and that of the weights into panels of shared memory (panels.cuh), and the sum of what several blocks made of a tile.
 *
 * A block makes the results of some rows: of the offsets that any of them has it gathers the rows of x, a panel's
 * channels at a time, with the weights beside them; what comes next is on its way while it computes. Rows without a
 * neighbour at an offset are zeros there. Where there are few rows, several blocks share the offsets of a tile, and a
 * second kernel adds their sums in order.
 */
#pragma once

#include "device/cuda/panels.cuh"
#include "device/cuda/sparse.cuh"

namespace wf
{

enum {
    OFFSETS_MOST = 128,
    ROWS = 2 * WARPS_ROWS, /* of a tile */
    ROW_THREADS = 2 * ROWS,
    TOGETHER = ROW_THREADS / PANEL_PIECES, /* rows that are copied at once, a piece by each thread */
    BLOCKS = 132,                          /* multiprocessors */
    LOOKS = 8,                             /* at the map, at once */
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

/* Panels of a stage: rows of x; the weight's filters as rows, or with BK as columns. */
template <class T, bool BK, int N> struct RowStage {
    enum {
        DEEP = PANEL_ROW / (int)sizeof(T), /* channels, summed over at once */
        PANELS = BK ? (N + DEEP - 1) / DEEP : 1,
        PANEL = (BK ? (int)DEEP : N) * PANEL_ROW,
        A = ROWS * PANEL_ROW,
        BYTES = A + PANELS * PANEL
    };
};

/*
 * What a thread copies for each stage: its piece of some rows of x, and of some rows of the weight. These are filters:
 * of the result, or with BK those that are summed over. What does not depend on the stage is found once: a stage takes
 * less time than 64-bit products for each piece would.
 */
template <class T, bool BK, int N> struct RowCopies {
    typedef RowStage<T, BK, N> Stage;
    enum {
        PIECE_HERE = piece_of<T>(),
        PASSES = (BK ? (int)Stage::DEEP : N) / TOGETHER,
        GATHERED = ROWS / TOGETHER,
        APART = TOGETHER * PANEL_ROW, /* bytes in a panel between rows of one thread */
    };
    static_assert(TOGETHER % 8 == 0, "rows of one thread are exchanged alike");
    const char *x, *w; /* its pieces of row 0, and of its first row of the weight */
    int32_t x_row, w_row, w_offset, w_step; /* bytes: of a row; of the weight's; of an offset; APART */
    int32_t at, w_at;                       /* in a panel */
    int32_t first, left, rows_left;         /* its first row; channels and rows of the weight from there on */
    uint32_t valid; /* a bit for each row of the weight (BK: each panel) that there is */
    const char *from[GATHERED], *weight; /* at the offset that is copied */
    uint32_t there;                      /* a bit for each of `from` */

    __device__ RowCopies(const RowsOf &f, int column)
    {
        const int p = (int)threadIdx.x % PANEL_PIECES, in = (int)f.in, out = (int)f.out;
        const int width = BK ? out : in;
        first = (int)threadIdx.x / PANEL_PIECES;
        at = place_along(first, p);
        w_at = BK ? place_across<T>(first, p) : at;
        left = in - p * PIECE_HERE;
        rows_left = in - first;
        x_row = (int)(f.x.row * (int)sizeof(T));
        w_row = width * (int)sizeof(T);
        w_offset = in * out * (int)sizeof(T);
        w_step = TOGETHER * w_row;
        x = (const char *)f.x.data + p * PIECE_BYTES;
        w = f.w + (int64_t)(BK ? first : column + first) * w_row + (BK ? column : 0) * (int)sizeof(T) +
            p * PIECE_BYTES;
        valid = 0;
        for (int i = 0; i < (BK ? (int)Stage::PANELS : (int)PASSES); i++)
            if (BK ? column + i * Stage::DEEP + p * PIECE_HERE < out
                   : column + first + i * TOGETHER < out)
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
    /* A stage's channels from c on, and then those behind them. */
    __device__ void fetch(char *to, int c)
    {
        char *const to_weight = to + Stage::A + w_at;
        const bool inside = c < left;
#pragma unroll
        for (int i = 0; i < GATHERED; i++) {
            copy_piece(to + at + i * APART, from[i], inside && (there >> i & 1));
            from[i] += PANEL_ROW;
        }
#pragma unroll
        for (int i = 0; i < PASSES; i++)
#pragma unroll
            for (int j = 0; j < Stage::PANELS; j++) {
                const bool is_there = BK ? c + i * TOGETHER < rows_left && (valid >> j & 1)
                                         : inside && (valid >> i & 1);
                copy_piece(to_weight + j * Stage::PANEL + i * APART,
                           weight + i * (int64_t)w_step + j * PANEL_ROW, is_there);
            }
        weight += BK ? Stage::DEEP * w_row : PANEL_ROW;
    }
};

/* The stages of a block, of which S are in shared memory, one behind the other. */
template <class T, bool BK, int N, int S> struct RowFeed {
    typedef RowStage<T, BK, N> Stage;
    const TileRows &tile;
    RowCopies<T, BK, N> copies;
    int next, end, channels, channel, put, get;

    __device__ RowFeed(const RowsOf &f, const TileRows &t, int column)
        : tile(t), copies(f, column), channels((int)f.in), channel(0), put(0), get(0)
    {
        next = tile.n * (int)blockIdx.z / (int)gridDim.z;
        end = tile.n * ((int)blockIdx.z + 1) / (int)gridDim.z;
    }
    /* How many there are. */
    __device__ int count() const
    {
        return (end - next) * ((channels + Stage::DEEP - 1) / Stage::DEEP);
    }
    /* Begins to copy the next one, if there is one. */
    __device__ void fetch()
    {
        if (next < end) {
            if (channel == 0)
                copies.take(tile, next);
            copies.fetch(shared_memory() + put * Stage::BYTES, channel);
            channel += Stage::DEEP;
            if (channel >= channels) {
                channel = 0;
                next++;
            }
            put = put + 1 == S ? 0 : put + 1;
        }
        copies_commit();
    }
    /* Waits until it is there for all threads, which also have read the one before. */
    __device__ char *arrive()
    {
        copies_wait<S - 2>();
        __syncthreads();
        char *const at = shared_memory() + get * Stage::BYTES;
        get = get + 1 == S ? 0 : get + 1;
        return at;
    }
};

/* The sums of the splits, a piece a thread. */
template <class T>
__global__ void __launch_bounds__(THREADS) add_row_parts(const RowsOf f, const int splits)
{
    enum { P = piece_of<T>() };
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * P;
    const int64_t r = i / f.out, c = i - r * f.out;
    float sum[P] = {};
    if (r >= *f.joins.there)
        return;
    for (int s = 0; s < splits; s++) {
        Vec<float, 4> a[P / 4];
#pragma unroll
        for (int j = 0; j < P / 4; j++)
            a[j].load(f.part + s * f.rows * f.out + i + j * 4);
#pragma unroll
        for (int j = 0; j < P; j++)
            sum[j] += a[j / 4].get(j % 4);
    }
    if (f.bias.data)
        for (int j = 0; j < P; j++)
            sum[j] += (float)f.bias.get(0, c + j);
    Vec<T, P> y;
    y.set_all(sum);
    y.store(f.y.at<T>(r, c));
}

inline int splits_of(const struct wf_node *node, int64_t rows)
{
    const struct wf_sparse_conv_attrs *a = (const struct wf_sparse_conv_attrs *)node->attrs;
    const struct wf_shape &w = node->in[1]->shape;
    const int64_t out = w.at[a->back ? WF_C : WF_W];
    const int64_t tiles = larger<int64_t>(1, ceil_div(rows, ROWS) * ceil_div(out, width_of(out)));
    return (int)larger<int64_t>(1, smaller(smaller<int64_t>(SPLITS_MOST, w.at[WF_N] / 2), BLOCKS / tiles));
}

/* Of a type that has the fast kernels: no more offsets than a tile can list, and whole pieces of channels. */
inline bool rows_fit(const struct wf_node *node, int piece)
{
    const struct wf_shape &w = node->in[1]->shape;
    return w.at[WF_C] % piece == 0 && w.at[WF_W] % piece == 0 && w.at[WF_N] <= OFFSETS_MOST &&
           w.at[WF_C] * w.at[WF_W] <= INT32_MAX / 4;
}

inline RowsOf rows_of(const struct wf_call *call)
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
    return f;
}

/* Whether whole pieces may be moved. */
template <class T> bool takes_pieces(const RowsOf &f)
{
    return takes_pieces<T>(f.x) && takes_pieces<T>(f.y) && (uintptr_t)f.w % PIECE_BYTES == 0;
}

inline dim3 row_blocks(const RowsOf &f, int width, int splits)
{
    return dim3((unsigned)ceil_div(f.rows, ROWS), (unsigned)ceil_div(f.out, width), (unsigned)splits);
}

} // namespace wf
