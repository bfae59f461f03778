/*
 * What sparse_conv_wgrad on tensor cores has in common for all element types. A block sums over a part of the rows for
 * one offset: it lists the rows that have a neighbour there, a window at a time, and gathers those of x and dy, some
 * pairs at once, into panels of shared memory (panels.cuh). The parts are added in order.
 */
#pragma once

#include "device/cuda/panels.cuh"
#include "device/cuda/sparse.cuh"

namespace wf
{

enum {
    WEIGHT_THREADS = 256,
    WINDOW = 2048, /* rows that are listed at once */
    LISTED = WINDOW / WEIGHT_THREADS,
    BLOCKS_WANTED = 132 * 8,
    ROWS_LEAST = 512, /* of a part */
};

struct PairsOf {
    Features x, dy;
    Joins joins;
    int64_t in, out, each, parts; /* channels; rows of a part */
    float *part;                  /* [part][offset][out][in] */
    int32_t across, up;           /* tiles of channels and of filters */
};

/* Rows of x and dy that are joined. */
struct PairList {
    int32_t x[WINDOW];
    uint16_t dy[WINDOW]; /* from the window's first row on */
    int32_t sums[WEIGHT_THREADS / 32];

    /* Of the window's rows this thread looks at one in every 32. */
    static __device__ int place(int i)
    {
        return (int)threadIdx.x / 32 * (32 * LISTED) + i * 32 + (int)threadIdx.x % 32;
    }
    /* What rows [first, end), at most WINDOW, are joined with. */
    static __device__ void look(const Joins &joins, int64_t first, int64_t end, int k,
                                int32_t (&from)[LISTED])
    {
#pragma unroll
        for (int i = 0; i < LISTED; i++)
            from[i] = first + place(i) < end ? joins.at(first + place(i), k) : -1;
    }
    /* Lists them in order; returns how many there are. */
    __device__ int fill(const int32_t (&from)[LISTED])
    {
        uint32_t bits[LISTED];
        int mine = 0, at = 0, all = 0;
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
        for (int i = 0; i < LISTED; i++) {
            bits[i] = warp_bits(from[i] >= 0);
            mine += __popcll(bits[i]);
        }
        __syncthreads(); /* the list has been read */
        if (lane == 0)
            sums[warp] = mine;
        __syncthreads();
        for (int w = 0; w < WEIGHT_THREADS / 32; w++) {
            at += w < warp ? sums[w] : 0;
            all += sums[w];
        }
#pragma unroll
        for (int i = 0; i < LISTED; i++) {
            const int to = at + __popcll(bits[i] & ((1u << lane) - 1));
            if (from[i] >= 0) {
                x[to] = from[i];
                dy[to] = (uint16_t)place(i);
            }
            at += __popcll(bits[i]);
        }
        __syncthreads();
        return all;
    }
};

/* A stage: its pairs are rows of panels, which its products sum over. */
template <class T, int Filters, int N> struct PairStage {
    enum {
        COLUMNS = PANEL_ROW / (int)sizeof(T), /* of a panel */
        PAIRS = COLUMNS,
        PANEL = PAIRS * PANEL_ROW,
        UP = Filters / COLUMNS, /* panels of filters, and of channels */
        ACROSS = (N + COLUMNS - 1) / COLUMNS,
        A = UP * PANEL,
        BYTES = A + ACROSS * PANEL
    };
    static_assert(Filters % COLUMNS == 0, "whole panels");
};

/* What a thread copies for each stage: its piece of some of the listed rows, in some panels of channels. What does not
 * depend on the stage is found once. */
template <class T, int Panels> struct PairCopies {
    enum {
        COLUMNS = PANEL_ROW / (int)sizeof(T),
        PAIRS = COLUMNS,
        PANEL = PAIRS * PANEL_ROW,
        TOGETHER = WEIGHT_THREADS / PANEL_PIECES, /* rows that are copied at once */
        APART = TOGETHER * PANEL_ROW,
    };
    static_assert(TOGETHER % 8 == 0, "rows of one thread are exchanged alike");
    const char *from; /* its piece of row 0 */
    int32_t row, first, at; /* bytes of a row; its first row in a panel, and where that is */
    uint32_t valid;         /* a bit for each panel that has its channels */

    __device__ PairCopies(const Features &m, int channel, int channels)
    {
        const int p = (int)threadIdx.x % PANEL_PIECES;
        first = (int)threadIdx.x / PANEL_PIECES;
        at = place_across<T>(first, p);
        row = (int)(m.row * (int)sizeof(T));
        from = (const char *)m.data + channel * (int)sizeof(T) + p * PIECE_BYTES;
        valid = 0;
        for (int j = 0; j < Panels; j++)
            if (channel + j * COLUMNS + p * piece_of<T>() < channels)
                valid |= 1u << j;
    }
    /* Rows from the `next`-th of the list on, of which there are n. */
    template <class Row>
    __device__ void fetch(char *to, const char *base, const Row *rows, int next, int n) const
    {
#pragma unroll
        for (int i = 0; i < PAIRS / TOGETHER; i++) {
            const int r = next + first + i * TOGETHER;
            const bool there = r < n;
            const char *const row_at = base + (int64_t)(int32_t)rows[there ? r : 0] * row;
#pragma unroll
            for (int j = 0; j < Panels; j++)
                copy_piece(to + j * PANEL + at + i * APART, row_at + j * PANEL_ROW,
                           there && (valid >> j & 1));
        }
    }
};

/*
 * The pairs of a block, stage after stage, of which S are in shared memory:
 *
 *     for (PairFeed<...> feed(f, list); feed.window();)
 *         while (char *const stage = feed.arrive()) {
 *             feed.fetch();
 *             ... products of the stage
 *         }
 */
template <class T, int Filters, int N, int S> struct PairFeed {
    typedef PairStage<T, Filters, N> Stage;
    const PairsOf &f;
    PairList *const list;
    int64_t filter, column, row, end;
    int map_column;
    PairCopies<T, Stage::UP> up;
    PairCopies<T, Stage::ACROSS> across;
    int32_t from[LISTED];
    const char *rows_of_dy;
    int n, next, done, put, get;

    __device__ PairFeed(const PairsOf &pairs, PairList *l)
        : f(pairs), list(l), filter((int64_t)(tile() / f.across) * Filters),
          column((int64_t)(tile() % f.across) * N), row((int64_t)blockIdx.y * f.each),
          end(smaller<int64_t>(*f.joins.there, row + f.each)), map_column(f.joins.weight(offset())),
          up(f.dy, (int)filter, (int)f.out), across(f.x, (int)column, (int)f.in)
    {
        PairList::look(f.joins, row, end, map_column, from);
    }
    __device__ int tile() const
    {
        return (int)blockIdx.x % (f.across * f.up);
    }
    __device__ int offset() const
    {
        return (int)blockIdx.x / (f.across * f.up);
    }
    /* Of its sums. */
    __device__ float *part() const
    {
        return f.part + ((int64_t)blockIdx.y * f.joins.count + offset()) * f.out * f.in;
    }
    /* Lists the pairs of the next rows and begins with their first stages; false behind the last ones. */
    __device__ bool window()
    {
        if (row >= end)
            return false;
        n = list->fill(from);
        PairList::look(f.joins, row + WINDOW, end, map_column, from); /* comes meanwhile */
        rows_of_dy = up.from + row * up.row;
        next = done = put = get = 0;
        for (int i = 0; i < S - 1; i++)
            fetch();
        row += WINDOW;
        return true;
    }
    __device__ void fetch()
    {
        if (next < n) {
            char *const to = shared_memory() + put * Stage::BYTES;
            up.fetch(to, rows_of_dy, list->dy, next, n);
            across.fetch(to + Stage::A, across.from, list->x, next, n);
            next += Stage::PAIRS;
            put = put + 1 == S ? 0 : put + 1;
        }
        copies_commit();
    }
    /* Waits until the next stage is there for all threads, which also have read the one before; NULL: there is none. */
    __device__ char *arrive()
    {
        if (done >= n)
            return NULL;
        done += Stage::PAIRS;
        copies_wait<S - 2>();
        __syncthreads();
        char *const at = shared_memory() + get * Stage::BYTES;
        get = get + 1 == S ? 0 : get + 1;
        return at;
    }
};

/* --- launching --- */

/* Rows of a part, so that the GPU is filled. */
inline int64_t rows_of_part(const struct wf_shape &dw, int64_t rows, int filters)
{
    const int64_t tiles =
        dw.at[WF_N] * ceil_div(dw.at[WF_C], width_of(dw.at[WF_C])) * ceil_div(dw.at[WF_W], filters);
    const int64_t parts =
        larger<int64_t>(1, smaller(ceil_div(BLOCKS_WANTED, tiles), ceil_div(rows, ROWS_LEAST)));
    return larger<int64_t>(1, ceil_div(rows, parts));
}

inline PairsOf pairs_of(const struct wf_call *call, int filters)
{
    const struct wf_shape &dw = call->node->out[0]->shape;
    const int64_t rows = capacity_of(call->work);
    PairsOf f = {};
    f.x = features_of(call->in[0]);
    f.dy = features_of(call->in[1]);
    f.joins = joins_of(call, 2, dw.at[WF_N]);
    f.in = dw.at[WF_C];
    f.out = dw.at[WF_W];
    f.across = (int32_t)ceil_div(f.in, width_of(f.in));
    f.up = (int32_t)ceil_div(f.out, filters);
    f.each = rows_of_part(dw, rows, filters);
    f.parts = ceil_div(rows, f.each);
    f.part = f.parts > 1 ? (float *)call->scratch : (float *)call->out[0].data;
    return f;
}

inline dim3 pair_blocks(const PairsOf &f)
{
    return dim3((unsigned)(f.joins.count * f.across * f.up), (unsigned)f.parts);
}

/* Of the parts that tiles of so many filters make, or of the plain kernel's. */
inline bool pairs_prepare(struct wf_prepare *p, int filters, struct wf_err *err)
{
    const struct wf_shape &dw = p->node->out[0]->shape;
    const int64_t rows = capacity_of(p->work);
    const int64_t parts = ceil_div(rows, rows_of_part(dw, rows, filters));
    if (!wf_cuda_sparse_wgrad_prepare(p, err))
        return false;
    p->scratch_bytes =
        larger(p->scratch_bytes, (size_t)(parts * wf_shape_count(dw)) * sizeof(float));
    return true;
}

/* What pairs_product() ran for, or the plain kernel instead. */
inline void pairs_finish(const struct wf_call *call, const PairsOf &f, bool ran)
{
    if (!ran)
        wf_cuda_sparse_wgrad(call);
    else if (f.parts > 1)
        add_weight_parts({ f.part, (float *)call->out[0].data, f.joins.count * f.out * f.in,
                           (int32_t)f.parts },
                         wf_cuda_stream(call));
}

} // namespace wf
