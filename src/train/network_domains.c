/*
 * The loss of a domain separation network:
 *     task + a * reconstruction + b * difference + c * similarity,
 * where a, b, c are inputs, so that they may change while plan and recordings stay.
 *
 * What belongs to a domain alone is that domain's node. Only the total reads several domains, and adds up what
 * each has; so does the discrepancy of source and target, which is the target's node.
 */
#include "models/model.h"
#include "ops/build.h"
#include "ops/separation.h"
#include "train/network.h"

const char *const wf_adapt_names[] = { "reconstruction", "difference", "similarity", NULL };
const char *const wf_similarity_names[] = { "dann", "mmd", NULL };
const char *const wf_domain_view_names[] = { "shared", "private", "both", NULL };

struct domains {
    struct wf_network *net;
    const struct wf_network_config *config;
    struct wf_domain_parts *parts;
    struct wf_value **losses[WF_ADAPTS]; /* per domain, or NULL */
};

static const char *named(const struct domains *d, const char *what, int domain)
{
    return wf_arena_printf(&d->net->graph->arena, "loss.%s.%d", what, domain);
}

/* Which domain is it? One output for two domains, otherwise one for each; the mean over all samples of all. */
static struct wf_value *reversal(const struct domains *d, int k)
{
    struct wf_graph *const g = d->net->graph;
    struct wf_value *const head = d->parts[k].head;
    if (!head)
        return NULL;
    struct wf_shape shape = head->shape;
    const bool binary = shape.at[WF_C] == 1;
    const struct wf_loss spec = { .name = named(d, "similarity", k) };
    shape.at[WF_C] = 1;
    struct wf_value *const label = wf_fill(g, shape, binary ? WF_F32 : WF_I32, k);
    struct wf_value *const loss = binary ? wf_binary_cross_entropy(g, head, label, &spec)
                                         : wf_cross_entropy(g, head, label, &spec);
    return wf_scale(g, loss, 1.0 / d->net->domains);
}

/* A vector for each image. */
static struct wf_value *pooled(struct wf_graph *g, struct wf_value *code, const char *name)
{
    const bool is_map =
        code && wf_shape_count(code->shape) > code->shape.at[WF_N] * code->shape.at[WF_C];
    return is_map ? wf_global_pool(g, code, wf_arena_printf(&g->arena, "%s.pool", name)) : code;
}

static struct wf_value *discrepancy(const struct domains *d, int k)
{
    struct wf_graph *const g = d->net->graph;
    const char *const name = named(d, "similarity", k);
    if (k == 0)
        return NULL;
    return wf_mmd(g, pooled(g, d->parts[k].shared, name), pooled(g, d->parts[0].shared, name),
                  name);
}

static struct wf_value *add_up(struct wf_graph *g, struct wf_value *sum, struct wf_value *more)
{
    return sum && more ? wf_add(g, sum, more) : more ? more : sum;
}

/* The domain's share of the total. */
static struct wf_value *domain_loss(const struct domains *d, int k)
{
    struct wf_network *const net = d->net;
    struct wf_graph *const g = net->graph;
    const struct wf_domain_parts *const p = &d->parts[k];
    g->domain = wf_domain_label(k, WF_ROLE_LOSSES);
    d->losses[WF_ADAPT_RECONSTRUCTION][k] =
        wf_si_mse(g, p->rebuilt, net->images[k], named(d, "reconstruction", k));
    d->losses[WF_ADAPT_DIFFERENCE][k] =
        wf_difference(g, p->shared, p->own, named(d, "difference", k));
    d->losses[WF_ADAPT_SIMILARITY][k] =
        d->config->similarity == WF_SIMILARITY_MMD ? discrepancy(d, k) : reversal(d, k);
    struct wf_value *sum = k == 0 ? net->task : NULL;
    for (int i = 0; i < WF_ADAPTS; i++)
        if (d->losses[i][k])
            sum = add_up(g, sum, wf_multiply(g, d->losses[i][k], net->weights[i]));
    g->domain = 0;
    return sum;
}

/* On all ranks, as the sum of what each domain's ranks have. */
static struct wf_value *over_domains(const struct domains *d, const char *name,
                                     struct wf_value *const each[])
{
    struct wf_graph *const g = d->net->graph;
    struct wf_value **const in = wf_arena_array(&g->arena, d->net->domains, struct wf_value *);
    int n = 0;
    for (int k = 0; k < d->net->domains; k++)
        if (each[k])
            in[n++] = each[k];
    return wf_accumulate(g, name, n, in);
}

struct wf_value *wf_network_build_domains(
    struct wf_network *net, const struct wf_network_config *c,
    struct wf_value *(*task)(const struct wf_network_config *c, struct wf_network *net))
{
    struct wf_graph *const g = net->graph;
    const int n = net->domains;
    struct domains d = { .net = net,
                         .config = c,
                         .parts = wf_arena_array(&g->arena, n, struct wf_domain_parts) };
    for (int i = 0; i < WF_ADAPTS; i++) {
        d.losses[i] = wf_arena_array(&g->arena, n, struct wf_value *);
        net->weights[i] = wf_input(g, wf_arena_printf(&g->arena, "weights.%s", wf_adapt_names[i]),
                                   WF_F32, WF_SHAPE(1, 1, 1, 1, 1));
        if (net->weights[i])
            net->weights[i]->replicated = true;
    }
    for (int k = 0; k < n; k++)
        c->model->build_domain(g, &c->config, k, net->images[k], &d.parts[k], &net->logits);
    g->domain = wf_domain_label(0, WF_ROLE_LOSSES);
    net->task = task(c, net);
    struct wf_value **const total = wf_arena_array(&g->arena, n, struct wf_value *);
    for (int k = 0; k < n; k++)
        total[k] = domain_loss(&d, k);
    g->domain = 0;
    if (!wf_graph_ok(g, &(struct wf_err){ 0 }))
        return NULL;
    for (int i = 0; i < WF_ADAPTS; i++)
        wf_graph_output(
            g, net->adapts[i] = over_domains(
                   &d, wf_arena_printf(&g->arena, "loss.%s", wf_adapt_names[i]), d.losses[i]));
    wf_graph_output(g, net->task);
    return over_domains(&d, "loss", total);
}

/* --- views --- */

static const char *named_code(struct wf_graph *g, const char *what, int domain)
{
    return wf_arena_printf(&g->arena, "code.%s.%d", what, domain);
}

bool wf_network_build_views(struct wf_network *net, const struct wf_network_config *c,
                            struct wf_shape image, struct wf_domain_views **views,
                            struct wf_err *err)
{
    *net = (struct wf_network){ 0 };
    struct wf_graph *const g = net->graph =
        wf_graph_new(&(struct wf_graph_options){ .compute = c->compute });
    wf_network_build_images(net, c, image, wf_model_domains(c->model, &c->config));
    *views = wf_arena_array(&g->arena, net->domains, struct wf_domain_views);
    for (int k = 0; k < net->domains; k++) {
        struct wf_domain_parts parts = { .apart = true };
        struct wf_domain_views *const v = &(*views)[k];
        c->model->build_domain(g, &c->config, k, net->images[k], &parts, &net->logits);
        g->domain = wf_domain_label(k, WF_ROLE_LOSSES);
        *v = (struct wf_domain_views){
            .rebuilt = { parts.from_shared, parts.from_own, parts.rebuilt },
            .codes = { pooled(g, parts.shared, named_code(g, "shared", k)),
                       pooled(g, parts.own, named_code(g, "private", k)) },
        };
        g->domain = 0;
        for (int i = 0; i < 3; i++)
            wf_graph_output(g, v->rebuilt[i]);
        for (int i = 0; i < 2; i++)
            wf_graph_output(g, v->codes[i]);
    }
    return wf_graph_ok(g, err) || wf_err_wrap(err, "network '%s'", c->model->name);
}
