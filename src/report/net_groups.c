#include "report/net_groups.h"

#include <math.h>
#include <string.h>

enum { DEEPEST = 12 }; /* parts of a name that are told apart at most */

static bool is_drawn(const struct wf_shape *s)
{
    return s->at[WF_C] > 0;
}

/* How often the image was halved; -1: a vector. */
static int level_of(const struct wf_shape *s, struct wf_shape image)
{
    if (s->at[WF_D] * s->at[WF_H] * s->at[WF_W] == 1)
        return -1;
    double most = 0;
    for (int axis = WF_D; axis < WF_C; axis++)
        most = fmax(most, (double)image.at[axis] / (double)s->at[axis]);
    return most > 1 ? (int)lround(log2(most)) : 0;
}

/* Bytes of a name's first parts: "a.b" of "a.b.c.weight" for two. The last part tells layers of one block apart, and
 * counts where it is the only one. */
static size_t prefix(const char *name, int parts)
{
    size_t n = strcspn(name, "./");
    for (int i = 1; i < parts && name[n]; i++) {
        const size_t more = strcspn(name + n + 1, "./");
        if (!name[n + 1 + more]) /* the last one */
            break;
        n += 1 + more;
    }
    return n;
}

static bool alike(const char *a, const char *b, int parts)
{
    const size_t n = prefix(a, parts);
    return n == prefix(b, parts) && strncmp(a, b, n) == 0;
}

static void start_box(struct wf_arena *arena, struct wf_net_boxes *b, int layer, int parts,
                      struct wf_shape image)
{
    const char *const name = b->net->layers[layer].name;
    b->boxes[b->count++] =
        (struct wf_net_box){ .name = wf_arena_printf(arena, "%.*s", (int)prefix(name, parts), name),
                             .first = layer,
                             .level = level_of(&b->shapes[layer], image) };
}

/* Layers in their order; one joins the box before it where name and level are alike. */
static void group(struct wf_arena *arena, struct wf_net_boxes *b, int parts, struct wf_shape image)
{
    const struct wf_layer *const layers = b->net->layers;
    b->count = 0;
    for (int i = 0; i < b->net->n_layers; i++) {
        b->box_of[i] = -1;
        if (!is_drawn(&b->shapes[i]))
            continue;
        const struct wf_net_box *const box = b->count ? &b->boxes[b->count - 1] : NULL;
        if (!box || box->level != level_of(&b->shapes[i], image) ||
            !alike(layers[box->first].name, layers[i].name, parts))
            start_box(arena, b, i, parts, image);
        b->box_of[i] = b->count - 1;
        b->boxes[b->count - 1].last = i;
        b->boxes[b->count - 1].shape = b->shapes[i];
    }
}

/* Is there a layer with weights in it that is no normalisation? */
static bool has_products(const struct wf_net_boxes *b, int box)
{
    for (int i = b->boxes[box].first; i <= b->boxes[box].last; i++) {
        const struct wf_layer_kind *const kind = b->net->layers[i].kind;
        if (b->box_of[i] == box && kind->weights && !strstr(kind->name, "_norm"))
            return true;
    }
    return false;
}

/* The box joins the next one, which keeps its name. */
static void join_next(struct wf_net_boxes *b, int box)
{
    b->boxes[box + 1].first = b->boxes[box].first;
    for (int i = 0; i < b->net->n_layers; i++)
        b->box_of[i] -= b->box_of[i] > box;
    memmove(&b->boxes[box], &b->boxes[box + 1], (size_t)(b->count - box - 1) * sizeof b->boxes[0]);
    b->count--;
}

/* A pooling, a norm, an activation or a sum by itself joins what is next to it on its level. */
static void join_small(struct wf_net_boxes *b)
{
    for (int i = 0; i + 1 < b->count;) {
        const bool same = b->boxes[i].level == b->boxes[i + 1].level;
        if (same && !has_products(b, i + 1)) {
            const char *const name = b->boxes[i].name;
            join_next(b, i);
            b->boxes[i].name = name;
        } else if (same && !has_products(b, i)) {
            join_next(b, i);
        } else {
            i++;
        }
    }
}

/* Where names do not help: neighbours on a level are one box. */
static void join_levels(struct wf_arena *arena, struct wf_net_boxes *b)
{
    for (int i = 0; i + 1 < b->count;) {
        if (b->boxes[i].level != b->boxes[i + 1].level) {
            i++;
            continue;
        }
        const char *const first = b->boxes[i].name;
        const size_t n = strcspn(first, "\n");
        const char *const last = b->boxes[i + 1].name;
        join_next(b, i);
        b->boxes[i].name = wf_arena_printf(arena, "%.*s\n%s", (int)n, first, last);
    }
}

struct wf_net_boxes wf_net_group(struct wf_arena *arena, const struct wf_net *net,
                                 const struct wf_shape *shapes, struct wf_shape image)
{
    struct wf_net_boxes b = { .net = net, .shapes = shapes };
    b.boxes = wf_arena_array(arena, net->n_layers, struct wf_net_box);
    b.box_of = wf_arena_array(arena, net->n_layers, int);
    for (int parts = DEEPEST; parts >= 1; parts--) {
        group(arena, &b, parts, image);
        join_small(&b);
        if (b.count <= WF_NET_BOXES_MAX)
            break;
    }
    if (b.count > WF_NET_BOXES_MAX)
        join_levels(arena, &b);
    for (int i = 0; i < b.count; i++)
        if (b.boxes[i].level + 1 > b.levels)
            b.levels = b.boxes[i].level + 1;
    bool has_vectors = false;
    for (int i = 0; i < b.count; i++)
        if (b.boxes[i].level < 0) {
            b.boxes[i].level = b.levels;
            has_vectors = true;
        }
    b.levels += has_vectors;
    return b;
}
