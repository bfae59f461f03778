/* Image and weights of a step, changed a little: by their last bits, or so that decisions are clear. */
#include "cli/verify.h"

#include "base/random.h"
#include "ops/op.h"
#include "tensor/border.h"

static bool nudge_value(const struct wf_once *once, const struct wf_value *v, struct wf_nudge nudge,
                        struct wf_err *err)
{
    struct wf_host host = { 0 };
    const bool ok = wf_run_get(once->run, v, &host, err);
    const struct wf_random r = wf_random(nudge.seed, wf_random_stream(v->name));
    if (ok && host.view.data) {
        for (struct wf_cursor c = wf_cursor(host.view.box); wf_cursor_next(&c);) {
            const uint64_t index = (uint64_t)wf_outside_index(&v->shape, c.at);
            const double by = wf_random_bits(r, index) & 1 ? nudge.by : -nudge.by;
            wf_view_set(&host.view, c.at, wf_view_at(&host.view, c.at) * (1 + by));
        }
        wf_host_put(&host);
    }
    wf_host_release(&host);
    return ok;
}

bool wf_verify_nudge(const struct wf_once *once, struct wf_nudge nudge, struct wf_err *err)
{
    const struct wf_graph *const g = once->job->net.graph;
    bool ok = true;
    for (size_t i = 0; ok && nudge.by != 0 && i < g->n_values; i++)
        if (g->values[i]->kind == WF_PARAM || g->values[i] == once->job->net.image)
            ok = nudge_value(once, g->values[i], nudge, err);
    return ok;
}
