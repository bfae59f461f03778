#include "train/network.h"

#include <inttypes.h>
#include <string.h>

#include "ops/build.h"
#include "ops/op.h"

const char *const wf_loss_names[] = { "ce", "bce", "dice", "mse", NULL };

typedef struct wf_value *loss_maker(struct wf_graph *, struct wf_value *, struct wf_value *,
                                    const struct wf_loss *);
static loss_maker *const makers[] = { wf_cross_entropy, wf_binary_cross_entropy, wf_dice, wf_mse };

static const char *losses_text(struct wf_arena *arena, unsigned losses)
{
    const char *text = "";
    for (int i = 0; wf_loss_names[i]; i++)
        if (losses & (1U << i))
            text = wf_arena_printf(arena, "%s%s%s", text, *text ? "+" : "", wf_loss_names[i]);
    return text;
}

static bool refuse_losses(const struct wf_network_config *c, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const text = losses_text(&arena, c->losses);
    if ((c->losses & WF_LOSS_CE) && c->config.classes == 1)
        (void)wf_err_set(err, WF_ERR_USAGE,
                         "train.loss '%s' with model.classes=1: cross-entropy over one class is "
                         "always 0 and nothing would be learned: use train.loss=bce, or "
                         "model.classes=2",
                         text);
    else
        (void)wf_err_set(err, WF_ERR_USAGE,
                         "train.loss '%s' with %" PRId64 " classes: ce and dice want a map of "
                         "classes (dice with one class a 0/1 map), bce a 0/1 map per class, mse a "
                         "map of numbers: they do not share a target",
                         text, c->config.classes);
    wf_arena_release(&arena);
    return false;
}

bool wf_network_target(const struct wf_network_config *c, enum wf_target_kind *kind,
                       struct wf_err *err)
{
    const unsigned losses = c->losses;
    const bool one = c->config.classes == 1;
    const bool by_class = (losses & WF_LOSS_CE) || ((losses & WF_LOSS_DICE) && !one);
    const bool binary = (losses & WF_LOSS_BCE) || ((losses & WF_LOSS_DICE) && one);
    const bool real = losses & WF_LOSS_MSE;
    if (((losses & WF_LOSS_CE) && one) || by_class + binary + real > 1)
        return refuse_losses(c, err);
    *kind = by_class ? WF_TARGET_CLASSES : binary ? WF_TARGET_BINARY : WF_TARGET_REAL;
    return true;
}

static void build_target(const struct wf_network_config *c, enum wf_target_kind kind,
                         struct wf_network *net)
{
    if (!net->logits)
        return;
    struct wf_shape shape = net->logits->shape;
    const bool map = kind == WF_TARGET_CLASSES;
    if (map)
        shape.at[WF_C] = 1;
    net->target =
        wf_input_rows(net->graph, "target", map ? WF_I32 : WF_F32, shape, net->logits->set);
    if (net->target && !net->target->set)
        net->target->border_dims = wf_model_is_dense(c->model, &c->config) ? c->config.dims : 0;
}

/* The sum of the losses on a part of the prediction, or on all of it. */
static struct wf_value *build_losses(const struct wf_network_config *c,
                                     const struct wf_network *net, struct wf_value *logits,
                                     struct wf_value *target)
{
    struct wf_value *sum = NULL;
    for (int i = 0; wf_loss_names[i]; i++) {
        if (!(c->losses & (1U << i)))
            continue;
        const struct wf_loss spec = {
            .name = wf_arena_printf(&net->graph->arena, "loss.%s", wf_loss_names[i]),
            .ignore = net->ignore,
            .has_ignore = net->has_ignore,
        };
        struct wf_value *const one = makers[i](net->graph, logits, target, &spec);
        sum = sum ? wf_add(net->graph, sum, one) : one;
    }
    return sum;
}

static struct wf_value *part_of(struct wf_graph *g, struct wf_value *v, struct wf_region space)
{
    struct wf_region part = wf_shape_region(v->shape);
    for (int a = WF_D; a < WF_C; a++) {
        part.lo[a] = space.lo[a];
        part.hi[a] = wf_min(space.hi[a], part.hi[a]);
    }
    return wf_slice(g, v, part);
}

/* The loss of the whole prediction, or the mean of the losses of its subdomains. */
static struct wf_value *build_loss(const struct wf_network_config *c, const struct wf_network *net)
{
    int64_t tiles[3] = { 1, 1, 1 };
    if (c->model->tiles)
        c->model->tiles(&c->config, tiles);
    const int64_t count = tiles[0] * tiles[1] * tiles[2];
    struct wf_value *sum = NULL;
    if (!net->logits || !net->target || count == 1 || !c->loss_per_tile)
        return build_losses(c, net, net->logits, net->target);
    for (int64_t t = 0; t < count; t++) {
        struct wf_region space = { 0 };
        int64_t number = t;
        for (int i = 2; i >= 0; i--) {
            const int64_t extent = (net->logits->shape.at[WF_D + i] + tiles[i] - 1) / tiles[i];
            space.lo[WF_D + i] = number % tiles[i] * extent;
            space.hi[WF_D + i] = space.lo[WF_D + i] + extent;
            number /= tiles[i];
        }
        struct wf_value *const one = build_losses(c, net, part_of(net->graph, net->logits, space),
                                                  part_of(net->graph, net->target, space));
        sum = sum ? wf_add(net->graph, sum, one) : one;
    }
    return sum ? wf_scale(net->graph, sum, 1.0 / (double)count) : NULL;
}

/* The target at a head's own resolution: the nearest label of each of its positions, as in nnU-Net's deep
 * supervision. By way of f32, which every device resamples, and which holds labels exactly up to 2^24. */
static struct wf_value *target_at(const struct wf_network *net, const struct wf_model_head *h)
{
    struct wf_graph *const g = net->graph;
    const int64_t *const extents = &h->logits->shape.at[WF_D];
    if (memcmp(extents, &net->target->shape.at[WF_D], 3 * sizeof *extents) == 0)
        return net->target;
    return wf_cast(g,
                   wf_upsample(g, wf_cast(g, net->target, WF_F32),
                               wf_arena_printf(&g->arena, "%s.target", h->name), extents,
                               WF_NEAREST),
                   net->target->dtype);
}

/* Of several heads: the sum of their losses with their weights. */
static struct wf_value *build_heads_loss(const struct wf_network_config *c,
                                         const struct wf_network *net)
{
    struct wf_graph *const g = net->graph;
    struct wf_value *sum = NULL;
    for (int i = 0; i < net->n_heads && net->target; i++) {
        const struct wf_model_head *const h = &net->heads[i];
        struct wf_value *loss =
            i == 0 ? build_loss(c, net) : build_losses(c, net, h->logits, target_at(net, h));
        if (h->weight < 1 || h->weight > 1)
            loss = wf_scale(g, loss, h->weight);
        sum = sum ? wf_add(g, sum, loss) : loss;
    }
    return sum;
}

static bool build_backward(const struct wf_network_config *c, struct wf_network *net,
                           struct wf_err *err)
{
    struct wf_graph *const g = net->graph;
    if (c->starts_from_input)
        net->start = wf_input_number(g, "loss.start");
    return wf_graph_grad(g, net->loss, net->start, 0, NULL, NULL, err);
}

bool wf_network_is_image(const struct wf_network *net, const struct wf_value *v)
{
    for (int k = 0; k < net->domains; k++)
        if (net->images[k] == v)
            return true;
    return false;
}

void wf_network_build_images(struct wf_network *net, const struct wf_network_config *c,
                             struct wf_shape image, int domains)
{
    struct wf_graph *const g = net->graph;
    net->domains = domains;
    net->images = wf_arena_array(&g->arena, net->domains, struct wf_value *);
    for (int k = 0; k < net->domains; k++) {
        const char *const name = k ? wf_arena_printf(&g->arena, "image%d", k) : "image";
        net->images[k] = wf_model_input(g, c->model, &c->config, name, image);
    }
    net->image = net->images[0];
}

static struct wf_value *build_task(const struct wf_network_config *c, struct wf_network *net)
{
    enum wf_target_kind kind;
    if (!wf_network_target(c, &kind, &net->graph->err))
        return NULL;
    build_target(c, kind, net);
    return net->n_heads > 1 ? build_heads_loss(c, net) : build_loss(c, net);
}

bool wf_network_build(struct wf_network *net, const struct wf_network_config *c,
                      struct wf_shape image, bool training, struct wf_err *err)
{
    enum wf_target_kind kind;
    struct wf_err ignored = { 0 };
    *net = (struct wf_network){ .has_ignore = c->has_ignore, .ignore = c->ignore };
    if (!wf_network_target(c, &kind, err))
        return false;
    if (!training && !net->has_ignore && kind == WF_TARGET_CLASSES) {
        net->has_ignore = true;
        net->ignore = INT32_MIN;
    }
    struct wf_graph *const g = net->graph =
        wf_graph_new(&(struct wf_graph_options){ .training = training, .compute = c->compute });
    g->capacities = c->capacities;
    g->n_capacities = c->n_capacities;
    g->samples = c->samples;
    memcpy(g->mesh, c->mesh, sizeof g->mesh);
    g->joins_halos = c->joins_halos;
    net->has_classes = kind != WF_TARGET_REAL;
    wf_network_build_images(net, c, image, training ? wf_model_domains(c->model, &c->config) : 1);
    if (net->domains > 1) {
        net->loss = wf_network_build_domains(net, c, build_task);
    } else {
        struct wf_value *const x =
            c->compute == WF_F32 ? net->image : wf_cast(g, net->image, c->compute);
        if (training && c->model->build_heads)
            net->n_heads = c->model->build_heads(g, &c->config, x, &net->heads);
        if (net->n_heads)
            net->logits = net->heads[0].logits;
        else if (wf_graph_ok(g, &ignored))
            net->logits = c->model->build(g, &c->config, x);
        g->domain = net->logits ? net->logits->producer->domain : 0; /* the loss goes there, too */
        net->loss = build_task(c, net);
        g->domain = 0;
    }
    if (!wf_graph_ok(g, err))
        return wf_err_wrap(err, "network '%s'", c->model->name);
    wf_graph_output(g, net->loss);
    wf_graph_output(g, net->logits);
    return !training || build_backward(c, net, err);
}

double wf_graph_flops(const struct wf_graph *g)
{
    double flops = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        flops += wf_op_flops(g->nodes[i], wf_shape_region(wf_op_domain(g->nodes[i])->shape));
    return flops;
}
