#include "exec/translate.h"

#include "ops/op.h"

/* Positions this far apart tell the ratio of shifts exactly: for whole strides, and for one over a stride
 * that divides it. */
enum { FAR = 2 * 2 * 2 * 2 * 2 * 2 * 3 * 3 * 5 * 7 * 11 * 13 };

/* b is a, shifted: by how much. Two empty regions are, by nothing. */
static bool find_shift(struct wf_region a, struct wf_region b, int64_t shift[WF_AXES])
{
    const bool none = wf_region_is_empty(a);
    for (int axis = 0; axis < WF_AXES; axis++)
        shift[axis] = none ? 0 : b.lo[axis] - a.lo[axis];
    return none ? wf_region_is_empty(b) : wf_region_equal(wf_region_shift(a, shift), b);
}

static bool is_zero(const int64_t shift[WF_AXES])
{
    for (int axis = 0; axis < WF_AXES; axis++)
        if (shift[axis] != 0)
            return false;
    return true;
}

static bool is_shifted_by(struct wf_region a, struct wf_region b, const int64_t shift[WF_AXES])
{
    return wf_region_is_empty(a) ? wf_region_is_empty(b)
                                 : wf_region_equal(wf_region_shift(a, shift), b);
}

/* Whether an operator that shifts has its input shifted by `in` where its work is by `out`: what reads
 * positions that are far apart lies so, too. */
static bool is_proportional(const struct wf_node *n, int input, int axis, struct wf_region work,
                            int64_t out, int64_t in)
{
    struct wf_region one = work, reads;
    do { /* the first position that reads anything */
        one.hi[axis] = one.lo[axis] + 1;
        reads = wf_op_reads(n, input, one);
        if (one.lo[axis]++ == work.hi[axis])
            return true;
    } while (wf_region_is_empty(reads));
    one.lo[axis] += FAR - 1;
    one.hi[axis] += FAR;
    return in * FAR == out * (wf_op_reads(n, input, one).lo[axis] - reads.lo[axis]);
}

/* Work that is shifted by `out` computes the same of an input that is shifted by `in`. */
static bool computes_alike(const struct wf_node *n, int input, struct wf_region work,
                           const int64_t out[WF_AXES], const int64_t in[WF_AXES])
{
    const struct wf_shape *const to = &wf_op_domain(n)->shape, *const from = &n->in[input]->shape;
    if (is_zero(out))
        return is_zero(in);
    if (!(n->op->flags & (WF_OP_POINTWISE | WF_OP_SHIFTS | WF_OP_SCALES)) ||
        (n->op->is_fixed && n->op->is_fixed(n)))
        return false;
    for (int axis = 0; axis < WF_C; axis++) {
        const bool alike = from->at[axis] == to->at[axis];
        if (n->in[input]->replicated && alike && to->at[axis] > 1 && out[axis] != 0)
            return false; /* a weight of the image's extent: each position has its own */
        if (n->in[input]->replicated || (n->op->flags & WF_OP_POINTWISE))
            continue;
        if (n->op->flags & WF_OP_SCALES
                ? in[axis] * to->at[axis] != out[axis] * from->at[axis]
                : !is_proportional(n, input, axis, work, out[axis], in[axis]))
            return false;
    }
    return true;
}

static bool input_is_shifted(const struct wf_geometry *a, const struct wf_geometry *b, int item,
                             int input, const int64_t out[WF_AXES])
{
    const struct wf_item *const it = &a->program->items[item];
    const struct wf_region work = wf_geometry_work(a, 0, item);
    int64_t in[WF_AXES], box[WF_AXES];
    if (it->in[input] < 0 || wf_region_is_empty(work))
        return true;
    /* What is read, with what is padding, and where that lies in the buffer. */
    const struct wf_region reads = wf_op_reads(it->node, input, work);
    const struct wf_region clipped = wf_geometry_reads(a, 0, item, input);
    if (!find_shift(reads, wf_op_reads(it->node, input, wf_region_shift(work, out)), in) ||
        !is_shifted_by(clipped, wf_geometry_reads(b, 0, item, input), in) ||
        !find_shift(wf_geometry_box(a, 0, it->in[input]), wf_geometry_box(b, 0, it->in[input]),
                    box))
        return false;
    for (int axis = 0; axis < WF_AXES; axis++)
        if (!wf_region_is_empty(clipped) && box[axis] != in[axis])
            return false;
    return computes_alike(it->node, input, work, out, in);
}

/* A result moves with the work along the axes that both have. */
static bool moves_along(const struct wf_node *n, int output, const int64_t work[WF_AXES],
                        const int64_t box[WF_AXES])
{
    for (int axis = 0; axis < WF_C; axis++)
        if (n->out[output]->shape.at[axis] == wf_op_domain(n)->shape.at[axis] &&
            box[axis] != work[axis])
            return false;
    return true;
}

bool wf_geometry_is_shifted(const struct wf_geometry *a, const struct wf_geometry *b)
{
    const struct wf_program *const p = a->program;
    int64_t shift[WF_AXES], box[WF_AXES];
    for (int item = 0; item < p->n_items; item++) {
        const struct wf_item *const it = &p->items[item];
        if (!find_shift(wf_geometry_work(a, 0, item), wf_geometry_work(b, 0, item), shift))
            return false;
        for (int k = 0; k < it->node->n_in; k++)
            if (!input_is_shifted(a, b, item, k, shift))
                return false;
        for (int o = 0; o < it->node->n_out; o++)
            if (!find_shift(wf_geometry_box(a, 0, it->out[o]), wf_geometry_box(b, 0, it->out[o]),
                            box) ||
                !moves_along(it->node, o, shift, box))
                return false;
    }
    return true;
}
