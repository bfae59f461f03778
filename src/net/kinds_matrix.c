/* Kinds of layers that take images for matrices: rows are positions, columns channels. */
#include <string.h>

#include "net/net.h"
#include "ops/build.h"

bool wf_layer_extents(struct wf_graph *g, const struct wf_layer *l, const struct wf_value *like,
                      int64_t extents[3])
{
    bool given = like != NULL;
    for (int i = 0; i < 3; i++) {
        given |= l->a.size[i] > 0;
        extents[i] = like ? like->shape.at[WF_D + i] : l->a.size[i] ? l->a.size[i] : 1;
    }
    return given || wf_err_set(&g->err, WF_ERR_USAGE, "to which extents? give 'like' or 'size'");
}

static struct wf_value *build_matmul(struct wf_graph *g, const struct wf_net *,
                                     const struct wf_layer *l, struct wf_value *const in[],
                                     const struct wf_value *like)
{
    int64_t extents[3] = { 0 };
    if (l->a.form == WF_MATMUL_TN && !wf_layer_extents(g, l, like, extents))
        return NULL;
    return wf_matmul(g, in[0], in[1], l->name, (enum wf_matmul_form)l->a.form, extents);
}

const struct wf_layer_kind wf_layer_kind_matmul = {
    .name = "matmul",
    .what =
        "the product of two images as matrices, rows being positions and columns channels; `tn`: of extents `size` "
        "or `like`",
    .n_in = 2,
    .takes = "form size",
    .takes_like = true,
    .build = build_matmul,
};

static struct wf_value *build_transpose(struct wf_graph *g, const struct wf_net *,
                                        const struct wf_layer *l, struct wf_value *const in[],
                                        const struct wf_value *like)
{
    int64_t extents[3] = { 1, 1, in[0]->shape.at[WF_C] };
    const bool given = like || l->a.size[0] || l->a.size[1] || l->a.size[2];
    if (given && !wf_layer_extents(g, l, like, extents))
        return NULL;
    return wf_transpose(g, in[0], l->name, extents);
}

const struct wf_layer_kind wf_layer_kind_transpose = {
    .name = "transpose",
    .what =
        "positions to channels, and channels to positions: in one row, or of extents `size` or `like`",
    .takes = "size",
    .takes_like = true,
    .build = build_transpose,
};

static struct wf_value *build_softmax_sample(struct wf_graph *g, const struct wf_net *,
                                             const struct wf_layer *l, struct wf_value *const in[],
                                             const struct wf_value *)
{
    return wf_rename(g, wf_softmax_sample(g, in[0], l->name), l->name);
}

const struct wf_layer_kind wf_layer_kind_softmax_sample = {
    .name = "softmax_sample",
    .what = "exponentials that sum to 1 over channels and positions of each sample",
    .build = build_softmax_sample,
};
