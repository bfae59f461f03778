#include "train/points.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/norm.h"
#include "ops/sparse_ops.h"

/* Samples are dealt out as the layout does: the first ranks have one more. */
static int part_of_sample(const struct wf_points_of_step *p, int parts, int64_t sample)
{
    int part = 0;
    while (part < parts - 1 &&
           sample >= p->samples - wf_split_point(p->samples, parts, parts - part - 1))
        part++;
    return part;
}

static bool check_places(const struct wf_points_of_step *p, const int64_t order[],
                         struct wf_err *err)
{
    const int width = 1 + p->dims;
    for (int64_t i = 1; i < p->n; i++)
        if (memcmp(p->coords + order[i - 1] * width, p->coords + order[i] * width,
                   (size_t)width * sizeof *p->coords) == 0)
            return wf_err_set(err, WF_ERR_INPUT,
                              "points %" PRId64 " and %" PRId64
                              " are in one place: a tensor has each place once",
                              wf_min(order[i - 1], order[i]), wf_max(order[i - 1], order[i]));
    return true;
}

bool wf_rows_make(struct wf_arena *arena, const struct wf_points_of_step *p, int parts,
                  struct wf_rows *rows, struct wf_err *err)
{
    rows->parts = parts;
    rows->first = wf_arena_array(arena, parts + 1, int64_t);
    rows->point = wf_arena_array(arena, p->n + 1, int64_t);
    wf_coords_sort(p->coords, p->n, p->dims, rows->point);
    for (int64_t i = 0; i < p->n; i++) { /* samples lead, and parts have whole ones, in order */
        const int64_t sample = p->coords[rows->point[i] * (1 + p->dims)];
        if (sample < 0 || sample >= p->samples)
            return wf_err_set(err, WF_ERR_INPUT,
                              "point %" PRId64 " has batch index %" PRId64 ": there are %" PRId64
                              " samples, from 0",
                              rows->point[i], sample, p->samples);
        rows->first[part_of_sample(p, parts, sample) + 1] = i + 1;
    }
    for (int k = 0; k < parts; k++)
        rows->first[k + 1] = wf_max(rows->first[k + 1], rows->first[k]);
    return check_places(p, rows->point, err);
}

int wf_rows_part(const struct wf_rows *rows, const struct wf_value *value,
                 const struct wf_region *box)
{
    /* Parts of the capacity differ by one row at most. */
    const int64_t all = value->shape.at[WF_N];
    return (int)((box->lo[WF_N] * rows->parts + all / 2) / all);
}

/* The coordinate pass, on the host: sets are made of sets that were made before. */
void wf_rows_sets(const struct wf_graph *g, const struct wf_points_of_step *p,
                  const struct wf_rows *rows, int part, int64_t counts[WF_SETS + 1])
{
    const int64_t n = wf_rows_count(rows, part), width = 1 + p->dims;
    int32_t *made[WF_SETS + 1] = { NULL };
    const struct wf_value *const input = wf_graph_find(g, "coords");
    memset(counts, 0, (WF_SETS + 1) * sizeof *counts);
    made[input->set] = wf_take((size_t)(n * width + 1) * sizeof(int32_t));
    counts[input->set] = n;
    for (int64_t i = 0; i < n; i++)
        memcpy(made[input->set] + i * width, p->coords + rows->point[rows->first[part] + i] * width,
               (size_t)width * sizeof(int32_t));
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const node = g->nodes[i];
        if (!wf_coords_is_made(node))
            continue;
        const int32_t *from[2] = { NULL };
        int64_t rows_of[2] = { 0 };
        for (int k = 0; k < node->n_in; k++) {
            from[k] = made[node->in[k]->set];
            rows_of[k] = counts[node->in[k]->set];
        }
        const int set = node->out[0]->set;
        made[set] = wf_take((size_t)(wf_coords_room(node, rows_of) * width + 1) * sizeof(int32_t));
        counts[set] = wf_coords_make(node, from, rows_of, made[set]);
    }
    for (int s = 0; s <= WF_SETS; s++)
        free(made[s]);
}

bool wf_rows_check(const struct wf_graph *g, const int64_t totals[WF_SETS + 1], struct wf_err *err)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const n = g->nodes[i];
        const int set = n->op == &wf_op_moments ? n->in[0]->set : 0;
        if (set && totals[set] < 2) {
            const char *const dot = strrchr(n->name, '.');
            return wf_err_set(
                err, WF_ERR_INPUT,
                "layer '%.*s': batch norm over %" PRId64
                " point%s of the whole batch normalises everything to zero: take more "
                "points, a larger batch or fewer levels",
                (int)(dot ? dot - n->name : (int64_t)strlen(n->name)), n->name, totals[set],
                totals[set] == 1 ? "" : "s");
        }
    }
    return true;
}
