#include "plan/mesh.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/op.h"

static const char *const axis_names[WF_MESH_AXES] = { "data", "domain", "pipe" };

struct wf_mesh wf_mesh_one(void)
{
    struct wf_mesh mesh;
    for (int a = 0; a < WF_MESH_AXES; a++)
        mesh.at[a] = 1;
    return mesh;
}

static bool parse_extent(const char **at, int *out)
{
    char *end;
    const long value = strtol(*at, &end, 10);
    if (end == *at || value < 1 || value > 1'000'000)
        return false;
    *at = end;
    *out = (int)value;
    return true;
}

/* "2", "2x3" or "2x3x4": the last is W. */
static bool parse_space(const char **at, struct wf_mesh *mesh)
{
    int extents[3], n = 0;
    do {
        if (n == 3 || !parse_extent(at, &extents[n++]))
            return false;
    } while (**at == 'x' && (*at)++);
    for (int i = 0; i < n; i++)
        mesh->at[WF_MESH_W - (n - 1) + i] = extents[i];
    return true;
}

bool wf_mesh_parse(const char *text, struct wf_mesh *mesh, struct wf_err *err)
{
    *mesh = wf_mesh_one();
    const char *at = text;
    while (*at) {
        const size_t length = strcspn(at, "=,");
        int axis = 0;
        while (axis < WF_MESH_D &&
               (strlen(axis_names[axis]) != length || strncmp(at, axis_names[axis], length) != 0))
            axis++;
        const bool space = length == 5 && strncmp(at, "space", 5) == 0;
        if ((axis == WF_MESH_D && !space) || at[length] != '=')
            return wf_err_set(err, WF_ERR_USAGE,
                              "mesh '%s': expected axes data, domain, pipe, space such as "
                              "data=2,space=2x2, got '%.*s'",
                              text, (int)length, at);
        at += length + 1;
        if (!(space ? parse_space(&at, mesh) : parse_extent(&at, &mesh->at[axis])) ||
            (*at && *at != ','))
            return wf_err_set(err, WF_ERR_USAGE, "mesh '%s': '%s' takes %s of at least 1", text,
                              space ? "space" : axis_names[axis],
                              space ? "W, HxW or DxHxW ranks" : "a number");
        at += *at == ',';
    }
    int64_t ranks = 1;
    for (int a = 0; a < WF_MESH_AXES; a++)
        ranks *= mesh->at[a];
    if (ranks > 1'000'000)
        return wf_err_set(err, WF_ERR_USAGE, "mesh '%s': more than a million ranks", text);
    return true;
}

char *wf_mesh_print(struct wf_arena *arena, const struct wf_mesh *mesh)
{
    char *text = wf_arena_copy(arena, "");
    for (int a = 0; a < WF_MESH_D; a++)
        if (mesh->at[a] > 1)
            text = wf_arena_printf(arena, "%s%s%s=%d", text, *text ? "," : "", axis_names[a],
                                   mesh->at[a]);
    const int *s = mesh->at;
    const char *gap = *text ? "," : "";
    if (s[WF_MESH_D] > 1)
        return wf_arena_printf(arena, "%s%sspace=%dx%dx%d", text, gap, s[WF_MESH_D], s[WF_MESH_H],
                               s[WF_MESH_W]);
    if (s[WF_MESH_H] > 1)
        return wf_arena_printf(arena, "%s%sspace=%dx%d", text, gap, s[WF_MESH_H], s[WF_MESH_W]);
    if (s[WF_MESH_W] > 1 || !*text)
        return wf_arena_printf(arena, "%s%sspace=%d", text, gap, s[WF_MESH_W]);
    return text;
}

int wf_mesh_size(const struct wf_mesh *mesh)
{
    int size = 1;
    for (int a = 0; a < WF_MESH_AXES; a++)
        size *= mesh->at[a];
    return size;
}

void wf_mesh_coords(const struct wf_mesh *mesh, int rank, int at[WF_MESH_AXES])
{
    for (int a = WF_MESH_AXES - 1; a >= 0; a--) {
        at[a] = rank % mesh->at[a];
        rank /= mesh->at[a];
    }
}

int wf_mesh_rank(const struct wf_mesh *mesh, const int at[WF_MESH_AXES])
{
    int rank = 0;
    for (int a = 0; a < WF_MESH_AXES; a++)
        rank = rank * mesh->at[a] + at[a];
    return rank;
}

int wf_mesh_axis_of(enum wf_axis axis)
{
    static const int of[WF_AXES] = { WF_MESH_DATA, WF_MESH_D, WF_MESH_H, WF_MESH_W, -1 };
    return of[axis];
}

/* --- layout --- */

/* Strides multiply up along the graph. A ratio of extents is rounded to a whole stride (or a whole
 * magnification): 189 -> 94 is a stride of 2, so that odd images keep the cuts of even ones. */
static double step_scale(int64_t in, int64_t out)
{
    if (in == out || in < 1 || out < 1)
        return 1.0;
    return in > out ? round((double)in / (double)out) : 1.0 / round((double)out / (double)in);
}

static const struct wf_value *first_image(const struct wf_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && !n->in[i]->replicated)
            return n->in[i];
    return NULL;
}

static void find_scales(struct wf_layout *l, const struct wf_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        const struct wf_value *from = v->producer ? first_image(v->producer) : NULL;
        for (int a = 0; a < WF_AXES; a++) {
            double *scale = &l->scale[v->id][a];
            if (!from || from->shape.at[a] == 1)
                *scale = step_scale(l->root[a], v->shape.at[a]);
            else
                *scale = l->scale[from->id][a] * step_scale(from->shape.at[a], v->shape.at[a]);
        }
    }
}

/* The coarsest stride for which each part still has several rows; 1 where none has. */
static int64_t alignment(const struct wf_layout *l, const struct wf_graph *g, enum wf_axis axis,
                         int64_t parts)
{
    double best = 1.0;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        const double scale = l->scale[v->id][axis];
        if (!v->replicated && v->shape.at[axis] >= 4 * parts && scale > best &&
            scale == floor(scale))
            best = scale;
    }
    return (int64_t)best;
}

bool wf_layout_init(struct wf_arena *arena, struct wf_layout *l, const struct wf_graph *g,
                    const struct wf_mesh *mesh, struct wf_err *err)
{
    *l = (struct wf_layout){ .mesh = *mesh };
    if (mesh->at[WF_MESH_DOMAIN] > 1 || mesh->at[WF_MESH_PIPE] > 1)
        return wf_err_set(
            err, WF_ERR_FIT,
            "mesh: axes pipe and domain are not supported by this network: use data and space");
    for (int a = 0; a < WF_AXES; a++)
        l->root[a] = 1;
    for (size_t i = 0; i < g->n_values; i++)
        for (int a = 0; a < WF_AXES; a++)
            if (g->values[i]->kind == WF_INPUT && !g->values[i]->replicated)
                l->root[a] = wf_max(l->root[a], g->values[i]->shape.at[a]);
    l->scale = wf_arena_take_array(arena, g->n_values, sizeof *l->scale);
    find_scales(l, g);
    for (int a = 0; a < WF_C; a++) {
        const int64_t parts = mesh->at[wf_mesh_axis_of((enum wf_axis)a)];
        /* Fewer samples than ranks are no hindrance: the last batch of an epoch may be small. */
        if (a != WF_N && parts > 1 && parts > l->root[a])
            return wf_err_set(err, WF_ERR_FIT,
                              "mesh: %" PRId64 " ranks along %s, but the image has %" PRId64
                              " there: use at most %" PRId64,
                              parts,
                              a == WF_D   ? "space D"
                              : a == WF_H ? "space H"
                                          : "space W",
                              l->root[a], l->root[a]);
        const int64_t align = alignment(l, g, (enum wf_axis)a, parts);
        l->cut[a] = wf_arena_array(arena, parts + 1, int64_t);
        for (int64_t i = 1; i < parts; i++) {
            /* Of samples the first ranks have one more: rounded up. */
            const int64_t even = a == WF_N
                                     ? l->root[a] - wf_split_point(l->root[a], parts, parts - i)
                                     : wf_split_point(l->root[a], parts, i);
            l->cut[a][i] = (even + align / 2) / align * align;
        }
        l->cut[a][parts] = l->root[a];
    }
    return true;
}

/* More samples than the image has, and enough for every rank. */
static bool is_distributed_by_sample(const struct wf_layout *l, const struct wf_value *v)
{
    return l->scale[v->id][WF_N] < 1 && v->shape.at[WF_N] >= wf_mesh_size(&l->mesh);
}

unsigned wf_layout_cutters(const struct wf_layout *l, const struct wf_value *v, enum wf_axis axis)
{
    if (v->replicated || axis == WF_C || v->shape.at[axis] == 1)
        return 0;
    unsigned mask = 1u << wf_mesh_axis_of(axis), cutters = 0;
    if (is_distributed_by_sample(l, v))
        mask = axis == WF_N ? ~0u : 0;
    for (int a = 0; a < WF_MESH_AXES; a++)
        if ((mask & (1u << a)) && l->mesh.at[a] > 1)
            cutters |= 1u << a;
    return cutters;
}

bool wf_layout_is_cut(const struct wf_layout *l, const struct wf_value *v, enum wf_axis axis)
{
    return wf_layout_cutters(l, v, axis) != 0;
}

int wf_layout_parts(const struct wf_layout *l, const struct wf_value *v, enum wf_axis axis)
{
    const unsigned cutters = wf_layout_cutters(l, v, axis);
    int parts = 1;
    for (int a = 0; a < WF_MESH_AXES; a++)
        parts *= cutters & (1u << a) ? l->mesh.at[a] : 1;
    return parts;
}

int wf_layout_part_at(const struct wf_layout *l, const struct wf_value *v, enum wf_axis axis,
                      const int at[WF_MESH_AXES])
{
    const unsigned cutters = wf_layout_cutters(l, v, axis);
    int part = 0;
    for (int a = 0; a < WF_MESH_AXES; a++)
        if (cutters & (1u << a))
            part = part * l->mesh.at[a] + at[a];
    return part;
}

void wf_layout_part_coords(const struct wf_layout *l, const struct wf_value *v, enum wf_axis axis,
                           int part, int at[WF_MESH_AXES])
{
    const unsigned cutters = wf_layout_cutters(l, v, axis);
    for (int a = WF_MESH_AXES - 1; a >= 0; a--)
        if (cutters & (1u << a)) {
            at[a] = part % l->mesh.at[a];
            part /= l->mesh.at[a];
        }
}

int64_t wf_layout_point(const struct wf_layout *l, const struct wf_value *v, enum wf_axis axis,
                        int index)
{
    const int64_t extent = v->shape.at[axis];
    const int parts = wf_layout_parts(l, v, axis);
    if (index == 0)
        return 0;
    if (index == parts)
        return extent;
    if (is_distributed_by_sample(l, v))
        return wf_split_point(extent, parts, index);
    const int64_t point = llround((double)l->cut[axis][index] / l->scale[v->id][axis]);
    return wf_min(extent, point);
}

struct wf_region wf_layout_owned(const struct wf_layout *l, const struct wf_value *v, int rank)
{
    struct wf_region r = wf_shape_region(v->shape);
    int at[WF_MESH_AXES];
    wf_mesh_coords(&l->mesh, rank, at);
    for (int a = 0; a < WF_AXES; a++) {
        if (!wf_layout_is_cut(l, v, (enum wf_axis)a))
            continue;
        const int part = wf_layout_part_at(l, v, (enum wf_axis)a, at);
        r.lo[a] = wf_layout_point(l, v, (enum wf_axis)a, part);
        r.hi[a] = wf_layout_point(l, v, (enum wf_axis)a, part + 1);
    }
    return r;
}
