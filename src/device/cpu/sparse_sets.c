/*
 * Sets of coordinates made of sets, on the CPU and without memory of its own.
 *
 * A coarser lattice mostly keeps the order of rows: then a row begins a new one where it falls to another place
 * than the row before it. Stretches of rows are counted first, and written when it is known where each begins.
 */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "device/cpu/cpu.h"
#include "ops/sparse.h"

enum { STRETCH = 2048, WIDTH = 1 + WF_SPARSE_AXES };

struct coarsening {
    const struct wf_coords_stride_attrs *a;
    const int32_t *from;
    int64_t n;
    int width;
};

static void coarse_row(const struct coarsening *c, int64_t i, int32_t to[])
{
    const int32_t *const row = c->from + i * c->width;
    to[0] = row[0];
    for (int d = 1; d < c->width; d++) {
        const int64_t stride = c->a->stride[d - 1];
        to[d] = (int32_t)(wf_floor_div(row[d], stride) * stride);
    }
}

static size_t row_bytes(const struct coarsening *c)
{
    return (size_t)c->width * sizeof(int32_t);
}

/* The rows that begin in a stretch; also written where `to` is given. */
static int64_t stretch(const struct coarsening *c, int64_t s, int32_t *to)
{
    int32_t last[WIDTH], row[WIDTH];
    int64_t made = 0;
    if (s > 0)
        coarse_row(c, s * STRETCH - 1, last);
    for (int64_t i = s * STRETCH; i < wf_min(c->n, (s + 1) * STRETCH); i++) {
        coarse_row(c, i, row);
        if (i > 0 && memcmp(row, last, row_bytes(c)) == 0)
            continue;
        memcpy(last, row, row_bytes(c));
        if (to)
            memcpy(to + made * c->width, row, row_bytes(c));
        made++;
    }
    return made;
}

/* --- where the order does not stay: a heap, which needs no memory --- */

static void swap(const struct coarsening *c, int32_t *a, int32_t *b)
{
    int32_t row[WIDTH];
    memcpy(row, a, row_bytes(c));
    memcpy(a, b, row_bytes(c));
    memcpy(b, row, row_bytes(c));
}

static bool is_before(const struct coarsening *c, const int32_t *a, const int32_t *b)
{
    return wf_coords_compare(a, b, c->width - 1, c->a->stride) < 0;
}

static void sink(const struct coarsening *c, int32_t *rows, int64_t at, int64_t n)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(c, rows + child * c->width, rows + (child + 1) * c->width))
            child++;
        if (!is_before(c, rows + at * c->width, rows + child * c->width))
            return;
        swap(c, rows + at * c->width, rows + child * c->width);
    }
}

static void sort(const struct coarsening *c, int32_t *rows)
{
    for (int64_t i = c->n / 2 - 1; i >= 0; i--)
        sink(c, rows, i, c->n);
    for (int64_t n = c->n - 1; n > 0; n--) {
        swap(c, rows, rows + n * c->width);
        sink(c, rows, 0, n);
    }
}

/* --- the kernel --- */

static int64_t stretches_of(int64_t rows)
{
    return wf_ceil_div(rows, STRETCH);
}

/* Where stretches begin, then the rows that are sorted. */
static bool stride_prepare(struct wf_prepare *p, struct wf_err *)
{
    const struct wf_coords_stride_attrs *a = p->node->attrs;
    const int64_t rows = wf_region_extent(p->in[0].box, WF_N);
    p->scratch_bytes = (size_t)(stretches_of(rows) + 1) * sizeof(int64_t);
    if (!wf_coords_keeps_order(a))
        p->scratch_bytes += (size_t)(rows * (1 + a->dims)) * sizeof(int32_t);
    return true;
}

static void stride_run(const struct wf_call *call)
{
    const struct wf_coords_stride_attrs *a = call->node->attrs;
    const int64_t room = wf_region_extent(call->out[0].box, WF_N);
    struct coarsening c = { .a = a,
                            .from = wf_sparse_coords(&call->in[0]),
                            .n = wf_sparse_rows(call, call->node->in[0]),
                            .width = (int)a->dims + 1 };
    const int64_t stretches = stretches_of(c.n);
    int64_t *const first = call->scratch;
    int64_t count = 0;
    if (!wf_coords_keeps_order(a)) {
        int32_t *const rows = (int32_t *)(void *)(first + stretches + 1);
        for (int64_t i = 0; i < c.n; i++)
            coarse_row(&c, i, rows + i * c.width);
        sort(&c, rows);
        c.from = rows;
    }
    WF_PARALLEL_FOR
    for (int64_t s = 0; s < stretches; s++)
        first[s] = stretch(&c, s, NULL);
    for (int64_t s = 0; s < stretches; s++) {
        const int64_t here = first[s];
        first[s] = count;
        count += here;
    }
    WF_BUG_ON(count > room, "'%s': %" PRId64 " rows, and room for %" PRId64, call->node->name,
              count, room);
    WF_PARALLEL_FOR
    for (int64_t s = 0; s < stretches; s++)
        (void)stretch(&c, s, wf_sparse_coords(&call->out[0]) + first[s] * c.width);
    call->rows[a->set] = (int32_t)count;
}

const struct wf_kernel wf_cpu_kernels_sparse_sets[] = {
    { .op = "coords_stride",
      .flags = WF_KERNEL_DENSE,
      .prepare = stride_prepare,
      .run = stride_run },
    { 0 },
};
