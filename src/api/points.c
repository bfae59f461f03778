#include "api/points.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/op.h"
#include "train/points.h"

/* Of one set that is given. */
struct given {
    struct wf_arena arena;
    struct wf_points_rows rows;
    int32_t *coords;
    int64_t n;
    bool is_set;
};

struct wf_exec_points {
    const struct wf_graph *graph;
    int parts;
    struct given of[WF_SETS + 1];
};

bool wf_exec_points_check(const struct wf_graph *g, const struct wf_mesh *mesh, struct wf_err *err)
{
    for (int a = WF_MESH_D; g->rows && a <= WF_MESH_W; a++)
        if (mesh->at[a] > 1)
            return wf_err_set(err, WF_ERR_FIT,
                              "mesh: points of a graph of your own are cut by sample: use data");
    return true;
}

struct wf_exec_points *wf_exec_points_new(const struct wf_graph *g, const struct wf_mesh *mesh)
{
    struct wf_exec_points *const p = wf_take_zeroed(1, sizeof *p);
    p->graph = g;
    p->parts = wf_mesh_size(mesh);
    return p;
}

void wf_exec_points_free(struct wf_exec_points *p)
{
    for (int s = 0; p && s <= WF_SETS; s++)
        wf_arena_release(&p->of[s].arena);
    free(p);
}

/* First row of a part among all rows. */
static int64_t part_point(const struct wf_exec_points *p, const struct wf_value *v, int part)
{
    return wf_split_point(v->shape.at[WF_N], p->parts, part);
}

bool wf_exec_points_set(struct wf_exec_points *p, const struct wf_value *v, const int32_t *coords,
                        int64_t n, struct wf_err *err)
{
    struct given *const given = &p->of[v->set];
    const int64_t width = v->shape.at[WF_C];
    const struct wf_points_of_step points = {
        .dims = (int)width - 1, .n = n, .samples = wf_max(1, p->graph->samples), .coords = coords
    };
    const struct wf_points_cut cut = wf_points_uncut(p->parts);
    wf_arena_release(&given->arena);
    *given = (struct given){ .n = n };
    if (!wf_rows_make(&given->arena, &points, &cut, &given->rows, err))
        return wf_err_wrap(err, "'%s'", v->name);
    for (int k = 0; k < p->parts; k++) {
        const int64_t room = part_point(p, v, k + 1) - part_point(p, v, k);
        if (wf_rows_count(&given->rows, k) > room)
            return wf_err_set(err, WF_ERR_FIT,
                              "'%s': rank %d gets %" PRId64 " points, and has room for %" PRId64
                              ": give the input more rows",
                              v->name, k, wf_rows_count(&given->rows, k), room);
    }
    given->coords = wf_arena_array(&given->arena, n * width + 1, int32_t);
    memcpy(given->coords, coords, (size_t)(n * width) * sizeof *coords);
    given->is_set = true;
    return true;
}

bool wf_exec_points_size(const struct wf_exec_points *p, const struct wf_value *v, size_t count,
                         struct wf_err *err)
{
    const struct given *const given = &p->of[v->set];
    const size_t there = (size_t)(given->n * v->shape.at[WF_C]);
    if (!given->is_set)
        return wf_err_set(err, WF_ERR_USAGE,
                          "'%s' is on coordinates that were not put: see wf_exec_put_points()",
                          v->name);
    return count == there ||
           wf_err_set(err, WF_ERR_USAGE, "'%s' has %zu elements, but the array has %zu", v->name,
                      there, count);
}

/* The rank's rows of coordinates, or of an array of numbers. */
static void put_rows(const struct wf_exec_points *p, struct wf_run *run, const struct wf_value *v,
                     const float *numbers)
{
    const struct given *const given = &p->of[v->set];
    const int64_t width = v->shape.at[WF_C];
    struct wf_host host = { 0 };
    wf_run_map(run, v, &host);
    const int part = host.view.data ? wf_rows_part(&given->rows, v, &host.view.box) : 0;
    for (int64_t r = 0; host.view.data && r < wf_rows_count(&given->rows, part); r++) {
        const int64_t point = given->rows.point[given->rows.first[part] + r];
        for (int64_t c = 0; c < width; c++)
            wf_view_put(&host.view, host.view.box.lo[WF_N] + r, 0, 0, 0, c,
                        numbers ? (double)numbers[point * width + c]
                                : given->coords[point * width + c]);
    }
    wf_host_put(&host);
    wf_host_release(&host);
}

void wf_exec_points_place(const struct wf_exec_points *p, struct wf_run *run,
                          const struct wf_value *v)
{
    const int part = wf_run_plan(run)->rank;
    int32_t counts[WF_SETS + 1] = { 0 };
    for (int s = 0; s <= WF_SETS; s++)
        if (p->of[s].is_set)
            counts[s] = (int32_t)wf_rows_count(&p->of[s].rows, part);
    wf_run_put(run, p->graph->rows, counts);
    put_rows(p, run, v, NULL);
}

void wf_exec_points_put(const struct wf_exec_points *p, struct wf_run *run,
                        const struct wf_value *v, const float *array)
{
    put_rows(p, run, v, array);
}

float *wf_exec_points_room(const struct wf_value *v)
{
    return wf_take((size_t)wf_shape_count(v->shape) * sizeof(float));
}

void wf_exec_points_get(const struct wf_exec_points *p, const struct wf_value *v, const float *rows,
                        float *array)
{
    const struct given *const given = &p->of[v->set];
    const size_t bytes = (size_t)v->shape.at[WF_C] * sizeof *array;
    for (int k = 0; k < p->parts; k++)
        for (int64_t r = 0; r < wf_rows_count(&given->rows, k); r++)
            memcpy(array + given->rows.point[given->rows.first[k] + r] * v->shape.at[WF_C],
                   rows + (part_point(p, v, k) + r) * v->shape.at[WF_C], bytes);
}
