/* What weights begin with. */
#include "base/random.h"
#include "exec/run.h"

static double initial(const struct wf_value *v, struct wf_random random, int64_t element)
{
    switch (v->init) {
    case WF_INIT_ZERO:
        return 0.0;
    case WF_INIT_ONE:
        return 1.0;
    case WF_INIT_VALUE:
        return v->init_bound;
    case WF_INIT_UNIFORM:
        break;
    }
    const double u = (double)wf_random_uniform(random, (uint64_t)element);
    return (2.0 * u - 1.0) * v->init_bound;
}

static void init_weight(const struct wf_view *view, const struct wf_value *v, uint64_t seed)
{
    const struct wf_random random = wf_random(seed, wf_random_stream(v->name));
    const int64_t *e = v->shape.at;
#pragma omp parallel for collapse(2) schedule(static) if (wf_shape_count(v->shape) > 1 << 14)
    for (int64_t n = 0; n < e[WF_N]; n++)
        for (int64_t c = 0; c < e[WF_C]; c++)
            for (int64_t d = 0; d < e[WF_D]; d++)
                for (int64_t h = 0; h < e[WF_H]; h++)
                    for (int64_t w = 0; w < e[WF_W]; w++) {
                        const int64_t element =
                            (((n * e[WF_C] + c) * e[WF_D] + d) * e[WF_H] + h) * e[WF_W] + w;
                        wf_view_put(view, n, d, h, w, c, initial(v, random, element));
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
