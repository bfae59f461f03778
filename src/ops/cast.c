/* To another element type. The gradient is cast back to the input's type. */
#include "ops/cast.h"

#include <assert.h>
#include <inttypes.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

const char *const wf_dtype_names[] = { "f32", "bf16", "f16", "f64", "i32", "i64", "u8", NULL };
static_assert(sizeof wf_dtype_names / sizeof *wf_dtype_names == WF_DTYPES + 1, "a name per type");

static const struct wf_field fields[] = {
    WF_NAMED(wf_cast_attrs, dtype, wf_dtype_names),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_cast_attrs *a = node->attrs;
    if (a->dtype < 0 || a->dtype >= WF_DTYPES)
        return wf_err_set(err, WF_ERR_USAGE, "there is no element type %" PRId64 ": take 0..%d",
                          a->dtype, WF_DTYPES - 1);
    node->out[0]->dtype = (enum wf_dtype)a->dtype;
    return true;
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, wf_view_at(&call->in[0], c.at));
}

static bool is_real(enum wf_dtype dtype)
{
    return dtype == WF_F32 || dtype == WF_BF16 || dtype == WF_F16 || dtype == WF_F64;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    if (is_real(node->in[0]->dtype) && is_real(node->out[0]->dtype))
        dx[0] = wf_cast(g, dy[0], node->in[0]->dtype);
}

/* Differences are taken in f64, so only the cast that keeps all digits is differentiated. */
static const struct wf_case cases[] = {
    { .attrs = "dtype=f64", .in = "x[2,1,5,7,3]" },
    { .attrs = "dtype=f32", .in = "X[1,3,4,5,2]" },
    { .attrs = "dtype=bf16", .in = "X[3,1,1,11,1]" },
    { .attrs = "dtype=f16", .in = "X[2,1,3,3,1]" },
    { .attrs = "dtype=i32", .in = "X[5,1,1,1,3]" },
    { .attrs = "dtype=f64", .in = "p[4,1,3,3,2]" },
    { 0 },
};

const struct wf_op wf_op_cast = {
    .name = "cast",
    .n_in = 1,
    WF_ATTRS(wf_cast_attrs, fields),
    .flags = WF_OP_POINTWISE,
    .infer = infer,
    .grad = grad,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_cast(struct wf_graph *g, struct wf_value *x, enum wf_dtype dtype)
{
    if (!x || x->dtype == dtype)
        return x;
    const struct wf_cast_attrs a = { .dtype = dtype };
    const char *name = wf_arena_printf(&g->arena, "%s.%s", x->name, wf_dtype_name(dtype));
    return wf_append(g, &wf_op_cast, name, NULL, &a, 1, &x);
}
