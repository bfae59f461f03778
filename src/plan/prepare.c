/*
 * Kernels made ready for the boxes they run on.
 *
 * A plan that is made to be looked at (planner.cache is set) needs no primitives, only their scratch:
 * that is asked for once for all ranks whose step has the same shape. Two steps have the same shape
 * when work and boxes have the same extents and strides, lie the same way to each other (so padding
 * is the same), and the first positions of the work read the same, relative to it (so the phase of a
 * stride is the same).
 */
#include "ops/op.h"
#include "plan/planner.h"

#include <string.h>

enum {
    SMALL_WORK = 16'384, /* elements: below, a reference kernel costs nothing worth a warning */
    PHASES = 32,         /* positions that are looked at: strides up to this many are told apart */
};

struct sizes {
    size_t scratch_bytes;
    char implementation[WF_IMPLEMENTATION];
};

static void add_numbers(struct wf_plan_cache *cache, const int64_t numbers[WF_AXES])
{
    wf_plan_cache_add(cache, numbers, WF_AXES * sizeof *numbers);
}

static void add_view(struct wf_plan_cache *cache, const struct wf_view *view,
                     const struct wf_region *to)
{
    int64_t extent[WF_AXES], offset[WF_AXES];
    for (int a = 0; a < WF_AXES; a++) {
        extent[a] = view->box.hi[a] - view->box.lo[a];
        offset[a] = view->box.lo[a] - to->lo[a];
    }
    const int64_t dtype = view->dtype;
    wf_plan_cache_add(cache, &dtype, sizeof dtype);
    add_numbers(cache, extent);
    add_numbers(cache, offset);
    add_numbers(cache, view->stride);
}

/* How the work's first positions along an axis read, where image and result have other extents. */
static void add_phase(struct wf_plan_cache *cache, const struct wf_step *s, int input,
                      enum wf_axis axis, const struct wf_region *reads)
{
    const int64_t from = s->node->in[input]->shape.at[axis];
    const int64_t to = wf_op_domain(s->node)->shape.at[axis];
    if (from == to)
        return;
    if (wf_max(from, to) > PHASES * wf_min(from, to)) { /* not worth a closer look: never shared */
        wf_plan_cache_add(cache, &s->work.lo[axis], sizeof s->work.lo[axis]);
        return;
    }
    struct wf_region one = s->work;
    for (int64_t i = 0; i < PHASES && s->work.lo[axis] + i < s->work.hi[axis]; i++) {
        one.lo[axis] = s->work.lo[axis] + i;
        one.hi[axis] = one.lo[axis] + 1;
        const struct wf_region r = wf_op_reads(s->node, input, one);
        const int64_t range[2] = { r.lo[axis] - reads->lo[axis], r.hi[axis] - r.lo[axis] };
        wf_plan_cache_add(cache, range, sizeof range);
    }
}

static void add_input(struct wf_plan_cache *cache, const struct wf_step *s, int k)
{
    const bool absent = !s->node->in[k] || s->in[k].buffer < 0;
    wf_plan_cache_add(cache, &absent, sizeof absent);
    if (absent)
        return;
    const struct wf_region reads = wf_op_reads(s->node, k, s->work);
    const struct wf_view all = { .box = reads };
    add_view(cache, &s->in[k].view, &reads);
    add_view(cache, &all, &reads);
    for (int a = WF_N; a < WF_C && !s->node->in[k]->replicated; a++)
        add_phase(cache, s, k, (enum wf_axis)a, &reads);
}

/* Puts the key of the step's shape together. */
static void begin_key(struct wf_plan_cache *cache, const struct wf_step *s)
{
    const struct wf_view work = { .box = s->work };
    wf_plan_cache_begin(cache);
    wf_plan_cache_add(cache, &s->kernel, sizeof s->kernel);
    wf_plan_cache_add(cache, &s->node, sizeof s->node);
    add_view(cache, &work, &s->work);
    for (int k = 0; k < s->node->n_in; k++)
        add_input(cache, s, k);
    for (int f = 0; f < s->n_fused; f++) {
        wf_plan_cache_add(cache, &s->fuses[f].node, sizeof s->fuses[f].node);
        for (int j = 0; j < s->fuses[f].node->n_in; j++)
            add_view(cache, &s->in[s->fuses[f].first + j].view, &s->work);
    }
    const bool sums = wf_op_sums_over(s->node) != 0;
    for (int o = 0; o < s->n_out; o++)
        add_view(cache, &s->out[o].view, sums ? &s->out[o].view.box : &s->work);
}

static bool call_prepare(struct wf_planner *p, const struct wf_step *s, struct wf_prepare *prep,
                         struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_view *const views = wf_arena_array(&arena, s->n_in + s->n_out, struct wf_view);
    for (int k = 0; k < s->n_in; k++)
        views[k] = s->in[k].view;
    for (int o = 0; o < s->n_out; o++)
        views[s->n_in + o] = s->out[o].view;
    *prep = (struct wf_prepare){ .node = s->node,
                                 .work = s->work,
                                 .in = views,
                                 .out = views + s->n_in,
                                 .threads = p->threads,
                                 .sizes_only = p->cache != NULL,
                                 .exact = p->options->exact,
                                 .rough = p->cache && p->options->rough,
                                 .context = p->plan->context };
    const bool ok = s->kernel->prepare(prep, err);
    wf_arena_release(&arena);
    if (ok && p->cache && prep->prepared && s->kernel->release) { /* made all the same */
        s->kernel->release(prep->prepared);
        prep->prepared = NULL;
    }
    return ok || wf_err_wrap(err, "layer '%s' (%s)", s->node->name, s->node->op->name);
}

static bool find_sizes(struct wf_planner *p, const struct wf_step *s, struct sizes *sizes,
                       struct wf_err *err)
{
    begin_key(p->cache, s);
    const struct sizes *const known = wf_plan_cache_find(p->cache);
    if (known) {
        *sizes = *known;
        return true;
    }
    struct wf_prepare prep;
    if (!call_prepare(p, s, &prep, err))
        return false;
    sizes->scratch_bytes = prep.scratch_bytes;
    memcpy(sizes->implementation, prep.implementation, sizeof sizes->implementation);
    memcpy(wf_plan_cache_put(p->cache, sizeof *sizes), sizes, sizeof *sizes);
    return true;
}

static bool prepare(struct wf_planner *p, struct wf_step *s, struct wf_err *err)
{
    struct wf_plan *plan = p->plan;
    const bool reference = wf_kernel_is_reference(s->kernel);
    plan->references += reference && wf_region_count(s->work) > SMALL_WORK;
    s->implementation = reference ? "reference" : "own";
    if (!s->kernel->prepare || reference)
        return true;
    struct sizes sizes;
    if (p->cache) {
        if (!find_sizes(p, s, &sizes, err))
            return false;
    } else {
        struct wf_prepare prep;
        if (!call_prepare(p, s, &prep, err))
            return false;
        s->prepared = prep.prepared;
        sizes.scratch_bytes = prep.scratch_bytes;
        memcpy(sizes.implementation, prep.implementation, sizeof sizes.implementation);
    }
    if (sizes.implementation[0])
        s->implementation = wf_arena_copy(&plan->arena, sizes.implementation);
    if (sizes.scratch_bytes)
        s->scratch = wf_planner_add_buffer(p, WF_STORE_ARENA, sizes.scratch_bytes, "scratch");
    return true;
}

bool wf_planner_prepare(struct wf_planner *p, struct wf_err *err)
{
    for (int i = 0; i < p->plan->n_steps; i++) {
        struct wf_step *const s = &p->plan->steps[i];
        if (s->kind != WF_STEP_KERNEL)
            continue;
        p->plan->flops += wf_op_flops(s->node, s->work);
        for (int f = 0; f < s->n_fused; f++)
            p->plan->flops +=
                wf_op_flops(s->fuses[f].node, wf_op_reads(s->node, s->fuses[f].input, s->work));
        if (!prepare(p, s, err))
            return false;
    }
    return true;
}
