/*
 * Networks on subdomains: gradients of a whole DDU-Net against finite differences, and what the
 * statistics of its norms are over. Oracles: central differences in f64, sums by hand, and the plain
 * interpreter on each part alone.
 */
/* ranks: 1 2 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "comm/comm.h"
#include "device/device.h"
#include "exec/run.h"
#include "models/talk.h"
#include "ops/build.h"
#include "support.h"

/* --- the whole network against finite differences --- */

static void widen(const struct wf_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->dtype == WF_F32)
            g->values[i]->dtype = WF_F64;
}

static double loss_of(const struct wf_graph *g, const struct support_values *v,
                      const struct wf_value *loss)
{
    support_run_reference(g, v, false);
    return wf_view_get(&v->views[loss->id], 0, 0, 0, 0, 0);
}

/* Parameters near one for scales, small elsewhere, so that nothing dies. */
static void fill_network(const struct wf_graph *g, const struct support_values *v)
{
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *p = g->values[i];
        if (p->kind == WF_TEMP)
            continue;
        support_fill_random(&v->views[i], 5, i);
        const bool scale = p->kind == WF_PARAM && p->init == WF_INIT_ONE;
        for (struct wf_cursor c = wf_cursor(v->views[i].box); wf_cursor_next(&c);) {
            const double x = wf_view_at(&v->views[i], c.at);
            wf_view_set(&v->views[i], c.at, scale ? 1.0 + 0.3 * x : x);
        }
    }
}

static int wrong_gradients(const struct wf_graph *g, const struct support_values *v,
                           const struct wf_value *loss, const struct wf_value *p)
{
    enum { TRIES = 6 };
    const struct wf_value *grad = p->grad;
    const double step = 1e-6;
    int wrong = 0;
    assert_non_null(grad);
    double *const data = v->views[p->id].data;
    for (int i = 0; i < TRIES; i++) {
        const int64_t at = wf_random_below(wf_random(9, (uint64_t)p->id), (uint64_t)i,
                                           (uint32_t)wf_shape_count(p->shape));
        const double kept = data[at];
        const double got = wf_dtype_get(grad->dtype, v->views[grad->id].data, at);
        data[at] = kept + step;
        const double above = loss_of(g, v, loss);
        data[at] = kept - step;
        const double below = loss_of(g, v, loss);
        data[at] = kept;
        const double want = (above - below) / (2 * step);
        if (fabs(got - want) <= 1e-4 * fabs(want) + 1e-7)
            continue;
        print_error("%s[%lld]: gradient %.9g, finite difference %.9g\n", p->name, (long long)at,
                    got, want);
        wrong++;
    }
    return wrong;
}

static void ddunet_differs_right(enum wf_statistics statistics, enum wf_talk talk)
{
    struct wf_err err = { 0 };
    const struct wf_model *m = wf_model_find("ddunet", &err);
    struct wf_model_config c = { .dims = 2,
                                 .in = 1,
                                 .classes = 2,
                                 .base = 2,
                                 .depth = 1,
                                 .own = &(struct wf_subdomains){ .tiles = { 1, 2, 2 },
                                                                 .channels = 2,
                                                                 .layers = 2,
                                                                 .kernel = 3,
                                                                 .talk = talk,
                                                                 .statistics = statistics } };
    assert_true(wf_model_resolve(m, &c, &err));
    struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
    struct wf_value *x = wf_input(g, "image", WF_F32, WF_SHAPE(2, 1, 7, 8, 1));
    struct wf_value *target = wf_input(g, "target", WF_F32, WF_SHAPE(2, 1, 7, 8, 2));
    struct wf_value *y = m->build(g, &c, x);
    struct wf_value *loss = wf_mse(g, y, target, &(struct wf_loss){ .name = "loss" });
    assert_true(wf_graph_ok(g, &err));
    assert_true(wf_graph_grad(g, loss, NULL, 0, NULL, NULL, &err));
    widen(g);
    struct support_values v = support_values_new(g);
    fill_network(g, &v);
    support_run_reference(g, &v, true);
    int wrong = 0;
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->kind == WF_PARAM)
            wrong += wrong_gradients(g, &v, loss, g->values[i]);
    assert_int_equal(wrong, 0);
    support_values_free(&v);
    wf_graph_free(g);
}

static void ddunet__gradients_equal_finite_differences(void **state)
{
    ddunet_differs_right(WF_STATISTICS_GLOBAL, WF_TALK_COARSEST);
    ddunet_differs_right(WF_STATISTICS_TILE, WF_TALK_LEVELS);
    ddunet_differs_right(WF_STATISTICS_TILE, WF_TALK_ALONE);
}

/* --- statistics --- */

struct layer {
    struct wf_graph *g;
    struct wf_value *x, *dy, *y, *dx;
};

static struct layer norm_layer(int64_t samples, const struct wf_norm *norm)
{
    struct wf_err err = { 0 };
    struct layer l = { .g = wf_graph_new(&(struct wf_graph_options){ .training = true }) };
    l.x = wf_input(l.g, "x", WF_F32, WF_SHAPE(samples, 1, 2, 3, 2));
    l.dy = wf_input(l.g, "dy", WF_F32, l.x->shape);
    l.y = wf_batch_norm(l.g, l.x, norm);
    assert_true(wf_graph_ok(l.g, &err));
    wf_graph_output(l.g, l.y);
    assert_true(wf_graph_grad(l.g, l.y, l.dy, 1, &l.x, &l.dx, &err));
    wf_graph_output(l.g, l.dx);
    return l;
}

/* The mean over the samples first, first + step, ... of channel c. */
static double mean_of(const struct wf_view *x, int64_t first, int64_t step, int64_t c)
{
    double sum = 0, count = 0;
    for (struct wf_cursor p = wf_cursor(x->box); wf_cursor_next(&p);)
        if (p.at[WF_C] == c && p.at[WF_N] >= first && (p.at[WF_N] - first) % step == 0) {
            sum += wf_view_at(x, p.at);
            count++;
        }
    return sum / count;
}

static void statistics__of_each_subdomain_run_over_the_batch(void **state)
{
    enum { TILES = 3, SAMPLES = 6 };
    const struct layer l = norm_layer(SAMPLES, &(struct wf_norm){ .name = "bn", .tiles = TILES });
    struct support_values v = support_values_new(l.g);
    for (size_t i = 0; i < l.g->n_values; i++)
        if (l.g->values[i]->kind != WF_TEMP)
            support_fill_random(&v.views[i], 3, i);
    const struct wf_value *w = wf_graph_find(l.g, "bn.weight"), *b = wf_graph_find(l.g, "bn.bias");
    wf_view_fill(&v.views[w->id], 1.0);
    wf_view_fill(&v.views[b->id], 0.0);
    const struct wf_value *mean = wf_graph_find(l.g, "bn.running_mean");
    wf_view_fill(&v.views[mean->id], 0.0);
    support_run_reference(l.g, &v, true);
    for (int64_t t = 0; t < TILES; t++)
        for (int64_t c = 0; c < 2; c++) {
            /* Each subdomain has mean zero over both images, and not over one of them. */
            assert_true(fabs(mean_of(&v.views[l.y->id], t, TILES, c)) < 1e-6);
            assert_true(fabs(mean_of(&v.views[l.y->id], t, SAMPLES, c)) > 1e-3);
        }
    for (int64_t c = 0; c < 2; c++) {
        const double all = mean_of(&v.views[l.x->id], 0, 1, c);
        const struct wf_value *next = wf_graph_next_state(l.g, wf_graph_find(l.g, mean->name));
        assert_true(fabs(wf_view_get(&v.views[next->id], 0, 0, 0, 0, c) - 0.1 * all) < 1e-6);
    }
    support_values_free(&v);
    wf_graph_free(l.g);
}

/* What each of two ranks must get: the layer on its half of the batch alone. */
struct halves {
    struct layer whole;
    struct layer half[2];
    struct support_values v[2];
};

static void copy_samples(const struct wf_view *to, const struct wf_view *from)
{
    for (struct wf_cursor c = wf_cursor(to->box); wf_cursor_next(&c);)
        wf_view_set(to, c.at, wf_view_at(from, c.at));
}

static bool equal_part(const struct wf_view *got, const struct wf_view *want, int64_t first,
                       struct wf_err *err)
{
    for (struct wf_cursor c = wf_cursor(got->box); wf_cursor_next(&c);) {
        int64_t at[WF_AXES];
        memcpy(at, c.at, sizeof at);
        at[WF_N] -= first;
        const double a = wf_view_at(got, c.at), b = wf_view_at(want, at);
        if (fabs(a - b) > 1e-5 * (1 + fabs(b)))
            return wf_err_set(err, WF_ERR_FAILED, "got %.9g, alone %.9g", a, b);
    }
    return true;
}

static bool on_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct halves *h = arg;
    const int rank = wf_comm_rank(comm);
    const struct layer *l = &h->whole;
    struct wf_mesh mesh;
    if (!wf_mesh_parse("data=2", &mesh, err))
        return false;
    const struct wf_plan_options options = { .device = &wf_device_cpu };
    struct wf_global_plan *global = wf_global_plan_new(l->g, &mesh, &options, err);
    struct wf_plan *plan = global ? wf_plan_new(global, rank, err) : NULL;
    struct wf_run *run = plan ? wf_run_new(plan, comm, 1, err) : NULL;
    bool ok = run != NULL;
    if (ok) {
        wf_run_init_weights(run, 1);
        for (int i = 0; i < 2; i++) {
            const struct wf_view to = wf_run_view(run, i ? l->dy : l->x);
            struct wf_view from = h->v[rank].views[(i ? h->half[rank].dy : h->half[rank].x)->id];
            from.box = to.box; /* the half's samples, by the whole's numbers */
            copy_samples(&to, &from);
        }
        const struct wf_view *v = h->v[rank].views;
        ok = wf_run_step(run, err);
        const struct wf_view y = wf_run_owned(run, l->y), dx = wf_run_owned(run, l->dx);
        ok = ok && equal_part(&y, &v[h->half[rank].y->id], y.box.lo[WF_N], err) &&
             equal_part(&dx, &v[h->half[rank].dx->id], dx.box.lo[WF_N], err);
    }
    wf_run_free(run);
    wf_plan_free(plan);
    wf_global_plan_free(global);
    return ok;
}

static void statistics__of_each_rank_are_those_of_its_part_alone(void **state)
{
    struct wf_err err = { 0 };
    struct halves h = { .whole =
                            norm_layer(6, &(struct wf_norm){ .name = "bn", .per_rank = true }) };
    for (int r = 0; r < 2; r++) {
        h.half[r] = norm_layer(3, &(struct wf_norm){ .name = "bn" });
        h.v[r] = support_values_new(h.half[r].g);
        support_fill_random(&h.v[r].views[h.half[r].x->id], 3, (uint64_t)r);
        support_fill_random(&h.v[r].views[h.half[r].dy->id], 4, (uint64_t)r);
        wf_view_fill(&h.v[r].views[wf_graph_find(h.half[r].g, "bn.weight")->id], 1.0);
        support_run_reference(h.half[r].g, &h.v[r], true);
    }
    if (!wf_comm_threads_run(2, on_rank, &h, &err))
        fail_msg("%s", err.text);
    for (int r = 0; r < 2; r++) {
        support_values_free(&h.v[r]);
        wf_graph_free(h.half[r].g);
    }
    wf_graph_free(h.whole.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ddunet__gradients_equal_finite_differences),
        cmocka_unit_test(statistics__of_each_subdomain_run_over_the_batch),
        cmocka_unit_test(statistics__of_each_rank_are_those_of_its_part_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
