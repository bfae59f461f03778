/*
 * Statistics of a normalisation: sums over the image, and what is made of them.
 *
 * Sums and sums of squares are f64: with f32 data the cancellation in E[x^2] - E[x]^2 stays far
 * below the last digit of the f32 result, and the order in which ranks add does not show.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/activation.h"
#include "ops/norm.h"

const struct wf_field wf_norm_fields[] = {
    WF_INT(wf_norm_attrs, groups),
    WF_INT(wf_norm_attrs, per_sample),
    WF_INT(wf_norm_attrs, fixed),
    WF_INT(wf_norm_attrs, count),
    WF_INT(wf_norm_attrs, counted),
    WF_NAMED(wf_norm_attrs, act, wf_act_names),
    WF_INT(wf_norm_attrs, wide),
    WF_INT(wf_norm_attrs, period),
    WF_INT(wf_norm_attrs, local),
    WF_REAL(wf_norm_attrs, slope),
    WF_REAL(wf_norm_attrs, eps),
    WF_REAL(wf_norm_attrs, momentum),
    { 0 },
};

bool wf_norm_check_groups(const struct wf_norm_attrs *a, int64_t channels, struct wf_err *err)
{
    if (a->groups >= 1 && channels % a->groups == 0)
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "%" PRId64 " channels do not fall into %" PRId64
                      " groups of equal size: take a divisor of %" PRId64,
                      channels, a->groups, channels);
}

void wf_norm_count(const struct wf_view *out, int64_t row, int64_t k, double value)
{
    wf_view_put(out, row, 0, 0, 0, k, wf_view_get(out, row, 0, 0, 0, k) + value);
}

void wf_norm_clear(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    struct wf_region rows = call->out[0].box;
    if (a->per_sample && !wf_region_is_empty(call->work)) {
        rows.lo[WF_N] = call->work.lo[WF_N];
        rows.hi[WF_N] = call->work.hi[WF_N];
    }
    const struct wf_view part = wf_view_part(call->out[0], rows);
    wf_view_fill(&part, 0.0);
}

bool wf_norm_is_local(const struct wf_node *node)
{
    const struct wf_norm_attrs *a = node->attrs;
    return a->local;
}

/* --- moments --- */

static bool moments_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_norm_attrs *a = node->attrs;
    const struct wf_shape x = node->in[0]->shape;
    if (!wf_norm_check_groups(a, x.at[WF_C], err))
        return false;
    node->out[0]->shape =
        WF_SHAPE(a->per_sample ? x.at[WF_N] : 1, 1, 1, 1, 2 * a->groups + wf_norm_counts(a));
    node->out[0]->dtype = WF_F64;
    node->out[0]->replicated = !a->per_sample;
    return true;
}

static unsigned moments_sums_over(const struct wf_node *node)
{
    const struct wf_norm_attrs *a = node->attrs;
    return a->per_sample ? WF_SPATIAL : WF_SPATIAL | WF_AXIS(WF_N);
}

static void moments_reference(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    wf_norm_clear(call);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const double x = wf_view_at(&call->in[0], c.at);
        const int64_t row = wf_norm_row(a, c.at[WF_N]);
        const int64_t group = wf_norm_group(a, channels, c.at[WF_C]);
        wf_norm_count(&call->out[0], row, group, x);
        wf_norm_count(&call->out[0], row, a->groups + group, x * x);
    }
    if (wf_norm_counts(a))
        wf_norm_count(&call->out[0], 0, 2 * a->groups, (double)wf_region_extent(call->work, WF_N));
}

static const struct wf_case moments_cases[] = {
    { .attrs = "groups=3", .in = "X[2,1,5,7,3]" },
    { .attrs = "groups=1", .in = "X[3,1,1,11,1]" },
    { .attrs = "groups=4", .in = "X[1,3,4,5,4]" },
    { .attrs = "groups=2 per_sample=1", .in = "X[3,1,5,3,6]" },
    { .attrs = "groups=5 per_sample=1", .in = "X[2,3,2,3,5]" },
    { .attrs = "groups=1 per_sample=1", .in = "X[2,1,1,13,3]" },
    { 0 },
};

const struct wf_op wf_op_moments = {
    .name = "moments",
    .n_in = 1,
    .flags = WF_OP_SHIFTS | WF_OP_ROWS,
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .infer = moments_infer,
    .sums_over = moments_sums_over,
    .is_local = wf_norm_is_local,
    .reference = moments_reference,
    .flops_each = 3,
    .cases = moments_cases,
};

/* --- stats --- */

static bool stats_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_norm_attrs *a = node->attrs;
    const struct wf_shape m = node->in[0]->shape;
    const int64_t width = 2 * a->groups + wf_norm_counts(a);
    if (m.at[WF_C] != width)
        return wf_err_set(err, WF_ERR_USAGE,
                          "moments of %" PRId64 " groups wanted, got a table of %" PRId64
                          " numbers: it should have %" PRId64,
                          a->groups, m.at[WF_C], width);
    node->out[0]->shape.at[WF_C] = 2 * a->groups;
    if (a->count < 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "a mean over %" PRId64 " elements: count is at least 1", a->count);
    node->out[0]->dtype = a->wide ? WF_F64 : WF_F32;
    return true;
}

static void stats_reference(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    for (int64_t n = call->work.lo[WF_N]; n < call->work.hi[WF_N]; n++)
        for (int64_t g = 0; g < a->groups; g++) {
            const double count = fmax(wf_norm_total(a, &call->in[0], n, 2 * a->groups), 1.0);
            const double mean = wf_view_get(&call->in[0], n, 0, 0, 0, g) / count;
            const double square = wf_view_get(&call->in[0], n, 0, 0, 0, a->groups + g) / count;
            const double var = fmax(square - mean * mean, 0.0);
            wf_view_put(&call->out[0], n, 0, 0, 0, g, mean);
            wf_view_put(&call->out[0], n, 0, 0, 0, a->groups + g, 1.0 / sqrt(var + a->eps));
        }
}

static const struct wf_case stats_cases[] = {
    { .attrs = "groups=3 count=4 eps=1e-5", .in = "P[6]" },
    { .attrs = "groups=1 count=1 eps=1e-3", .in = "P[2]" },
    { .attrs = "groups=7 count=9 eps=1e-5", .in = "P[14]" },
    { .attrs = "groups=2 count=3 eps=1e-5 per_sample=1", .in = "X[3,1,1,1,4]" },
    { .attrs = "groups=5 count=2 eps=1e-5 per_sample=1", .in = "X[5,1,1,1,10]" },
    { .attrs = "groups=1 count=8 eps=1e-2 per_sample=1 wide=1", .in = "X[2,1,1,1,2]" },
    { 0 },
};

const struct wf_op wf_op_stats = {
    .name = "stats",
    .n_in = 1,
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .infer = stats_infer,
    .reference = stats_reference,
    .cases = stats_cases,
};

/* --- running_stats --- */

static bool check_running(const struct wf_node *node, int first, struct wf_err *err)
{
    const struct wf_value *mean = node->in[first], *var = node->in[first + 1];
    const int64_t channels = mean->shape.at[WF_C];
    const struct wf_shape want = WF_SHAPE(1, 1, 1, 1, channels);
    if (wf_shape_equal(mean->shape, want) && wf_shape_equal(var->shape, want))
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "running mean of %" PRId64 " channels and running variance of %" PRId64
                      ": both must be [1,1,1,1,channels]",
                      channels, var->shape.at[WF_C]);
}

static bool running_stats_infer(const struct wf_node *node, struct wf_err *err)
{
    if (!check_running(node, 0, err))
        return false;
    node->out[0]->shape = WF_SHAPE(1, 1, 1, 1, 2 * node->in[0]->shape.at[WF_C]);
    node->out[0]->replicated = true;
    return true;
}

static void running_stats_reference(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    for (int64_t c = 0; c < channels; c++) {
        const double var = wf_view_get(&call->in[1], 0, 0, 0, 0, c);
        wf_view_put(&call->out[0], 0, 0, 0, 0, c, wf_view_get(&call->in[0], 0, 0, 0, 0, c));
        wf_view_put(&call->out[0], 0, 0, 0, 0, channels + c, 1.0 / sqrt(fmax(var, 0.0) + a->eps));
    }
}

static const struct wf_case running_stats_cases[] = {
    { .attrs = "eps=1e-5", .in = "P[1] P[1]" },
    { .attrs = "eps=1e-3", .in = "P[7] P[7]" },
    { .attrs = "eps=1e-5", .in = "P[2] P[2]" },
    { .attrs = "eps=1e-5", .in = "P[16] P[16]" },
    { .attrs = "eps=1e-1", .in = "P[33] P[33]" },
    { .attrs = "eps=1e-8", .in = "P[3] P[3]" },
    { 0 },
};

const struct wf_op wf_op_running_stats = {
    .name = "running_stats",
    .n_in = 2,
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .infer = running_stats_infer,
    .reference = running_stats_reference,
    .cases = running_stats_cases,
};

/* --- running_update --- */

static bool running_update_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_norm_attrs *a = node->attrs;
    if (!check_running(node, 1, err))
        return false;
    const int64_t channels = node->in[1]->shape.at[WF_C];
    if (!wf_shape_equal(node->in[0]->shape, WF_SHAPE(1, 1, 1, 1, 2 * channels + wf_norm_counts(a))))
        return wf_err_set(err, WF_ERR_USAGE,
                          "running statistics of %" PRId64
                          " channels need moments [1,1,1,1,%" PRId64 "], got %" PRId64 " numbers",
                          channels, 2 * channels, wf_shape_count(node->in[0]->shape));
    if (a->count < 2 && !wf_norm_counts(a))
        return wf_err_set(err, WF_ERR_USAGE,
                          "an unbiased variance needs at least 2 values per channel, got %" PRId64
                          ": take a larger batch or image",
                          a->count);
    for (int o = 0; o < 2; o++) {
        node->out[o]->shape = node->in[1]->shape;
        node->out[o]->dtype = node->in[1]->dtype;
        node->out[o]->replicated = true;
    }
    return true;
}

/* As PyTorch: the running variance takes the unbiased one, the normalisation itself the biased. */
static void running_update_reference(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t channels = call->node->in[1]->shape.at[WF_C];
    const double total = wf_norm_total(a, &call->in[0], 0, 2 * channels);
    const double count = fmax(total, 2.0), keep = 1.0 - a->momentum;
    for (int64_t c = 0; c < channels; c++) {
        const double mean = wf_view_get(&call->in[0], 0, 0, 0, 0, c) / count;
        const double square = wf_view_get(&call->in[0], 0, 0, 0, 0, channels + c) / count;
        const double var = fmax(square - mean * mean, 0.0) * count / (count - 1.0);
        const double old_mean = wf_view_get(&call->in[1], 0, 0, 0, 0, c);
        const double old_var = wf_view_get(&call->in[2], 0, 0, 0, 0, c);
        wf_view_put(&call->out[0], 0, 0, 0, 0, c, keep * old_mean + a->momentum * mean);
        wf_view_put(&call->out[1], 0, 0, 0, 0, c, keep * old_var + a->momentum * var);
    }
}

static const struct wf_case running_update_cases[] = {
    { .attrs = "count=2 momentum=0.1", .in = "P[2] P[1] P[1]" },
    { .attrs = "count=9 momentum=0.25", .in = "P[10] P[5] P[5]" },
    { .attrs = "count=3 momentum=1", .in = "P[4] P[2] P[2]" },
    { .attrs = "count=1000 momentum=0.1", .in = "P[32] P[16] P[16]" },
    { .attrs = "count=7 momentum=0", .in = "P[66] P[33] P[33]" },
    { .attrs = "count=64 momentum=0.01", .in = "P[6] P[3] P[3]" },
    { 0 },
};

const struct wf_op wf_op_running_update = {
    .name = "running_update",
    .n_in = 3,
    .n_out = 2,
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .renews = 1,
    .infer = running_update_infer,
    .reference = running_update_reference,
    .cases = running_update_cases,
};
