/*
 * Classifiers of points.
 *
 * minkresnet: a stem of stride 2 and a max pooling of 2, stages of residual blocks of which each but the first
 * halves the lattice and doubles the channels, the mean over the points of each sample, one linear layer.
 * Layers: stem, layer0.0, layer0.1, layer1.0, ..., fc.
 *
 * sparse_course: the example of MinkowskiEngine's tutorial on training with several GPUs. Two convolutions of
 * 3 with stride 2, to 64 and 128 channels; mean; linear. Layers: layer0, layer1, fc.
 */
#include <inttypes.h>

#include "models/sparse_blocks.h"

enum { STAGES = 4 };

struct minkresnet {
    int64_t blocks[STAGES];
};

static const struct wf_option options[] = {
    { "model.blocks", "residual blocks of each of the four stages; the last are taken, 0: no stage",
      WF_OPTION_IN(INTS, 0, 64), .count_min = 1, .count_max = STAGES, .unset = "2, 2, 2, 2",
      .offset = offsetof(struct minkresnet, blocks) },
    { 0 },
};

/* One row per sample. */
static struct wf_value *classify(struct wf_graph *g, const struct wf_model_config *c,
                                 struct wf_sparse x)
{
    struct wf_value *const mean = wf_sparse_global_pool(g, x, "mean", WF_SPARSE_AVERAGE);
    return wf_linear(g, mean, "fc", c->classes, true);
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *features)
{
    const struct minkresnet *const own = c->own;
    struct wf_sparse x = wf_sparse_of(g, features, c->dims);
    struct wf_sparse_pool pool = { .name = "pool", .mode = WF_SPARSE_MAX };
    for (int d = 0; d < c->dims; d++)
        pool.kernel[d] = pool.stride[d] = 2;
    x = wf_sparse_layer(g, x, NULL, &(struct wf_sparse_layer){ "stem", c->base, 3, 2 });
    x = wf_sparse_pool(g, x, &pool);
    int stage = 0;
    for (int s = 0; s < STAGES; s++) {
        for (int64_t i = 0; i < own->blocks[s]; i++)
            x = wf_sparse_residual(
                g, x,
                &(struct wf_sparse_layer){ wf_arena_printf(&g->arena, "layer%d.%" PRId64, stage, i),
                                           c->base << stage, 3, i == 0 && stage > 0 ? 2 : 1 });
        stage += own->blocks[s] > 0;
    }
    return classify(g, c, x);
}

static struct wf_value *build_course(struct wf_graph *g, const struct wf_model_config *c,
                                     struct wf_value *features)
{
    struct wf_sparse x = wf_sparse_of(g, features, c->dims);
    x = wf_sparse_layer(g, x, NULL, &(struct wf_sparse_layer){ "layer0", c->base, 3, 2 });
    x = wf_sparse_layer(g, x, NULL, &(struct wf_sparse_layer){ "layer1", 2 * c->base, 3, 2 });
    return classify(g, c, x);
}

const struct wf_model wf_model_minkresnet = {
    .name = "minkresnet",
    .what = "residual classifier of points: stem, four stages of blocks, mean, linear",
    .defaults = { .dims = 3,
                  .in = 3,
                  .classes = 2,
                  .base = 64,
                  .own = &(const struct minkresnet){ .blocks = { 2, 2, 2, 2 } } },
    .dims_min = 1,
    .dims_max = 4,
    .sparse = true,
    .build = build,
    .options = options,
    .own_bytes = sizeof(struct minkresnet),
};

const struct wf_model wf_model_sparse_course = {
    .name = "sparse_course",
    .what = "small classifier of points: two convolutions, mean, linear",
    .defaults = { .dims = 3, .in = 3, .classes = 2, .base = 64 },
    .dims_min = 1,
    .dims_max = 4,
    .sparse = true,
    .build = build_course,
};
