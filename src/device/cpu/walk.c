#include "device/cpu/cpu.h"

void wf_cpu_walk_init(struct wf_cpu_walk *walk, struct wf_region work)
{
    *walk = (struct wf_cpu_walk){ .work = work };
}

static struct wf_cpu_side *next_side(struct wf_cpu_walk *walk)
{
    WF_BUG_ON(walk->n_sides == WF_CPU_SIDES, "more than %d sides", WF_CPU_SIDES);
    return &walk->side[walk->n_sides++];
}

void wf_cpu_walk_add(struct wf_cpu_walk *walk, const struct wf_view *view, struct wf_region part)
{
    struct wf_cpu_side *side = next_side(walk);
    side->dtype = view->dtype;
    side->unit = wf_region_extent(part, WF_C);
    side->inner = view->stride[WF_C];
    memcpy(side->stride, view->stride, sizeof side->stride);
    if (wf_region_is_empty(walk->work))
        return;
    for (int a = 0; a < WF_C; a++)
        WF_BUG_ON(part.hi[a] - part.lo[a] != walk->work.hi[a] - walk->work.lo[a],
                  "side %d: axis %d", walk->n_sides - 1, a);
    const struct wf_view inside = wf_view_part(*view, part);
    side->data = inside.data;
}

void wf_cpu_walk_add_index(struct wf_cpu_walk *walk, struct wf_shape whole)
{
    struct wf_cpu_side *side = next_side(walk);
    const struct wf_view view = wf_view_dense(NULL, WF_U8, wf_shape_region(whole));
    const int64_t *lo = walk->work.lo;
    side->dtype = WF_U8;
    side->unit = wf_region_extent(walk->work, WF_C);
    side->inner = 1;
    side->base = wf_view_offset(&view, lo[WF_N], lo[WF_D], lo[WF_H], lo[WF_W], lo[WF_C]);
    memcpy(side->stride, view.stride, sizeof side->stride);
}

/* Axis `a` lies around the last merged axis without a gap, on every side. */
static bool joins(const struct wf_cpu_walk *walk, int a, int merged)
{
    for (int s = 0; s < walk->n_sides; s++)
        if (walk->side[s].stride[a] != walk->side[s].stride[merged] * walk->extent[merged])
            return false;
    return true;
}

/* Merges axes [0, axes), whose extents and strides stand in place; drops those of extent one. */
static void merge(struct wf_cpu_walk *walk, int axes)
{
    int64_t extent[WF_AXES], stride[WF_CPU_SIDES][WF_AXES] = { 0 };
    int kept = 0; /* counted from the innermost */
    int last = -1;
    for (int a = axes - 1; a >= 0; a--) {
        if (walk->extent[a] == 1)
            continue;
        if (last >= 0 && joins(walk, a, last)) {
            walk->extent[last] *= walk->extent[a];
            extent[kept - 1] = walk->extent[last];
            continue;
        }
        last = a;
        extent[kept] = walk->extent[a];
        for (int s = 0; s < walk->n_sides; s++)
            stride[s][kept] = walk->side[s].stride[a];
        kept++;
    }
    if (kept == 0) {
        extent[0] = 1;
        kept = 1;
    }
    walk->n_axes = kept;
    for (int k = 0; k < kept; k++) {
        walk->extent[kept - 1 - k] = extent[k];
        for (int s = 0; s < walk->n_sides; s++)
            walk->side[s].stride[kept - 1 - k] = stride[s][k];
    }
}

/* After a flat merge: short packed runs (a slice of channels) become the unit, so that a piece can
 * hold many of them. */
static void take_runs_as_units(struct wf_cpu_walk *walk)
{
    const int last = walk->n_axes - 1;
    const int64_t run = walk->extent[last];
    bool packed = last > 0 && run <= WF_CPU_BLOCK / 2;
    for (int s = 0; s < walk->n_sides; s++)
        packed = packed && walk->side[s].stride[last] == 1;
    for (int s = 0; s < walk->n_sides; s++) {
        walk->side[s].unit = packed ? run : 1;
        walk->side[s].inner = 1;
    }
    if (packed)
        walk->n_axes--;
}

void wf_cpu_walk_plan(struct wf_cpu_walk *walk, enum wf_cpu_unit unit)
{
    if (wf_region_is_empty(walk->work))
        return;
    for (int a = 0; a < WF_AXES; a++)
        walk->extent[a] = wf_region_extent(walk->work, (enum wf_axis)a);
    if (unit == WF_CPU_FLAT) {
        for (int s = 0; s < walk->n_sides; s++)
            WF_BUG_ON(walk->side[s].unit != walk->extent[WF_C], "side %d has other channels", s);
        merge(walk, WF_AXES);
        take_runs_as_units(walk);
    } else {
        merge(walk, WF_C);
    }
    int64_t widest = 1;
    for (int s = 0; s < walk->n_sides; s++)
        widest = wf_max(widest, walk->side[s].unit);
    WF_BUG_ON(widest > WF_CPU_BLOCK_MAX, "%lld channels", (long long)widest);
    const int64_t length = walk->extent[walk->n_axes - 1];
    walk->block = wf_min(wf_max(1, WF_CPU_BLOCK / widest), length);
    walk->blocks = wf_ceil_div(length, walk->block);
    walk->pieces = walk->blocks;
    for (int a = 0; a < walk->n_axes - 1; a++)
        walk->pieces *= walk->extent[a];
}

void wf_cpu_walk_call(struct wf_cpu_walk *walk, const struct wf_call *call, int n_in,
                      enum wf_cpu_unit unit)
{
    wf_cpu_walk_init(walk, call->work);
    for (int i = 0; i < n_in; i++)
        wf_cpu_walk_add(walk, &call->in[i], call->work);
    wf_cpu_walk_add(walk, &call->out[0], call->work);
    wf_cpu_walk_plan(walk, unit);
}

void wf_cpu_walk_over(struct wf_cpu_walk *walk, struct wf_region work, enum wf_cpu_unit unit,
                      const struct wf_view *const views[])
{
    wf_cpu_walk_init(walk, work);
    for (; *views; views++)
        wf_cpu_walk_add(walk, *views, work);
    wf_cpu_walk_plan(walk, unit);
}

bool wf_cpu_parts_channels(const struct wf_call *call)
{
    if (wf_region_is_empty(call->work) ||
        (call->work.lo[WF_C] == 0 &&
         call->work.hi[WF_C] == wf_op_domain(call->node)->shape.at[WF_C]))
        return false;
    call->node->op->reference(call);
    return true;
}

struct wf_cpu_piece wf_cpu_piece_at(const struct wf_cpu_walk *walk, int64_t index)
{
    struct wf_cpu_piece p = { .walk = walk };
    const int last = walk->n_axes - 1;
    const int64_t from = index % walk->blocks * walk->block;
    index /= walk->blocks;
    p.units = wf_min(walk->block, walk->extent[last] - from);
    for (int s = 0; s < walk->n_sides; s++)
        p.at[s] = walk->side[s].base + from * walk->side[s].stride[last];
    for (int a = last - 1; a >= 0; a--) {
        const int64_t i = index % walk->extent[a];
        index /= walk->extent[a];
        for (int s = 0; s < walk->n_sides; s++)
            p.at[s] += i * walk->side[s].stride[a];
    }
    return p;
}

void wf_cpu_walk_run(const struct wf_cpu_walk *walk, wf_cpu_body *body, const void *context)
{
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (walk->pieces > 8)
#endif
    for (int64_t i = 0; i < walk->pieces; i++) {
        const struct wf_cpu_piece piece = wf_cpu_piece_at(walk, i);
        body(&piece, context);
    }
}

static struct wf_cpu_place place_of(const struct wf_cpu_piece *piece, int side)
{
    const struct wf_cpu_side *s = &piece->walk->side[side];
    const int64_t size = (int64_t)wf_dtype_size(s->dtype);
    const int64_t stride = s->stride[piece->walk->n_axes - 1];
    return (struct wf_cpu_place){
        .start = s->data + piece->at[side] * size,
        .dtype = s->dtype,
        .units = piece->units,
        .channels = s->unit,
        .step = stride * size,
        .inner = s->inner * size,
        .size = size,
        .packed = (s->inner == 1 || s->unit == 1) && (stride == s->unit || piece->units == 1),
    };
}

const float *wf_cpu_load(const struct wf_cpu_piece *piece, int side, float *buffer)
{
    return wf_cpu_place_load(place_of(piece, side), buffer);
}

float *wf_cpu_dest(const struct wf_cpu_piece *piece, int side, float *buffer)
{
    return wf_cpu_place_dest(place_of(piece, side), buffer);
}

void wf_cpu_store(const struct wf_cpu_piece *piece, int side, const float *values)
{
    wf_cpu_place_store(place_of(piece, side), values);
}

void wf_cpu_load_int(const struct wf_cpu_piece *piece, int side, int32_t *buffer)
{
    wf_cpu_place_load_int(place_of(piece, side), buffer);
}

void wf_cpu_move(const struct wf_cpu_piece *piece, int from, int to)
{
    const struct wf_cpu_place a = place_of(piece, from), b = place_of(piece, to);
    if (a.start == b.start)
        return;
    if (a.packed && b.packed) {
        memcpy(b.start, a.start, (size_t)(a.units * a.channels * a.size));
        return;
    }
    const bool rows = (a.inner == a.size && b.inner == a.size) || a.channels == 1;
    for (int64_t u = 0; u < a.units; u++)
        for (int64_t c = 0; c < (rows ? 1 : a.channels); c++)
            memcpy(b.start + u * b.step + c * b.inner, a.start + u * a.step + c * a.inner,
                   (size_t)(rows ? a.channels * a.size : a.size));
}

/* All bits zero is the number zero in every dtype. */
void wf_cpu_zero(const struct wf_cpu_piece *piece, int side)
{
    const struct wf_cpu_place p = place_of(piece, side);
    if (p.packed) {
        memset(p.start, 0, (size_t)(p.units * p.channels * p.size));
        return;
    }
    const bool rows = p.inner == p.size;
    for (int64_t u = 0; u < p.units; u++)
        for (int64_t c = 0; c < (rows ? 1 : p.channels); c++)
            memset(p.start + u * p.step + c * p.inner, 0,
                   (size_t)(rows ? p.channels * p.size : p.size));
}
