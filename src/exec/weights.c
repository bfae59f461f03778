/* What weights begin with. */
#include "base/random.h"
#include "exec/run.h"

enum { ROW = 256 }; /* elements drawn at a time */

/* Elements in the order (n, c, d, h, w), which numbers follow, from `first` on. */
static void draw(const struct wf_value *v, struct wf_random random, int64_t first, int64_t count,
                 double values[ROW])
{
    float uniform[ROW] = { 0 };
    if (v->init == WF_INIT_UNIFORM)
        wf_random_uniforms(random, (uint64_t)first, count, uniform);
    for (int64_t i = 0; i < count; i++)
        switch (v->init) {
        case WF_INIT_ZERO:
            values[i] = 0.0;
            break;
        case WF_INIT_ONE:
            values[i] = 1.0;
            break;
        case WF_INIT_VALUE:
            values[i] = v->init_bound;
            break;
        case WF_INIT_UNIFORM:
            values[i] = (2.0 * (double)uniform[i] - 1.0) * v->init_bound;
            break;
        }
}

static void init_weight(const struct wf_view *view, const struct wf_value *v, uint64_t seed)
{
    const struct wf_random random = wf_random(seed, wf_random_stream(v->name));
    const int64_t *e = v->shape.at;
    const int64_t taps = e[WF_D] * e[WF_H] * e[WF_W], all = e[WF_C] * taps;
#pragma omp parallel for collapse(2) schedule(static) if (wf_shape_count(v->shape) > 1 << 14)
    for (int64_t n = 0; n < e[WF_N]; n++)
        for (int64_t first = 0; first < all; first += ROW) {
            double values[ROW];
            const int64_t count = wf_min(ROW, all - first), tap = first % taps;
            int64_t c = first / taps, d = tap / (e[WF_H] * e[WF_W]), h = tap / e[WF_W] % e[WF_H];
            int64_t w = tap % e[WF_W];
            draw(v, random, n * all + first, count, values);
            for (int64_t i = 0; i < count; i++) {
                if (view->dtype == WF_F32)
                    ((float *)view->data)[wf_view_offset(view, n, d, h, w, c)] = (float)values[i];
                else
                    wf_view_put(view, n, d, h, w, c, values[i]);
                w = w + 1 < e[WF_W] ? w + 1 : 0;
                h = w > 0 ? h : h + 1 < e[WF_H] ? h + 1 : 0;
                d = w > 0 || h > 0 ? d : d + 1 < e[WF_D] ? d + 1 : 0;
                c += w == 0 && h == 0 && d == 0;
            }
        }
}

void wf_run_init_weights(struct wf_run *run, uint64_t seed)
{
    struct wf_host host = { 0 };
    const struct wf_graph *g = wf_run_plan(run)->global->graph;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        if (v->kind != WF_PARAM && v->kind != WF_STATE)
            continue;
        wf_run_map(run, v, &host);
        if (host.view.data) {
            init_weight(&host.view, v, seed);
            wf_host_put(&host);
        }
    }
    wf_host_release(&host);
}
