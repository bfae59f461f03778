/*
 * sparse_conv_wgrad of 16-bit features by tensor cores. A block sums over a part of the rows for one offset: it lists
 * the rows that have a neighbour there, a window at a time, gathers those of x and dy, 64 pairs at once,
 * into panels (panels.cuh), and multiplies them. The parts are added in order.
 */
#include "device/cuda/panels.cuh"
#include "device/cuda/sparse.cuh"

namespace wf
{

enum {
    WEIGHT_THREADS = 256,
    FILTERS = 2 * WARPS_ROWS, /* of a tile */
    PAIRS = 64,               /* of a panel */
    STAGES = 3,
    WINDOW = 2048,            /* rows that are listed at once */
    LISTED = WINDOW / WEIGHT_THREADS,
    BLOCKS_WANTED = 132 * 8,
    ROWS_LEAST = 512, /* of a part */
};

struct PairsOf {
    Features x, dy;
    Joins joins;
    int64_t in, out, each; /* channels; rows of a part */
    float *part;           /* [part][offset][out][in] */
    int32_t across, up;    /* tiles of channels and of filters */
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

/* What a thread copies for each stage: its piece of some of the listed rows, in some panels of channels. What does not
 * depend on the stage is found once. */
template <int Panels> struct PairCopies {
    enum {
        TOGETHER = WEIGHT_THREADS / PIECE, /* rows that are copied at once */
        APART = TOGETHER * PANEL_ROW,
    };
    static_assert(TOGETHER % 8 == 0, "rows of one thread are exchanged alike");
    const char *from; /* its piece of row 0 */
    int32_t row, first, at; /* bytes of a row; its first row in a panel, and where that is */
    uint32_t valid;         /* a bit for each panel that has its channels */

    __device__ PairCopies(const Features &m, int channel, int channels)
    {
        const int p = (int)threadIdx.x % PIECE;
        first = (int)threadIdx.x / PIECE;
        at = first * PANEL_ROW + ((p ^ (first & 7)) << 4);
        row = (int)m.row * 2;
        from = (const char *)m.data + (channel + p * PIECE) * 2;
        valid = 0;
        for (int j = 0; j < Panels; j++)
            if (channel + j * PANEL_COLUMNS + p * PIECE < channels)
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
                copy_piece(to + j * PANEL_BYTES + at + i * APART, row_at + j * PANEL_ROW,
                           there && (valid >> j & 1));
        }
    }
};

template <int N> struct PairStage {
    enum {
        PANELS = (N + PANEL_COLUMNS - 1) / PANEL_COLUMNS,
        A = FILTERS / PANEL_COLUMNS * PANEL_BYTES,
        BYTES = A + PANELS * PANEL_BYTES
    };
};

template <class T, int N>
__global__ void __launch_bounds__(WEIGHT_THREADS, 2) pairs_product(const PairsOf f)
{
    typedef PairStage<N> Stage;
    PairList *const list = (PairList *)(shared_memory() + STAGES * Stage::BYTES);
    const int tile = (int)blockIdx.x % (f.across * f.up), of = (int)blockIdx.x / (f.across * f.up);
    const int64_t column = (int64_t)(tile % f.across) * N, filter = (int64_t)(tile / f.across) * FILTERS;
    const int64_t first = (int64_t)blockIdx.y * f.each;
    const int64_t end = smaller<int64_t>(*f.joins.there, first + f.each);
    const int column_of_map = f.joins.weight(of);
    float sum[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sum[i] = 0;
    const PairCopies<FILTERS / PANEL_COLUMNS> up(f.dy, (int)filter, (int)f.out);
    const PairCopies<Stage::PANELS> down(f.x, (int)column, (int)f.in);
    const int of_warps = same_in_warp((int)threadIdx.x / 128);
    int32_t from[LISTED];
    PairList::look(f.joins, first, end, column_of_map, from);
    for (int64_t row = first; row < end; row += WINDOW) {
        const int n = list->fill(from);
        PairList::look(f.joins, row + WINDOW, end, column_of_map, from); /* comes meanwhile */
        const char *const window = up.from + row * up.row;
        int next = 0, put = 0, get = 0;
        const auto fetch = [&] {
            if (next < n) {
                char *const to = shared_memory() + put * Stage::BYTES;
                up.fetch(to, window, list->dy, next, n);
                down.fetch(to + Stage::A, down.from, list->x, next, n);
                next += PAIRS;
                put = put + 1 == STAGES ? 0 : put + 1;
            }
            copies_commit();
        };
        for (int i = 0; i < STAGES - 1; i++)
            fetch();
        for (int p = 0; p < n; p += PAIRS) {
            copies_wait<STAGES - 2>();
            __syncthreads(); /* this stage is there, and the last one has been read */
            char *const at = shared_memory() + get * Stage::BYTES;
            sums_stay(sum);
            products_begin();
#pragma unroll
            for (int k = 0; k < PAIRS / 16; k++)
                product<T, true, true>(sum, at + of_warps * PANEL_BYTES, at + Stage::A, k,
                                       1);
            products_commit();
            get = get + 1 == STAGES ? 0 : get + 1;
            fetch();
            products_wait<0>(); /* here: where loops end, sums that are under way would wait for each other */
            sums_stay(sum);
        }
    }
    float *const part =
        f.part + ((int64_t)blockIdx.y * f.joins.count + of) * f.out * f.in;
#pragma unroll
    for (int i = 0; i < N / 2; i += 2) {
        const int64_t o =
            filter + (int)threadIdx.x / 32 * 16 + i % 4 / 2 * 8 + (int)threadIdx.x % 32 / 4;
        const int64_t c = column + i / 4 * PIECE + (int)threadIdx.x % 4 * 2;
        if (o < f.out && c < f.in)
            *(uint2 *)&part[o * f.in + c] =
                uint2{ __float_as_uint(sum[i]), __float_as_uint(sum[i + 1]) };
    }
}

static int width_of(int64_t in)
{
    return in <= 32 ? 32 : in <= 64 ? 64 : in % 128 == 0 ? 128 : in % 96 == 0 ? 96 : 128;
}

/* Rows of a part, so that the GPU is filled. */
static int64_t rows_of_part(const struct wf_shape &dw, int64_t rows)
{
    const int64_t tiles =
        dw.at[WF_N] * ceil_div(dw.at[WF_C], width_of(dw.at[WF_C])) * ceil_div(dw.at[WF_W], FILTERS);
    const int64_t parts =
        larger<int64_t>(1, smaller(ceil_div(BLOCKS_WANTED, tiles), ceil_div(rows, ROWS_LEAST)));
    return larger<int64_t>(1, ceil_div(rows, parts));
}

template <class T> static bool pairs_run(const struct wf_call *call, const PairsOf &f, int64_t parts)
{
    const dim3 grid((unsigned)(f.joins.count * f.across * f.up), (unsigned)parts);
    const auto run = [&](auto n) {
        enum { N = decltype(n)::value };
        return launch_sharing(pairs_product<T, N>, grid, WEIGHT_THREADS,
                              STAGES * PairStage<N>::BYTES + (int)sizeof(PairList),
                              wf_cuda_stream(call), f);
    };
    switch (width_of(f.in)) {
    case 32:
        return run(Int<32>());
    case 64:
        return run(Int<64>());
    case 96:
        return run(Int<96>());
    default:
        return run(Int<128>());
    }
}

static bool takes_pieces(const Features &m)
{
    return m.step == 1 && m.row % PIECE == 0 && (uintptr_t)m.data % 16 == 0;
}

} // namespace wf

using namespace wf;

bool wf_cuda_rows_wgrad_fit(const struct wf_node *node)
{
    const struct wf_shape &dw = node->out[0]->shape;
    return PANELS_HERE && gpu_has_panels() && wf_dtype_size(node->in[0]->dtype) == 2 &&
           dw.at[WF_C] % PIECE == 0 && dw.at[WF_W] % PIECE == 0 && node->out[0]->dtype == WF_F32;
}

bool wf_cuda_rows_wgrad_prepare(struct wf_prepare *p, struct wf_err *err)
{
    const struct wf_shape &dw = p->node->out[0]->shape;
    const int64_t rows = capacity_of(p->work);
    const int64_t parts = ceil_div(rows, rows_of_part(dw, rows));
    if (!wf_cuda_sparse_wgrad_prepare(p, err))
        return false;
    p->scratch_bytes =
        larger(p->scratch_bytes, (size_t)(parts * wf_shape_count(dw)) * sizeof(float));
    return true;
}

void wf_cuda_rows_wgrad(const struct wf_call *call)
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
    f.up = (int32_t)ceil_div(f.out, FILTERS);
    f.each = rows_of_part(dw, rows);
    const int64_t parts = ceil_div(rows, f.each);
    f.part = parts > 1 ? (float *)call->scratch : (float *)call->out[0].data;
    bool ran = false;
    if (rows > 0 && takes_pieces(f.x) && takes_pieces(f.dy))
        with_type(call->in[0].dtype, [&](auto t) {
            typedef decltype(t) T;
            if constexpr (sizeof(T) == 2)
                ran = pairs_run<T>(call, f, parts);
        });
    if (ran && parts > 1)
        add_weight_parts({ f.part, (float *)call->out[0].data, wf_shape_count(dw), (int32_t)parts },
                         wf_cuda_stream(call));
    else if (!ran)
        wf_cuda_sparse_wgrad(call);
}
