/* The points of an exec's sparse inputs: arrays of the program in the order of the points, rows of the ranks in
 * theirs (train/points.h). */
#pragma once

#include "api/session.h"

struct wf_exec_points;

/* Points are cut by sample only. */
[[nodiscard]] bool wf_exec_points_check(const struct wf_graph *g, const struct wf_mesh *mesh,
                                        struct wf_err *err);
struct wf_exec_points *wf_exec_points_new(const struct wf_graph *g, const struct wf_mesh *mesh);
void wf_exec_points_free(struct wf_exec_points *p);

/* Of the input of coordinates `v`: who has which. */
[[nodiscard]] bool wf_exec_points_set(struct wf_exec_points *p, const struct wf_value *v,
                                      const int32_t *coords, int64_t n, struct wf_err *err);
/* An array of so many elements is one of the value's points. */
[[nodiscard]] bool wf_exec_points_size(const struct wf_exec_points *p, const struct wf_value *v,
                                       size_t count, struct wf_err *err);

/* On a rank: its coordinates and its counts, or its rows of an array of numbers. */
void wf_exec_points_place(const struct wf_exec_points *p, struct wf_run *run,
                          const struct wf_value *v);
void wf_exec_points_put(const struct wf_exec_points *p, struct wf_run *run,
                        const struct wf_value *v, const float *array);
/* Room for all rows of the value, capacity included; and the points' numbers among them. */
float *wf_exec_points_room(const struct wf_value *v);
void wf_exec_points_get(const struct wf_exec_points *p, const struct wf_value *v, const float *rows,
                        float *array);
