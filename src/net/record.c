#include "net/record.h"

#include <inttypes.h>
#include <string.h>

/* No network has as many channels elsewhere: where there are, they are classes. */
enum { MARKED = 65521 };

/* The graph of a network on an image of `side` along each axis; NULL with an error. */
static struct wf_graph *built(const struct wf_model *m, const struct wf_model_config *c,
                              int64_t side, bool notes, struct wf_graph_net *from,
                              struct wf_err *err)
{
    struct wf_graph *const g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_shape shape = WF_SHAPE(2, 1, 1, 1, c->in);
    for (int i = 0; i < c->dims; i++)
        shape.at[WF_W - i] = side;
    g->takes_notes = notes;
    struct wf_value *const image = wf_model_input(g, m, c, "image", shape);
    struct wf_value *const logits = m->build(g, c, image);
    if (!wf_graph_ok(g, err)) {
        wf_graph_free(g);
        return NULL;
    }
    wf_graph_output(g, logits);
    *from = (struct wf_graph_net){
        .name = m->name, .dims = c->dims, .classes = c->classes, .image = image, .logits = logits
    };
    return g;
}

/* Does the network that was written down build the same graph? */
static bool is_same(const struct wf_net *net, const struct wf_model *m,
                    const struct wf_model_config *c, int64_t side, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_graph_net from;
    struct wf_graph *const want = built(m, c, side, false, &from, err);
    struct wf_graph *const got = wf_graph_new(&(struct wf_graph_options){ .training = true });
    bool ok = false;
    if (want) {
        wf_graph_output(
            got,
            wf_net_build(got, net, wf_model_input(got, m, c, "image", from.image->shape), NULL));
        ok = wf_graph_ok(got, err) &&
             strcmp(wf_graph_print(&arena, got), wf_graph_print(&arena, want)) == 0;
        if (!ok)
            (void)wf_err_set(err, WF_ERR_USAGE,
                             "network '%s' depends on the size of the image in a way that network "
                             "files have no form for",
                             m->name);
    }
    wf_graph_free(want);
    wf_graph_free(got);
    wf_arena_release(&arena);
    return ok;
}

struct wf_net *wf_net_record(const struct wf_model *m, const struct wf_model_config *c,
                             struct wf_err *err)
{
    static const int64_t sides[][3] = { { 1024, 999, 736 }, { 256, 239, 378 }, { 64, 67, 95 } };
    if (m->sparse || m->domains) {
        (void)wf_err_set(err, WF_ERR_USAGE,
                         "network '%s' is of %s, which network files have no form for", m->name,
                         m->sparse ? "points" : "several domains");
        return NULL;
    }
    const int64_t *const side = sides[c->dims - 1];
    struct wf_model_config marked = *c;
    struct wf_graph_net from;
    marked.classes = MARKED;
    struct wf_graph *const g = built(m, &marked, side[0], true, &from, err);
    if (!g)
        (void)wf_err_wrap(err, "network '%s' has no form for images of any size", m->name);
    struct wf_net *net = g ? wf_net_of_graph(g, &from, err) : NULL;
    wf_graph_free(g);
    if (!net)
        return NULL;
    net->classes = c->classes;
    if (is_same(net, m, c, side[1], err) && is_same(net, m, c, side[2], err))
        return net;
    wf_net_free(net);
    return NULL;
}
