/*
 * Operators as such, with their reference kernels in f64: gradients against finite differences, cut
 * against whole, and values that were worked out with PyTorch 2 (given in its order [N, C, D, H, W]).
 */
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
#include "ops/build.h"
#include "support.h"

/* --- gradients against finite differences --- */

/* Rounding is not differentiable: whatever a case keeps in a narrow float becomes f64. */
static void widen(const struct wf_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++) {
        enum wf_dtype *dtype = &g->values[i]->dtype;
        if (*dtype == WF_F32 || *dtype == WF_BF16 || *dtype == WF_F16)
            *dtype = WF_F64;
    }
}

static double objective(const struct support_case *c, const struct support_values *v)
{
    support_run_reference(c->g, v, false);
    double sum = 0;
    for (struct wf_cursor p = wf_cursor(wf_shape_region(c->y->shape)); wf_cursor_next(&p);)
        sum += wf_view_at(&v->views[c->y->id], p.at) * wf_view_at(&v->views[c->dy->id], p.at);
    return sum;
}

static double largest(const struct wf_view *view)
{
    double most = 0;
    for (struct wf_cursor p = wf_cursor(view->box); wf_cursor_next(&p);)
        most = fmax(most, fabs(wf_view_at(view, p.at)));
    return most;
}

enum { ELEMENTS = 48 }; /* differentiated one by one; of larger tensors a sample of that many */

static int64_t element(const struct wf_value *v, int64_t i)
{
    const int64_t count = wf_shape_count(v->shape);
    if (count <= ELEMENTS)
        return i;
    return wf_random_below(wf_random(3, (uint64_t)v->id), (uint64_t)i, (uint32_t)count);
}

/* How many elements of the gradient in wrt[which] differ from the central difference. */
static int wrong_elements(const struct support_case *c, const struct support_values *v, int which)
{
    const double step = 1e-5;
    const struct wf_value *x = c->wrt[which];
    double *data = v->views[x->id].data;
    const struct wf_view *dx = c->dwrt[which] ? &v->views[c->dwrt[which]->id] : NULL;
    const double scale = dx ? largest(dx) : 0;
    const int64_t n = wf_min(ELEMENTS, wf_shape_count(x->shape));
    int wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = element(x, i);
        const double kept = data[at];
        data[at] = kept + step;
        const double above = objective(c, v);
        data[at] = kept - step;
        const double below = objective(c, v);
        data[at] = kept;
        const double want = (above - below) / (2 * step);
        const double got = dx ? wf_dtype_get(dx->dtype, dx->data, at) : 0;
        if (fabs(got - want) <= 1e-6 * fmax(scale, fabs(want)) + 1e-9)
            continue;
        if (wrong++ == 0)
            print_error("input %d element %lld: gradient %.9g, finite difference %.9g\n", which,
                        (long long)at, got, want);
    }
    return wrong;
}

static int wrong_in_case(const struct wf_op *op, const struct wf_case *from)
{
    struct support_case c;
    struct wf_err err = { 0 };
    if (!support_case_build(op, from, WF_F64, &c, &err)) {
        print_error("%s\n", err.text);
        return 1;
    }
    widen(c.g);
    struct support_values v = support_values_new(c.g);
    support_case_fill(&c, &v, 11);
    support_run_reference(c.g, &v, true);
    int wrong = 0;
    for (int i = 0; i < c.n_wrt; i++)
        wrong += wrong_elements(&c, &v, i);
    support_values_free(&v);
    wf_graph_free(c.g);
    return wrong;
}

static void gradients__equal_finite_differences(void **state)
{
    int bad = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        for (const struct wf_case *c = (*op)->cases; c && c->in; c++)
            if (wrong_in_case(*op, c) > 0) {
                print_error("^ %s, case %d \"%s\"\n", (*op)->name, (int)(c - (*op)->cases),
                            c->attrs ? c->attrs : "");
                bad++;
            }
    assert_int_equal(bad, 0);
}

/* --- cut equals whole --- */

/* A copy of a part that lies in a larger buffer full of NaN: strides are not dense, and a kernel
 * that reads past its part cannot hide it. */
static struct wf_view cut_out(struct wf_view whole, struct wf_region box)
{
    struct wf_region room = box;
    room.hi[WF_W]++;
    room.hi[WF_C]++;
    const bool empty = wf_region_is_empty(box);
    void *data = calloc(empty ? 1 : (size_t)wf_region_count(room), wf_dtype_size(whole.dtype));
    WF_BUG_ON(!data, "out of memory");
    if (empty)
        return wf_view_dense(data, whole.dtype, (struct wf_region){ 0 });
    const struct wf_view large = wf_view_dense(data, whole.dtype, room);
    const bool has_nan = whole.dtype != WF_I32 && whole.dtype != WF_I64 && whole.dtype != WF_U8;
    wf_view_fill(&large, has_nan ? (double)NAN : 0);
    const struct wf_view part = wf_view_part(large, box), from = wf_view_part(whole, box);
    wf_view_copy(&part, &from);
    return part;
}

/* The part of an output that the work makes. */
static struct wf_region written(const struct wf_node *node, int o, struct wf_region work)
{
    const struct wf_value *v = node->out[o];
    struct wf_region r = wf_shape_region(v->shape);
    if (v->replicated)
        return r;
    for (int a = WF_N; a < WF_C; a++)
        if (!(wf_op_sums_over(node) & WF_AXIS(a)) &&
            v->shape.at[a] == wf_op_domain(node)->shape.at[a]) {
            r.lo[a] = work.lo[a];
            r.hi[a] = work.hi[a];
        }
    return r;
}

struct cut {
    const struct wf_node *node;
    const struct support_values *v;
    double *sums[2]; /* of an operator that sums: what the parts add up to, per output */
    int wrong;
};

/* Bit for bit, but any NaN is as good as another. */
static bool same(double a, double b)
{
    uint64_t p, q;
    memcpy(&p, &a, sizeof p);
    memcpy(&q, &b, sizeof q);
    return p == q || (isnan(a) && isnan(b));
}

static void compare(struct cut *cut, int o, const struct wf_view *got)
{
    const struct wf_value *value = cut->node->out[o];
    const struct wf_view *want = &cut->v->views[value->id];
    const bool sums = wf_op_sums_over(cut->node) != 0;
    for (struct wf_cursor c = wf_cursor(got->box); wf_cursor_next(&c);) {
        const double a = wf_view_at(got, c.at), b = wf_view_at(want, c.at);
        if (sums)
            cut->sums[o][wf_view_offset(want, c.at[0], c.at[1], c.at[2], c.at[3], c.at[4])] += a;
        else if (!same(a, b) && cut->wrong++ == 0)
            print_error("%s: output %d at [%d,%d,%d,%d,%d] is %.17g cut and %.17g whole\n",
                        cut->node->op->name, o, (int)c.at[0], (int)c.at[1], (int)c.at[2],
                        (int)c.at[3], (int)c.at[4], a, b);
    }
}

static void run_part(struct cut *cut, struct wf_region work)
{
    const struct wf_node *node = cut->node;
    struct wf_view in[16] = { 0 }, out[2] = { 0 };
    WF_BUG_ON(node->n_in > 16, "%s", node->op->name);
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i])
            in[i] = cut_out(cut->v->views[node->in[i]->id],
                            wf_region_intersect(wf_op_reads(node, i, work),
                                                wf_shape_region(node->in[i]->shape)));
    for (int o = 0; o < node->n_out; o++) {
        out[o] = cut_out(cut->v->views[node->out[o]->id], written(node, o, work));
        if (out[o].box.hi[WF_C] > 0)
            wf_view_fill(&out[o], 77);
    }
    node->op->reference(&(struct wf_call){
        .node = node, .work = work, .in = in, .out = out, .seed = 1, .step = 1 });
    for (int o = 0; o < node->n_out; o++)
        compare(cut, o, &out[o]);
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i])
            free(in[i].data);
    for (int o = 0; o < node->n_out; o++)
        free(out[o].data);
}

/* The parts' sums against the whole: another order of adding, nothing else. */
static void compare_sums(struct cut *cut)
{
    for (int o = 0; o < cut->node->n_out; o++) {
        const struct wf_view *want = &cut->v->views[cut->node->out[o]->id];
        const double scale = largest(want);
        for (int64_t i = 0; i < wf_region_count(want->box); i++) {
            const double b = wf_dtype_get(want->dtype, want->data, i);
            if (!(fabs(cut->sums[o][i] - b) <= 1e-12 * scale + 1e-300) && cut->wrong++ == 0)
                print_error("%s: element %d of output %d adds up to %.17g, whole %.17g\n",
                            cut->node->op->name, (int)i, o, cut->sums[o][i], b);
        }
    }
}

static int wrong_when_cut(const struct wf_node *node, const struct support_values *v,
                          const int64_t parts[4])
{
    const struct wf_value *domain = wf_op_domain(node);
    struct cut cut = { .node = node, .v = v };
    WF_BUG_ON(node->n_out > 2, "%s", node->op->name);
    for (int o = 0; o < node->n_out; o++) {
        cut.sums[o] = calloc((size_t)wf_shape_count(node->out[o]->shape), sizeof(double));
        WF_BUG_ON(!cut.sums[o], "out of memory");
    }
    const struct wf_shape *s = &domain->shape;
    const struct wf_region grid = { { 0 }, { parts[0], parts[1], parts[2], parts[3], 1 } };
    for (struct wf_cursor p = wf_cursor(grid); wf_cursor_next(&p);) {
        struct wf_region work = wf_shape_region(*s);
        for (int a = WF_N; a < WF_C; a++) {
            work.lo[a] = wf_split_point(s->at[a], parts[a], p.at[a]);
            work.hi[a] = wf_split_point(s->at[a], parts[a], p.at[a] + 1);
        }
        /* More parts than elements: some are empty. A sum over nothing still writes its zeros. */
        if (wf_op_sums_over(node) || !wf_region_is_empty(work))
            run_part(&cut, work);
    }
    if (wf_op_sums_over(node))
        compare_sums(&cut);
    for (int o = 0; o < node->n_out; o++)
        free(cut.sums[o]);
    return cut.wrong;
}

static int cut_case(const struct wf_op *op, const struct wf_case *from)
{
    static const int64_t cuts[][4] = { { 1, 1, 1, 2 }, { 1, 1, 3, 1 }, { 1, 2, 1, 1 },
                                       { 2, 1, 1, 1 }, { 1, 2, 2, 3 }, { 1, 1, 5, 9 },
                                       { 2, 3, 1, 2 }, { 1, 3, 12, 1 } };
    struct support_case c;
    struct wf_err err = { 0 };
    if (!support_case_build(op, from, WF_F64, &c, &err)) {
        print_error("%s\n", err.text);
        return 1;
    }
    struct support_values v = support_values_new(c.g);
    support_case_fill(&c, &v, 13);
    support_run_reference(c.g, &v, true);
    int wrong = 0;
    for (size_t i = 0; i < c.g->n_nodes; i++)
        for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++)
            if (!wf_op_domain(c.g->nodes[i])->replicated)
                wrong += wrong_when_cut(c.g->nodes[i], &v, cuts[k]);
    support_values_free(&v);
    wf_graph_free(c.g);
    return wrong;
}

static void reads__are_enough_to_compute_any_part_bit_for_bit(void **state)
{
    int bad = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        for (const struct wf_case *c = (*op)->cases; c && c->in; c++)
            if (cut_case(*op, c) > 0) {
                print_error("^ %s, case %d \"%s\"\n", (*op)->name, (int)(c - (*op)->cases),
                            c->attrs ? c->attrs : "");
                bad++;
            }
    assert_int_equal(bad, 0);
}

/* --- nobody is forgotten --- */

static void every_operator__is_reached_by_six_cases(void **state)
{
    int bad = 0;
    for (const struct wf_op *const *op = wf_op_table; *op; op++) {
        int reached = 0;
        if ((*op)->is_local && !(*op)->cases) /* it is about ranks: tests/test_tile.c */
            continue;
        if ((*op)->flags & WF_OP_SETS) /* it wants coordinates: tests/test_sparse.c */
            continue;
        for (const struct wf_op *const *by = wf_op_table; *by; by++)
            for (const struct wf_case *from = (*by)->cases; from && from->in; from++) {
                struct support_case c;
                struct wf_err err = { 0 };
                if (!support_case_build(*by, from, WF_F64, &c, &err))
                    continue;
                for (size_t i = 0; i < c.g->n_nodes; i++)
                    reached += c.g->nodes[i]->op == *op;
                wf_graph_free(c.g);
            }
        if (reached < 6) {
            print_error("%s: %d nodes in all cases together\n", (*op)->name, reached);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients__equal_finite_differences),
        cmocka_unit_test(reads__are_enough_to_compute_any_part_bit_for_bit),
        cmocka_unit_test(every_operator__is_reached_by_six_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
