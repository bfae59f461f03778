/*
 * First layers of sparse networks: a large kernel on few channels of 16 bits. Most offsets lead nowhere, so there is
 * no map (kernel_map is fused into these kernels): for each row the cubes around it are looked up in an index
 * (sparse_index.cuh). What is there is listed, so that the warp's threads share it evenly, and spread out in shared memory
 * as panels of (offset, channel), zeros elsewhere. The products are those of plain matrices (panels.cuh). Blocks go on from tile to
 * tile.
 */
#include "device/cuda/panels.cuh"
#include "device/cuda/sparse_index.cuh"

namespace wf
{

enum {
    STEM_ROWS = WARPS_ROWS,
    STEM_THREADS = 512,
    STEM_PANELS = 8, /* most */
    STEM_CHANNELS = 8,
    STEM_FILTERS = 64,
    STEM_BLOCKS = 132 * 2,
    CUBES_MOST = 27, /* around a row */
    STEM_LISTED = 128, /* neighbours that a warp lists at once */
    STEM_PLACES = 64,  /* of a cube */
};

struct Stem {
    Cubes cubes;
    Features x, y; /* y: or dy */
    const uint16_t *w;
    Table bias;
    float *part;
    int64_t in, out;
    int32_t count, panels, around; /* cubes that a row reaches along an axis */
    int32_t mirrored;
    int32_t kernel[WF_SPARSE_AXES];
};

/* Neighbours of the rows of a warp. */
struct StemLists {
    int32_t row[STEM_THREADS / 32][STEM_LISTED];
    uint32_t where[STEM_THREADS / 32][STEM_LISTED]; /* column of the panels, and from bit 16 on their row */
    unsigned count[STEM_THREADS / 32];
    int32_t column[STEM_PLACES]; /* of a place, from that of its cube on */
};

/* The places of a cube whose coordinate along an axis is in [lo, hi). */
template <int Dims> __device__ inline uint64_t slab(int d, int lo, int hi)
{
    enum { BITS = 6 / Dims, WIDE = 1 << BITS };
    uint64_t mask = 0;
#pragma unroll
    for (int v = 0; v < WIDE; v++) {
        uint64_t plane = ~UINT64_C(0) >> (64 - (1 << BITS * Dims)); /* of coordinate v */
#pragma unroll
        for (int b = 0; b < BITS; b++) {
            uint64_t ones = 0; /* places whose bit b along d is set */
#pragma unroll
            for (int p = 0; p < 1 << BITS * Dims; p++)
                ones |= (uint64_t)(p >> (b * Dims + Dims - 1 - d) & 1) << p;
            plane &= v >> b & 1 ? ones : ~ones;
        }
        if (v >= lo && v < hi)
            mask |= plane;
    }
    return mask;
}

/* What one of the cubes around a row has for it. */
struct StemCube {
    uint64_t left, there; /* places: that are to be listed, all */
    int32_t first, column;
};

template <int Dims> __device__ inline StemCube find_cube(const Stem &f, int64_t row, int which)
{
    enum { BITS = 6 / Dims };
    const Cubes &c = f.cubes;
    int32_t cube[BATCH_AND_AXES], step = f.mirrored ? -(int32_t)f.in : (int32_t)f.in;
    StemCube found = {};
    uint64_t window = ~UINT64_C(0);
    found.column = f.mirrored ? (f.count - 1) * (int32_t)f.in : 0;
    cube[0] = c.rows[row * (1 + Dims)];
#pragma unroll
    for (int d = 0; d < Dims; d++) {
        const int32_t at = c.lattice<Dims>(row, d), reach = f.kernel[d] / 2;
        const int64_t from = ((int64_t)at - reach) >> BITS, to = ((int64_t)at + reach) >> BITS;
        const int64_t mine = from + which % f.around;
        which /= f.around;
        if (mine > to || mine != (int32_t)mine)
            return found;
        cube[1 + d] = (int32_t)mine;
        const int32_t low = (int32_t)((mine << BITS) - ((int64_t)at - reach)); /* in the kernel */
        window &= slab<Dims>(d, -low, f.kernel[d] - low);
        found.column += low * step;
        step *= f.kernel[d];
    }
    const int64_t slot = c.find<Dims>(cube, &found.first);
    if (slot < 0)
        return found;
    found.there = c.places[slot];
    found.left = found.there & window;
    return found;
}

/* Lists what there is room for. */
__device__ inline void list_cube(StemLists &lists, StemCube &cube, int r)
{
    const int warp = (int)threadIdx.x / 32;
    unsigned e = cube.left ? atomicAdd(&lists.count[warp], (unsigned)__popcll(cube.left)) : 0;
    for (; cube.left && e < STEM_LISTED; e++, cube.left &= cube.left - 1) {
        const int place = __ffsll((long long)cube.left) - 1;
        lists.row[warp][e] = cube.first + __popcll(cube.there & ((UINT64_C(1) << place) - 1));
        lists.where[warp][e] = (uint32_t)(cube.column + lists.column[place]) | (uint32_t)r << 16;
    }
}

/* The channels of what is listed, into the panels. */
__device__ inline void put_listed(const Stem &f, const StemLists &lists, char *panels)
{
    const int warp = (int)threadIdx.x / 32, in = (int)f.in;
    const int n = smaller<int>(STEM_LISTED, (int)lists.count[warp]);
    for (int e = (int)threadIdx.x % 32; e < n; e += 32) {
        const uint32_t where = lists.where[warp][e], row = where >> 16, turned = (row & 7) << 4;
        const uint16_t *const x = f.x.at<uint16_t>(lists.row[warp][e], 0);
        char *const to = panels + row * PANEL_ROW;
        for (int i = 0; i < in; i++) {
            const uint32_t column = (where & 0xffff) + i;
            *(uint16_t *)(to + column / PANEL_COLUMNS * PANEL_BYTES +
                          (column % PANEL_COLUMNS * 2 ^ turned)) = x[i * f.x.step];
        }
    }
}

/* Rows [first, first + STEM_ROWS). */
template <int Dims>
__device__ inline void spread(const Stem &f, StemLists &lists, char *panels, int64_t first,
                              int64_t rows)
{
    const int warp = (int)threadIdx.x / 32;
    int cubes = 1;
    for (int d = 0; d < Dims; d++)
        cubes *= f.around;
    for (int i = (int)threadIdx.x; i < f.panels * (PANEL_BYTES / 16); i += STEM_THREADS)
        ((uint4 *)panels)[i] = uint4{ 0, 0, 0, 0 };
    __syncthreads();
    for (int i = (int)threadIdx.x; i < STEM_ROWS * cubes; i += STEM_THREADS) { /* by whole warps */
        const int r = i / cubes;
        StemCube cube = {};
        if (first + r < rows)
            cube = find_cube<Dims>(f, first + r, i % cubes);
        while (warp_bits(cube.left != 0)) {
            if (threadIdx.x % 32 == 0)
                lists.count[warp] = 0;
            __syncwarp();
            list_cube(lists, cube, r);
            __syncwarp();
            put_listed(f, lists, panels);
            __syncwarp();
        }
    }
    shared_is_written();
    __syncthreads();
}

/* Once, before rows are spread out; a barrier follows. */
template <int Dims> __device__ inline void begin_lists(const Stem &f, StemLists &lists)
{
    enum { PLACES = 1 << 6 / Dims * Dims };
    static_assert((int)PLACES <= (int)STEM_PLACES, "a cube has so many places");
    const int place = (int)threadIdx.x;
    if (place >= PLACES)
        return;
    int32_t column = 0, step = f.mirrored ? -(int32_t)f.in : (int32_t)f.in;
    for (int d = 0; d < Dims; d++) {
        column += f.cubes.axis_of<Dims>(place, d) * step;
        step *= f.kernel[d];
    }
    lists.column[place] = column;
}

template <class T, int Dims, int N>
__global__ void __launch_bounds__(STEM_THREADS, 2) stem_product(const Stem f)
{
    __shared__ StemLists lists;
    char *const panels = shared_memory(), *const weights = panels + f.panels * PANEL_BYTES;
    const int64_t rows = *f.cubes.there;
    begin_lists<Dims>(f, lists);
    for (int i = (int)threadIdx.x; i < f.panels * N * PANEL_COLUMNS; i += STEM_THREADS) {
        const int column = i % (f.panels * PANEL_COLUMNS), n = i / (f.panels * PANEL_COLUMNS);
        const int k = column / (int)f.in, c = column % (int)f.in;
        const bool valid = k < f.count && n < f.out;
        char *const panel = weights + column / PANEL_COLUMNS * (N * PANEL_ROW);
        ((uint16_t *)piece(panel, n, column % PANEL_COLUMNS / PIECE))[column % PIECE] =
            valid ? f.w[((int64_t)k * f.out + n) * f.in + c] : (uint16_t)0;
    }
    for (int64_t first = (int64_t)blockIdx.x * STEM_ROWS; first < rows;
         first += (int64_t)gridDim.x * STEM_ROWS) {
        spread<Dims>(f, lists, panels, first, rows);
        if (threadIdx.x < 128) {
            float sum[N / 2];
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                sum[i] = 0;
            sums_stay(sum);
            products_begin();
            for (int p = 0; p < f.panels; p++)
#pragma unroll
                for (int k = 0; k < PANEL_COLUMNS / 16; k++)
                    product<T, false, false>(sum, panels + p * PANEL_BYTES,
                                             weights + p * (N * PANEL_ROW), k, 1);
            products_commit();
            products_wait<0>();
#pragma unroll
            for (int i = 0; i < N / 2; i += 2) {
                const int64_t r = first + (int)threadIdx.x / 32 * 16 + i % 4 / 2 * 8 +
                                  (int)threadIdx.x % 32 / 4;
                const int64_t c = i / 4 * PIECE + (int)threadIdx.x % 4 * 2;
                for (int j = 0; j < 2; j++)
                    if (r < rows && c + j < f.out)
                        *f.y.at<T>(r, c + j) = To<T>::from(
                            sum[i + j] + (f.bias.data ? (float)f.bias.get(0, c + j) : 0.0f));
            }
        }
        __syncthreads();
    }
}

/* Every four warps have every fourth panel. */
template <class T, int Dims>
__global__ void __launch_bounds__(STEM_THREADS) stem_pairs(const Stem f)
{
    enum { WAYS = STEM_THREADS / 128, MINE = STEM_PANELS / WAYS };
    __shared__ StemLists lists;
    char *const panels = shared_memory(), *const up = panels + f.panels * PANEL_BYTES;
    const int64_t rows = *f.cubes.there;
    begin_lists<Dims>(f, lists);
    const int way = (int)threadIdx.x / 128;
    float sum[MINE][32];
#pragma unroll
    for (int p = 0; p < MINE; p++)
#pragma unroll
        for (int i = 0; i < 32; i++)
            sum[p][i] = 0;
    for (int64_t first = (int64_t)blockIdx.x * STEM_ROWS; first < rows;
         first += (int64_t)gridDim.x * STEM_ROWS) {
        for (int i = (int)threadIdx.x; i < STEM_ROWS * PIECE; i += STEM_THREADS) {
            const int r = i / PIECE, p = i % PIECE;
            const bool valid = first + r < rows && p * PIECE < f.out;
            copy_piece(piece(up, r, p),
                       (const uint16_t *)f.y.data +
                           (valid ? (first + r) * f.y.row + p * PIECE : 0),
                       valid);
        }
        copies_commit();
        spread<Dims>(f, lists, panels, first, rows);
        copies_wait<0>();
        __syncthreads();
#pragma unroll
        for (int p = 0; p < MINE; p++)
            sums_stay(sum[p]);
        products_begin();
#pragma unroll
        for (int p = 0; p < MINE; p++) {
            /* Where there are fewer panels the last one is taken for nothing: products that depend on a
             * condition would wait for each other. */
            const int panel = smaller(WAYS * p + way, f.panels - 1);
#pragma unroll
            for (int k = 0; k < STEM_ROWS / 16; k++)
                product<T, true, true>(sum[p], up, panels + panel * PANEL_BYTES, k, 1);
        }
        products_commit();
        products_wait<0>();
        __syncthreads();
    }
    float *const part = f.part + (int64_t)blockIdx.x * f.count * f.out * f.in;
#pragma unroll
    for (int p = 0; p < MINE; p++)
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int64_t o = (int)threadIdx.x % 128 / 32 * 16 + i % 4 / 2 * 8 +
                              (int)threadIdx.x % 32 / 4;
            const int64_t column = (WAYS * p + way) * PANEL_COLUMNS + i / 4 * PIECE +
                                   (int)threadIdx.x % 4 * 2 + i % 2;
            const int64_t k = column / f.in;
            if (k < f.count && o < f.out)
                part[(k * f.out + o) * f.in + column % f.in] = sum[p][i];
        }
}

/* Cubes that a row may reach along an axis. */
static int cubes_around(const struct wf_kernel_map_attrs *a)
{
    int most = 1;
    for (int d = 0; d < a->dims; d++)
        most = larger<int>(most, (int)(a->kernel[d] - 2) / (1 << 6 / a->dims) + 2);
    return most;
}

static bool map_fits(const struct wf_node *maker, const struct wf_shape &w)
{
    if (!maker || maker->op != &wf_op_kernel_map || maker->in[0] != maker->in[1])
        return false;
    const struct wf_kernel_map_attrs *a = (const struct wf_kernel_map_attrs *)maker->attrs;
    double cubes = 1;
    for (int d = 0; d < a->dims; d++) {
        cubes *= cubes_around(a);
        if (a->kernel[d] % 2 == 0 || a->step[d] != a->in_stride[d])
            return false;
    }
    return !a->cross && a->dims <= 3 && cubes <= CUBES_MOST && w.at[WF_N] > 27 && w.at[WF_C] <= STEM_CHANNELS &&
           w.at[WF_N] * w.at[WF_C] <= STEM_PANELS * PANEL_COLUMNS && w.at[WF_W] <= STEM_FILTERS &&
           w.at[WF_W] % PIECE == 0;
}

static Stem stem_of(const struct wf_call *call, int map, const struct wf_shape &w)
{
    const struct wf_fused_input &fused = call->fused[map];
    const struct wf_kernel_map_attrs *a = (const struct wf_kernel_map_attrs *)fused.node->attrs;
    const struct wf_sparse_conv_attrs *c = (const struct wf_sparse_conv_attrs *)call->node->attrs;
    const int64_t rows = capacity_of(call->in[0].box);
    Stem f = {};
    f.cubes = cubes_of(a, wf_sparse_coords(&fused.in[0]), call->rows + fused.node->in[0]->set, rows,
                       call->scratch);
    f.x = features_of(call->in[0]);
    f.in = w.at[WF_C];
    f.out = w.at[WF_W];
    f.count = (int32_t)w.at[WF_N];
    f.panels = (int32_t)ceil_div(f.count * f.in, PANEL_COLUMNS);
    f.around = cubes_around(a);
    f.mirrored = (int32_t)c->mirrored;
    for (int d = 0; d < a->dims; d++)
        f.kernel[d] = (int32_t)a->kernel[d];
    return f;
}

template <class F> static void with_dims(int dims, F f)
{
    if (dims == 3)
        f(Int<3>());
    else if (dims == 2)
        f(Int<2>());
    else
        f(Int<1>());
}

static dim3 stem_grid(int64_t rows)
{
    return dim3((unsigned)larger<int64_t>(1, smaller<int64_t>(STEM_BLOCKS, ceil_div(rows, STEM_ROWS))));
}

static bool is_half(const struct wf_node *node)
{
    return PANELS_HERE && gpu_has_panels() && wf_dtype_size(node->in[0]->dtype) == 2;
}

static bool has_fused(const struct wf_call *call, int input)
{
    return call->fused && call->fused[input].node;
}

} // namespace wf

using namespace wf;

bool wf_cuda_rows_stem_fit(const struct wf_node *node)
{
    const struct wf_sparse_conv_attrs *a = (const struct wf_sparse_conv_attrs *)node->attrs;
    return is_half(node) && !a->back && node->in[2] &&
           map_fits(node->in[2]->producer, node->in[1]->shape);
}

bool wf_cuda_rows_stem_wgrad_fit(const struct wf_node *node)
{
    return is_half(node) && node->in[2] && map_fits(node->in[2]->producer, node->out[0]->shape);
}

bool wf_cuda_rows_stem_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = cubes_bytes(capacity_of(p->in[0].box));
    return true;
}

void wf_cuda_rows_stem(const struct wf_call *call)
{
    const struct wf_shape &w = call->node->in[1]->shape;
    const int64_t rows = capacity_of(call->work);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    if (rows < 1)
        return;
    if (!has_fused(call, 2)) {
        wf_cuda_sparse_conv(call);
        return;
    }
    Stem f = stem_of(call, 2, w);
    f.w = (const uint16_t *)call->in[1].data;
    f.y = features_of(call->out[0]);
    f.bias = table_of(call->in[3]);
    cubes_build(f.cubes, capacity_of(call->in[0].box), stream);
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        if constexpr (sizeof(T) == 2) {
            const bool narrow = f.out <= 32;
            const int bytes = f.panels * (PANEL_BYTES + (narrow ? 32 : 64) * PANEL_ROW);
            bool ran = false;
            with_dims(f.cubes.dims, [&](auto d) {
                enum { DIMS = decltype(d)::value };
                ran = narrow ? launch_sharing(stem_product<T, DIMS, 32>, stem_grid(rows),
                                              STEM_THREADS, bytes, stream, f)
                             : launch_sharing(stem_product<T, DIMS, 64>, stem_grid(rows),
                                              STEM_THREADS, bytes, stream, f);
            });
            WF_BUG_ON(!ran, "'%s': %d bytes of shared memory", call->node->name, bytes);
        }
    });
}

bool wf_cuda_rows_stem_wgrad_prepare(struct wf_prepare *p, struct wf_err *err)
{
    const int64_t rows = capacity_of(p->work);
    if (!wf_cuda_sparse_wgrad_prepare(p, err))
        return false;
    p->scratch_bytes =
        larger(p->scratch_bytes,
               cubes_bytes(capacity_of(p->in[0].box)) +
                   (size_t)(stem_grid(rows).x * wf_shape_count(p->node->out[0]->shape)) *
                       sizeof(float));
    return true;
}

void wf_cuda_rows_stem_wgrad(const struct wf_call *call)
{
    const struct wf_shape &dw = call->node->out[0]->shape;
    const int64_t rows = capacity_of(call->work);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    const Features dy = features_of(call->in[1]);
    if (rows < 1 || !has_fused(call, 2)) {
        wf_cuda_sparse_wgrad(call);
        return;
    }
    WF_BUG_ON(dy.step != 1 || dy.row % PIECE != 0 || (uintptr_t)dy.data % 16 != 0,
              "'%s': dy lies oddly", call->node->name);
    Stem f = stem_of(call, 2, dw);
    f.y = dy;
    f.part = (float *)((char *)call->scratch + cubes_bytes(capacity_of(call->in[0].box)));
    cubes_build(f.cubes, capacity_of(call->in[0].box), stream);
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        if constexpr (sizeof(T) == 2) {
            const int bytes = (f.panels + 1) * PANEL_BYTES;
            bool ran = false;
            with_dims(f.cubes.dims, [&](auto d) {
                ran = launch_sharing(stem_pairs<T, decltype(d)::value>, stem_grid(rows),
                                     STEM_THREADS, bytes, stream, f);
            });
            WF_BUG_ON(!ran, "'%s': %d bytes of shared memory", call->node->name, bytes);
        }
    });
    add_weight_parts({ f.part, (float *)call->out[0].data, wf_shape_count(dw),
                       (int32_t)stem_grid(rows).x },
                     stream);
}
