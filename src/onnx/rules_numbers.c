/*
 * Operators on numbers that are known: constants, and the arithmetic on shapes that exporters write. Results
 * are computed for each probe.
 */
#include "onnx/numbers.h"

#include <math.h>
#include <string.h>

wf_onnx_nums *wf_onnx_nums_in(struct wf_onnx_import *im, const Onnx__NodeProto *node, size_t i)
{
    return wf_onnx_numbers(im, wf_onnx_in(im, node, i));
}

struct wf_onnx_numbers *wf_onnx_nums_out(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                         size_t index, struct wf_onnx_numbers *n)
{
    struct wf_onnx_value *const v = n ? wf_onnx_out(im, node, index) : NULL;
    if (v) {
        v->kind = WF_ONNX_NUMBER;
        v->numbers = n;
    }
    return n;
}

bool wf_onnx_nums_too_many(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                           struct wf_err *err)
{
    return wf_onnx_refuse(im, node, err,
                          "it makes more than %d numbers of constants, or of impossible extents: "
                          "export with do_constant_folding=True",
                          WF_ONNX_NUMBERS);
}

bool wf_onnx_nums_unknown(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                          struct wf_err *err)
{
    return wf_onnx_refuse(im, node, err,
                          "its inputs are not known before the network runs, or do not fit "
                          "together: there is no rule for that");
}

void wf_onnx_nums_copy(struct wf_onnx_numbers *to, int64_t i, wf_onnx_nums *from, int64_t k)
{
    memcpy(to->at[i], from->at[k], sizeof to->at[i]);
    to->from[i] = from->from[k];
}

int64_t wf_onnx_nums_axis(int64_t axis, int rank)
{
    return axis < 0 ? axis + rank : axis;
}

/* Elements behind one step along each axis. */
void wf_onnx_nums_strides(int rank, const int64_t shape[], int64_t stride[])
{
    int64_t n = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= shape[i];
    }
}

/* The element of `from` that broadcasts to element i of a result of that shape. */
int64_t wf_onnx_nums_index(int rank, const int64_t shape[], int64_t i, wf_onnx_nums *from)
{
    int64_t stride[WF_ONNX_RANK] = { 0 }, index = 0;
    WF_BUG_ON(rank > WF_ONNX_RANK, "%d axes", rank);
    wf_onnx_nums_strides(from->rank, from->shape, stride);
    for (int axis = rank - 1; axis >= 0; axis--) {
        const int mine = axis - (rank - from->rank);
        const int64_t extent = shape[axis] > 0 ? shape[axis] : 1, at = i % extent;
        i /= extent;
        if (mine >= 0 && from->shape[mine] != 1)
            index += at * stride[mine];
    }
    return index;
}

bool wf_onnx_nums_shape(wf_onnx_nums *a, wf_onnx_nums *b, int *rank, int64_t shape[])
{
    *rank = a->rank > b->rank ? a->rank : b->rank;
    WF_BUG_ON(*rank > WF_ONNX_RANK, "%d axes", *rank);
    for (int i = 0; i < *rank; i++) {
        const int ia = i - (*rank - a->rank), ib = i - (*rank - b->rank);
        const int64_t ea = ia < 0 ? 1 : a->shape[ia], eb = ib < 0 ? 1 : b->shape[ib];
        if (ea != eb && ea != 1 && eb != 1)
            return false;
        shape[i] = ea == 1 ? eb : ea;
    }
    return true;
}

/* --- element by element --- */

static double divide(double a, double b, bool whole)
{
    return whole ? (b != 0 ? trunc(a / b) : 0) : a / b;
}

/* ONNX's Mod takes the sign of the divisor, with fmod=1 that of the dividend. */
static double modulo(double a, double b)
{
    return b != 0 ? a - b * floor(a / b) : 0;
}

static const char *const binary_names[] = { "Add",
                                            "Sub",
                                            "Mul",
                                            "Div",
                                            "Mod",
                                            "Min",
                                            "Max",
                                            "Pow",
                                            "Equal",
                                            "Less",
                                            "LessOrEqual",
                                            "Greater",
                                            "GreaterOrEqual",
                                            "And",
                                            "Or",
                                            NULL };
enum { ADD, SUB, MUL, DIV, MOD, MIN, MAX, POW, EQUAL, LESS, LESS_EQUAL, MORE, MORE_EQUAL, AND, OR };

static double binary_of(int op, double a, double b, bool whole)
{
    switch (op) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case DIV:
        return divide(a, b, whole);
    case MOD:
        return modulo(a, b);
    case MIN:
        return fmin(a, b);
    case MAX:
        return fmax(a, b);
    case POW:
        return pow(a, b);
    case EQUAL:
        return a == b;
    case LESS:
        return a < b;
    case LESS_EQUAL:
        return a <= b;
    case MORE:
        return a > b;
    case MORE_EQUAL:
        return a >= b;
    case AND:
        return a != 0 && b != 0;
    default:
        return a != 0 || b != 0;
    }
}

static int name_in(const char *const names[], const char *name)
{
    int i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static bool binary(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0), *const b = wf_onnx_nums_in(im, node, 1);
    const int op = name_in(binary_names, node->op_type);
    int rank;
    int64_t shape[WF_ONNX_RANK] = { 0 };
    if (!a || !b || node->n_input != 2 || !wf_onnx_nums_shape(a, b, &rank, shape))
        return wf_onnx_nums_unknown(im, node, err);
    const bool whole = a->is_whole && b->is_whole;
    struct wf_onnx_numbers *const y = wf_onnx_numbers_new(im, whole || op >= EQUAL, rank, shape);
    if (!y)
        return wf_onnx_nums_too_many(im, node, err);
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t ia = wf_onnx_nums_index(rank, shape, i, a),
                      ib = wf_onnx_nums_index(rank, shape, i, b);
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            y->at[i][p] = binary_of(op, a->at[ia][p], b->at[ib][p], whole);
    }
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

/* Bounds that are left out are open. */
static bool clip(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    struct wf_onnx_numbers *const y =
        a ? wf_onnx_numbers_new(im, a->is_whole, a->rank, a->shape) : NULL;
    if (!y)
        return a ? wf_onnx_nums_too_many(im, node, err) : wf_onnx_nums_unknown(im, node, err);
    for (int64_t i = 0; i < y->count; i++)
        wf_onnx_nums_copy(y, i, a, i);
    for (size_t k = 1; k < node->n_input && k < 3; k++) {
        wf_onnx_nums *const bound = wf_onnx_nums_in(im, node, k);
        if (!node->input[k][0])
            continue;
        if (!bound || bound->count != 1)
            return wf_onnx_nums_unknown(im, node, err);
        for (int64_t i = 0; i < y->count; i++)
            for (int p = 0; p < WF_ONNX_PROBES; p++)
                y->at[i][p] = binary_of(k == 1 ? MAX : MIN, y->at[i][p], bound->at[0][p], false);
    }
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

static const char *const unary_names[] = { "Neg",  "Abs", "Floor",      "Ceil", "Round",
                                           "Sqrt", "Not", "Reciprocal", "Exp",  NULL };

static double unary_of(int op, double a)
{
    switch (op) {
    case 0:
        return -a;
    case 1:
        return fabs(a);
    case 2:
        return floor(a);
    case 3:
        return ceil(a);
    case 4:
        return rint(a);
    case 5:
        return sqrt(a);
    case 6:
        return a == 0;
    case 7:
        return 1 / a;
    default:
        return exp(a);
    }
}

static bool unary(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    const int op = name_in(unary_names, node->op_type);
    struct wf_onnx_numbers *const y =
        a ? wf_onnx_numbers_new(im, a->is_whole, a->rank, a->shape) : NULL;
    if (!y)
        return a ? wf_onnx_nums_too_many(im, node, err) : wf_onnx_nums_unknown(im, node, err);
    for (int64_t i = 0; i < y->count; i++)
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            y->at[i][p] = unary_of(op, a->at[i][p]);
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

static bool where(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const c = wf_onnx_nums_in(im, node, 0), *const a = wf_onnx_nums_in(im, node, 1),
                        *const b = wf_onnx_nums_in(im, node, 2);
    int rank;
    int64_t shape[WF_ONNX_RANK] = { 0 };
    if (!a || !b || !c || !wf_onnx_nums_shape(a, b, &rank, shape))
        return wf_onnx_nums_unknown(im, node, err);
    struct wf_onnx_numbers both = { .rank = rank };
    memcpy(both.shape, shape, sizeof shape);
    if (!wf_onnx_nums_shape(&both, c, &rank, shape))
        return wf_onnx_nums_unknown(im, node, err);
    struct wf_onnx_numbers *const y = wf_onnx_numbers_new(im, a->is_whole, rank, shape);
    if (!y)
        return wf_onnx_nums_too_many(im, node, err);
    for (int64_t i = 0; i < y->count; i++) {
        const double *const choice = c->at[wf_onnx_nums_index(rank, shape, i, c)];
        const int64_t ia = wf_onnx_nums_index(rank, shape, i, a),
                      ib = wf_onnx_nums_index(rank, shape, i, b);
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            y->at[i][p] = choice[p] != 0 ? a->at[ia][p] : b->at[ib][p];
        double fixed;
        if (wf_onnx_number_is_fixed(im, c, wf_onnx_nums_index(rank, shape, i, c), &fixed))
            y->from[i] = fixed != 0 ? a->from[ia] : b->from[ib];
    }
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

static bool cast(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    bool whole = wf_onnx_type_is_whole((int)wf_onnx_attr_int(node, "to", WF_ONNX_FLOAT));
    if (strcmp(node->op_type, "CastLike") == 0) {
        const struct wf_onnx_value *const like = wf_onnx_in(im, node, 1);
        whole = like && like->kind == WF_ONNX_NUMBER && like->numbers->is_whole;
    }
    struct wf_onnx_numbers *const y = a ? wf_onnx_numbers_new(im, whole, a->rank, a->shape) : NULL;
    if (!y)
        return a ? wf_onnx_nums_too_many(im, node, err) : wf_onnx_nums_unknown(im, node, err);
    for (int64_t i = 0; i < y->count; i++) {
        wf_onnx_nums_copy(y, i, a, i);
        for (int p = 0; whole && p < WF_ONNX_PROBES; p++)
            y->at[i][p] = trunc(y->at[i][p]);
    }
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

/* --- making --- */

/* An image without channels: a place holder that encoders return for a level they do not have. Only its extents are
 * read, and concatenations leave it out. */
static bool empty_image(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const n = wf_onnx_nums_in(im, node, 0);
    double channels;
    if (!n || n->count != 2 + im->dims || !wf_onnx_number_is_fixed(im, n, 1, &channels) ||
        channels != 0)
        return wf_onnx_nums_unknown(im, node, err);
    const int image = WF_LAYER_IMAGE;
    const int y = wf_onnx_add(im, node, "empty", NULL, 1, &image);
    for (int p = 0; p < WF_ONNX_PROBES; p++) {
        im->layers[y].shape[WF_ONNX_C].at[p] = 0;
        for (int i = 0; i < im->dims; i++)
            im->layers[y].shape[WF_ONNX_AXES - im->dims + i].at[p] = (int64_t)n->at[2 + i][p];
    }
    return wf_onnx_done(im, node, y, 0);
}

static bool constant_of_shape(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                              struct wf_err *err)
{
    int rank;
    int64_t shape[WF_ONNX_RANK] = { 0 };
    if (!wf_onnx_ints(im, node, 0, NULL, WF_ONNX_RANK, &rank, shape))
        return empty_image(im, node, err);
    const Onnx__AttributeProto *const a = wf_onnx_attr(node, "value");
    struct wf_onnx_value value = { .name = "value" };
    if (a && a->t && !wf_onnx_initialise(im, &value, a->t, err))
        return false;
    wf_onnx_nums *const fill = a && a->t ? wf_onnx_numbers(im, &value) : NULL;
    struct wf_onnx_numbers *const y = wf_onnx_numbers_new(im, fill && fill->is_whole, rank, shape);
    if (!y)
        return wf_onnx_nums_too_many(im, node, err);
    for (int64_t i = 0; fill && fill->count > 0 && i < y->count; i++)
        wf_onnx_nums_copy(y, i, fill, 0);
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

static bool range(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const n[3] = { wf_onnx_nums_in(im, node, 0), wf_onnx_nums_in(im, node, 1),
                                 wf_onnx_nums_in(im, node, 2) };
    double v[3];
    for (int i = 0; i < 3; i++)
        if (!n[i] || !wf_onnx_number_is_fixed(im, n[i], 0, &v[i]))
            return wf_onnx_nums_unknown(im, node, err);
    const double count = v[2] != 0 ? ceil((v[1] - v[0]) / v[2]) : -1;
    if (!(count < WF_ONNX_NUMBERS))
        return wf_onnx_nums_too_many(im, node, err);
    struct wf_onnx_numbers *const y =
        wf_onnx_numbers_new(im, n[0]->is_whole, 1, (int64_t[]){ count > 0 ? (int64_t)count : 0 });
    if (!y)
        return wf_onnx_nums_too_many(im, node, err);
    for (int64_t i = 0; i < y->count; i++)
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            y->at[i][p] = v[0] + (double)i * v[2];
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

static bool shape(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_in(im, node, 0);
    if (!v)
        return wf_onnx_nums_unknown(im, node, err);
    const int rank = v->constant ? v->constant->rank : v->numbers->rank;
    const int64_t *const extents = v->constant ? v->constant->shape : v->numbers->shape;
    int64_t from = wf_onnx_nums_axis(wf_onnx_attr_int(node, "start", 0), rank);
    int64_t to = wf_onnx_nums_axis(wf_onnx_attr_int(node, "end", rank), rank);
    from = from < 0 ? 0 : from;
    to = to > rank ? rank : to;
    struct wf_onnx_numbers *const y =
        wf_onnx_numbers_new(im, true, 1, (int64_t[]){ to > from ? to - from : 0 });
    for (int64_t i = 0; y && i < y->count; i++)
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            y->at[i][p] = (double)extents[from + i];
    return wf_onnx_nums_out(im, node, 0, y) || wf_onnx_nums_too_many(im, node, err);
}

/* Over all elements. */
static bool reduce(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    wf_onnx_nums *const a = wf_onnx_nums_in(im, node, 0);
    if (!a || a->rank > 1 || a->count == 0)
        return wf_onnx_nums_unknown(im, node, err);
    const int op = strcmp(node->op_type, "ReduceProd") == 0  ? MUL
                   : strcmp(node->op_type, "ReduceMax") == 0 ? MAX
                   : strcmp(node->op_type, "ReduceMin") == 0 ? MIN
                                                             : ADD;
    const int rank = wf_onnx_attr_int(node, "keepdims", 1) ? a->rank : 0;
    struct wf_onnx_numbers *const y = wf_onnx_numbers_new(im, a->is_whole, rank, (int64_t[]){ 1 });
    if (!y)
        return wf_onnx_nums_too_many(im, node, err);
    memcpy(y->at[0], a->at[0], sizeof y->at[0]);
    for (int64_t i = 1; i < a->count; i++)
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            y->at[0][p] = binary_of(op, y->at[0][p], a->at[i][p], a->is_whole);
    (void)wf_onnx_nums_out(im, node, 0, y);
    return true;
}

const struct wf_onnx_rule_row wf_onnx_rules_numbers[] = {
    { "Add", binary },
    { "Sub", binary },
    { "Mul", binary },
    { "Div", binary },
    { "Mod", binary },
    { "Min", binary },
    { "Max", binary },
    { "Pow", binary },
    { "Equal", binary },
    { "Less", binary },
    { "LessOrEqual", binary },
    { "Greater", binary },
    { "And", binary },
    { "Or", binary },
    { "GreaterOrEqual", binary },
    { "Clip", clip },
    { "Neg", unary },
    { "Abs", unary },
    { "Floor", unary },
    { "Ceil", unary },
    { "Round", unary },
    { "Sqrt", unary },
    { "Not", unary },
    { "Reciprocal", unary },
    { "Exp", unary },
    { "Where", where },
    { "Cast", cast },
    { "CastLike", cast },
    { "ConstantOfShape", constant_of_shape },
    { "Range", range },
    { "Shape", shape },
    { "ReduceProd", reduce },
    { "ReduceSum", reduce },
    { "ReduceMax", reduce },
    { "ReduceMin", reduce },
    { .op = NULL },
};
