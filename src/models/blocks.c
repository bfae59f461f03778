#include "models/blocks.h"

#include <inttypes.h>

#include "ops/build.h"

void wf_block_extents(int dims, int64_t extent, int64_t out[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = i >= 3 - dims ? extent : 1;
}

struct wf_value *wf_block_image(struct wf_graph *g, const struct wf_model_config *c,
                                struct wf_value *x)
{
    if (!x)
        return NULL;
    if (x->shape.at[WF_C] != c->in) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "the network takes %" PRId64 " channels, image '%s' has %" PRId64
                   ": set model.in to %" PRId64,
                   c->in, x->name, x->shape.at[WF_C], x->shape.at[WF_C]);
        return NULL;
    }
    for (int axis = WF_D; axis < WF_C - c->dims; axis++)
        if (x->shape.at[axis] != 1) {
            wf_err_set(&g->err, WF_ERR_USAGE,
                       "the network has %d dimensions, image '%s' has extent %" PRId64
                       " along %c: set model.dims to %d",
                       c->dims, x->name, x->shape.at[axis], "NDHWC"[axis], WF_C - axis);
            return NULL;
        }
    /* f64 stays: finite differences run whole networks in it. */
    return x->dtype == WF_F32 ? wf_cast(g, x, g->options.compute) : x;
}

struct wf_value *wf_block_double(struct wf_graph *g, struct wf_value *x,
                                 const struct wf_block_double *b)
{
    for (int i = 0; i < 2; i++) {
        struct wf_conv conv = { .name = wf_arena_printf(&g->arena, "%s.conv%d", b->name, i),
                                .out = b->out[i],
                                .same = true,
                                .bias = b->bias };
        wf_block_extents(b->dims, 3, conv.kernel);
        struct wf_norm norm = b->norm;
        norm.name = wf_arena_printf(&g->arena, "%s.bn%d", b->name, i);
        norm.act = WF_RELU;
        x = wf_batch_norm(g, wf_conv(g, x, &conv), &norm);
    }
    return x;
}

struct wf_value *wf_block_pool(struct wf_graph *g, struct wf_value *x, const char *name, int dims)
{
    struct wf_pool pool = { .name = name };
    wf_block_extents(dims, 2, pool.kernel);
    return wf_max_pool(g, x, &pool);
}

struct wf_value *wf_block_grow(struct wf_graph *g, struct wf_value *x, const struct wf_value *like,
                               const struct wf_block_up *b)
{
    struct wf_conv conv = { .name = b->name, .out = b->out, .bias = b->bias };
    wf_block_extents(b->dims, 2, conv.kernel);
    wf_block_extents(b->dims, 2, conv.stride);
    x = wf_conv_transpose(g, x, &conv);
    return wf_fit(g, x, wf_arena_printf(&g->arena, "%s.pad", b->name), like, WF_FIT_CUT_END);
}

struct wf_value *wf_block_up(struct wf_graph *g, struct wf_value *x, struct wf_value *skip,
                             const struct wf_block_up *b)
{
    x = wf_block_grow(g, x, skip, b);
    if (!x)
        return NULL;
    return wf_concat(g, wf_arena_printf(&g->arena, "%s.concat", b->name), 2,
                     (struct wf_value *[]){ skip, x });
}

struct wf_value *wf_block_logits(struct wf_graph *g, struct wf_value *x, const char *name,
                                 int64_t classes)
{
    return wf_conv(
        g, x,
        &(struct wf_conv){ .name = name, .out = classes, .kernel = { 1, 1, 1 }, .bias = true });
}
