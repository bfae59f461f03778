#include "ops/op.h"

#include <inttypes.h>
#include <string.h>

#include "ops/build.h"

const struct wf_op *wf_op_find(const char *name)
{
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        if (strcmp((*op)->name, name) == 0)
            return *op;
    return NULL;
}

unsigned wf_op_sums_over(const struct wf_node *node)
{
    return node->op->sums_over ? node->op->sums_over(node) : node->op->sums;
}

const struct wf_value *wf_op_domain(const struct wf_node *node)
{
    return wf_op_sums_over(node) ? node->in[node->op->over] : node->out[0];
}

struct wf_region wf_op_reads(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_value *in = node->in[input];
    if (!in)
        return (struct wf_region){ 0 };
    struct wf_region reads = wf_shape_region(in->shape);
    if (in->replicated)
        return reads;
    if (wf_region_is_empty(work))
        return (struct wf_region){ 0 };
    if (node->op->reads)
        return node->op->reads(node, input, work);
    const struct wf_value *domain = wf_op_domain(node);
    for (int a = 0; a < WF_AXES; a++)
        if (in->shape.at[a] == domain->shape.at[a]) {
            reads.lo[a] = work.lo[a];
            reads.hi[a] = work.hi[a];
        }
    return reads;
}

int wf_op_decides(const struct wf_node *node)
{
    return node->op->decides ? node->op->decides(node) : -1;
}

bool wf_op_is_local(const struct wf_node *node)
{
    return node->op->is_local && node->op->is_local(node);
}

double wf_op_flops(const struct wf_node *node, struct wf_region work)
{
    if (wf_region_is_empty(work))
        return 0;
    if (node->op->flops)
        return node->op->flops(node, work);
    const double each = node->op->flops_each;
    return (each > 0 ? each : 1.0) * (double)wf_region_count(work);
}

bool wf_cursor_next(struct wf_cursor *c)
{
    if (!c->started) {
        c->started = true;
        memcpy(c->at, c->region.lo, sizeof c->at);
        return !wf_region_is_empty(c->region);
    }
    for (int a = WF_AXES - 1; a >= 0; a--) {
        if (++c->at[a] < c->region.hi[a])
            return true;
        c->at[a] = c->region.lo[a];
    }
    return false;
}

bool wf_ref_locate(const struct wf_view *v, const struct wf_shape *image, const int64_t at[WF_AXES],
                   int64_t *offset)
{
    *offset = 0;
    for (int a = 0; a < WF_AXES; a++)
        if (at[a] < 0 || at[a] >= image->at[a])
            return false;
    for (int a = 0; a < WF_AXES; a++) {
        /* Inside the image but not given: the operator's reads() forgot it. */
        WF_BUG_ON(at[a] < v->box.lo[a] || at[a] >= v->box.hi[a],
                  "axis %d at %" PRId64 " is outside the view [%" PRId64 ", %" PRId64 ")", a, at[a],
                  v->box.lo[a], v->box.hi[a]);
        *offset += (at[a] - v->box.lo[a]) * v->stride[a];
    }
    return true;
}

double wf_ref_get(const struct wf_view *v, const struct wf_shape *image, const int64_t at[WF_AXES])
{
    int64_t offset;
    return wf_ref_locate(v, image, at, &offset) ? wf_dtype_get(v->dtype, v->data, offset) : 0;
}

struct wf_value *wf_rename(struct wf_graph *g, struct wf_value *v, const char *name)
{
    if (!v)
        return NULL;
    v->name = wf_arena_copy(&g->arena, name);
    if (v->producer)
        v->producer->name = v->name;
    return v;
}

struct wf_value *wf_append(struct wf_graph *g, const struct wf_op *op, const char *of,
                           const char *suffix, const void *attrs, int n_in,
                           struct wf_value *const in[])
{
    const char *name = suffix && of ? wf_arena_printf(&g->arena, "%s.%s", of, suffix) : of;
    const struct wf_node *node = wf_node_add(g, op, name, attrs, n_in, in);
    return node ? node->out[0] : NULL;
}
