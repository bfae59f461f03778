/*
 * channel_sum: s[c] = sum over n, d, h, w of x[n, d, h, w, c]. The gradient of a bias, before a cast.
 */
#include "ops/spatial.h"

static bool infer(const struct wf_node *node, struct wf_err *)
{
    struct wf_value *s = node->out[0];
    s->shape = WF_SHAPE(1, 1, 1, 1, node->in[0]->shape.at[WF_C]);
    s->dtype = WF_F64; /* ranks add their parts before it is rounded */
    s->replicated = true;
    return true;
}

static void reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    for (int64_t c = 0; c < channels; c++) {
        struct wf_region mine = call->work;
        mine.lo[WF_C] = wf_max(mine.lo[WF_C], c);
        mine.hi[WF_C] = wf_min(mine.hi[WF_C], c + 1);
        double sum = 0;
        for (struct wf_cursor p = wf_cursor(mine); wf_cursor_next(&p);)
            sum += wf_view_at(&call->in[0], p.at);
        wf_view_put(&call->out[0], 0, 0, 0, 0, c, sum);
    }
}

const struct wf_op wf_op_channel_sum = {
    .name = "channel_sum",
    .n_in = 1,
    .flags = WF_OP_ROWS,
    .infer = infer,
    .sums = WF_AXIS(WF_N) | WF_SPATIAL,
    .over = 0,
    .reference = reference,
};
