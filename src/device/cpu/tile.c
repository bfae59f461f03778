/* tile and untile: one strided copy for each subdomain that the work touches. */
#include "device/cpu/cpu.h"

struct part {
    struct wf_region image, tile; /* the same elements: in the image, and in the batch */
};

/* What subdomain `number` of the batch has in common with the region of the batch and the region of the
 * image; extents are those of a subdomain and of the image. */
static struct part part_of(const struct wf_tile_attrs *a, const int64_t extent[3], int64_t number,
                           struct wf_region image, struct wf_region batch)
{
    struct part p = { image, batch };
    p.tile.lo[WF_N] = number;
    p.tile.hi[WF_N] = number + 1;
    for (int i = 2; i >= 0; i--) {
        const int axis = WF_D + i;
        const int64_t origin = number % a->tiles[i] * extent[i];
        p.image.lo[axis] = wf_max(image.lo[axis], origin + batch.lo[axis]);
        p.image.hi[axis] = wf_min(image.hi[axis], origin + wf_min(batch.hi[axis], extent[i]));
        p.tile.lo[axis] = p.image.lo[axis] - origin;
        p.tile.hi[axis] = p.image.hi[axis] - origin;
        number /= a->tiles[i];
    }
    p.image.lo[WF_N] = number;
    p.image.hi[WF_N] = number + 1;
    return p;
}

static bool accepts(const struct wf_node *node)
{
    return node->in[0]->dtype == node->out[0]->dtype;
}

static void tile_run(const struct wf_call *call)
{
    const struct wf_tile_attrs *a = call->node->attrs;
    struct wf_region image = wf_shape_region(call->node->in[0]->shape);
    image.lo[WF_C] = call->work.lo[WF_C];
    image.hi[WF_C] = call->work.hi[WF_C];
    for (int64_t n = call->work.lo[WF_N]; n < call->work.hi[WF_N]; n++) {
        const struct part p = part_of(a, a->extent, n, image, call->work);
        struct wf_region sample = call->work, halo[WF_SUBTRACT_MAX];
        sample.lo[WF_N] = n;
        sample.hi[WF_N] = n + 1;
        if (!wf_region_is_empty(p.tile)) {
            const struct wf_view to = wf_view_part(call->out[0], p.tile);
            const struct wf_view from = wf_view_part(call->in[0], p.image);
            wf_cpu_copy(&to, &from);
        }
        const int count = wf_region_subtract(sample, p.tile, halo);
        for (int i = 0; i < count; i++) { /* past the image's end */
            const struct wf_view past = wf_view_part(call->out[0], halo[i]);
            wf_cpu_clear(&past);
        }
    }
}

static void untile_run(const struct wf_call *call)
{
    const struct wf_tile_attrs *a = call->node->attrs;
    const struct wf_value *x = call->node->in[0];
    const struct wf_region all = wf_shape_region(x->shape);
    const struct wf_region reads = wf_op_reads(call->node, 0, call->work);
    for (int64_t n = reads.lo[WF_N]; n < reads.hi[WF_N]; n++) {
        struct wf_region batch = all;
        batch.lo[WF_C] = call->work.lo[WF_C];
        batch.hi[WF_C] = call->work.hi[WF_C];
        const struct part p = part_of(a, &x->shape.at[WF_D], n, call->work, batch);
        if (p.image.lo[WF_N] < call->work.lo[WF_N] || p.image.lo[WF_N] >= call->work.hi[WF_N] ||
            wf_region_is_empty(p.image))
            continue;
        const struct wf_view to = wf_view_part(call->out[0], p.image);
        const struct wf_view from = wf_view_part(call->in[0], p.tile);
        wf_cpu_copy(&to, &from);
    }
}

const struct wf_kernel wf_cpu_kernels_tile[] = {
    { .op = "tile", .accepts = accepts, .run = tile_run },
    { .op = "untile", .accepts = accepts, .run = untile_run },
    { 0 },
};
