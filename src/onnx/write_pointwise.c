/* Layers element by element as nodes of ONNX. */
#include <math.h>
#include <string.h>

#include "onnx/write.h"

static const char *two(struct wf_onnx_writer *w, const char *op, const char *out, const char *a,
                       const char *b)
{
    return wf_onnx_emit(w, op, out, 2, (const char *[]){ a, b });
}

static const char *with_number(struct wf_onnx_writer *w, const char *op, const char *out,
                               const char *x, double number)
{
    return two(w, op, out, x, wf_onnx_number(w, number));
}

/* --- activations --- */

/* x * (1 + f(y)) / 2 */
static const char *half_gate(struct wf_onnx_writer *w, const char *f, const char *x, const char *y,
                             const char *out)
{
    const char *g = wf_onnx_emit(w, f, NULL, 1, &y);
    g = with_number(w, "Add", NULL, g, 1);
    g = two(w, "Mul", NULL, x, g);
    return with_number(w, "Mul", out, g, 0.5);
}

static const char *gelu_tanh(struct wf_onnx_writer *w, const char *x, const char *out)
{
    const char *cube = two(w, "Mul", NULL, x, x);
    cube = two(w, "Mul", NULL, cube, x);
    cube = with_number(w, "Mul", NULL, cube, 0.044715);
    const char *const sum = two(w, "Add", NULL, x, cube);
    return half_gate(w, "Tanh", x, with_number(w, "Mul", NULL, sum, 0.79788456080286536), out);
}

static const char *softplus(struct wf_onnx_writer *w, const char *x, const char *out, double beta)
{
    if (beta == 1)
        return wf_onnx_emit(w, "Softplus", out, 1, &x);
    const char *y = with_number(w, "Mul", NULL, x, beta);
    y = wf_onnx_emit(w, "Softplus", NULL, 1, &y);
    return with_number(w, "Div", out, y, beta);
}

static const char *log_sigmoid(struct wf_onnx_writer *w, const char *x, const char *out)
{
    const char *y = wf_onnx_emit(w, "Neg", NULL, 1, &x);
    y = wf_onnx_emit(w, "Softplus", NULL, 1, &y);
    return wf_onnx_emit(w, "Neg", out, 1, &y);
}

static const char *clipped(struct wf_onnx_writer *w, const char *x, const char *out, double lo,
                           double hi)
{
    return wf_onnx_emit(w, "Clip", out, 3,
                        (const char *[]){ x, wf_onnx_number(w, lo), wf_onnx_number(w, hi) });
}

static const char *with_alpha(struct wf_onnx_writer *w, const char *op, const char *x,
                              const char *out, double alpha)
{
    const char *const y = wf_onnx_emit(w, op, out, 1, &x);
    wf_onnx_put_real(w, "alpha", alpha);
    return y;
}

const char *wf_onnx_write_act(struct wf_onnx_writer *w, const char *act, const char *x,
                              const char *out)
{
    static const char *const same[][2] = {
        { "relu", "Relu" },
        { "sigmoid", "Sigmoid" },
        { "tanh", "Tanh" },
        { "selu", "Selu" },
        { "hard_swish", "HardSwish" },
        { "mish", "Mish" },
        { "softsign", "Softsign" },
        { "abs", "Abs" },
        { "exp", "Exp" },
        { "log", "Log" },
        { "sqrt", "Sqrt" },
        { "reciprocal", "Reciprocal" },
    };
    const double slope = w->layer->a.slope;
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (strcmp(act, same[i][0]) == 0)
            return wf_onnx_emit(w, same[i][1], out, 1, &x);
    if (strcmp(act, "leaky_relu") == 0)
        return with_alpha(w, "LeakyRelu", x, out, slope > 0 ? slope : 0.01);
    if (strcmp(act, "elu") == 0)
        return with_alpha(w, "Elu", x, out, slope > 0 ? slope : 1);
    if (strcmp(act, "hard_sigmoid") == 0)
        return with_alpha(w, "HardSigmoid", x, out, 1.0 / 6);
    if (strcmp(act, "relu6") == 0)
        return clipped(w, x, out, 0, 6);
    if (strcmp(act, "silu") == 0)
        return two(w, "Mul", out, x, wf_onnx_emit(w, "Sigmoid", NULL, 1, &x));
    if (strcmp(act, "gelu") == 0)
        return half_gate(w, "Erf", x, with_number(w, "Div", NULL, x, sqrt(2)), out);
    if (strcmp(act, "gelu_tanh") == 0)
        return gelu_tanh(w, x, out);
    if (strcmp(act, "softplus") == 0)
        return softplus(w, x, out, slope > 0 ? slope : 1);
    if (strcmp(act, "log_sigmoid") == 0)
        return log_sigmoid(w, x, out);
    return NULL;
}

/* The layer's input as it is, and whether that is a vector. */
static const char *raw(const struct wf_onnx_writer *w, bool *vector)
{
    *vector = w->vector[1 + w->layer->in[0]];
    return w->names[1 + w->layer->in[0]];
}

static const char *act(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const char *const x = raw(w, vector);
    return wf_onnx_write_act(w, w->layer->kind->name, x, out);
}

static const char *clip(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const char *const x = raw(w, vector);
    return clipped(w, x, out, w->layer->a.lo, w->layer->a.hi);
}

static const char *scale(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const char *const x = raw(w, vector);
    return with_number(w, "Mul", out, x, w->layer->a.factor);
}

static const char *shift(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const char *const x = raw(w, vector);
    return with_number(w, "Add", out, x, w->layer->a.offset);
}

static const char *softmax(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const char *const x = raw(w, vector);
    const bool logs = strcmp(w->layer->kind->name, "log_softmax") == 0;
    const char *const y = wf_onnx_emit(w, logs ? "LogSoftmax" : "Softmax", out, 1, &x);
    wf_onnx_put_int(w, "axis", 1);
    return y;
}

/* What is the identity in inference. */
static const char *pass(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const char *const x = raw(w, vector);
    return wf_onnx_emit(w, "Identity", out, 1, &x);
}

/* Input k: as a vector where all are. */
static const char *operand(struct wf_onnx_writer *w, int k, bool vectors)
{
    return vectors ? w->names[1 + w->layer->in[k]] : wf_onnx_input(w, k);
}

static bool all_vectors(const struct wf_onnx_writer *w)
{
    bool all = true;
    for (int k = 0; k < w->layer->n_in; k++)
        all &= w->vector[1 + w->layer->in[k]];
    return all;
}

static const char *joined(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const char *const kind = w->layer->kind->name;
    const char *const op = strcmp(kind, "add") == 0        ? "Add"
                           : strcmp(kind, "subtract") == 0 ? "Sub"
                                                           : "Mul";
    *vector = all_vectors(w);
    const char *y = operand(w, 0, *vector);
    const int n = w->layer->n_in;
    for (int k = 1; k < n; k++)
        y = two(w, op, k + 1 < n ? NULL : out, y, operand(w, k, *vector));
    return y;
}

static const char *concat(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const int n = w->layer->n_in;
    *vector = all_vectors(w);
    const char **const in = wf_arena_array(&w->arena, n, const char *);
    for (int k = 0; k < n; k++)
        in[k] = operand(w, k, *vector);
    const char *const y = wf_onnx_emit(w, "Concat", out, n, in);
    wf_onnx_put_int(w, "axis", 1);
    return y;
}

const struct wf_onnx_write_row wf_onnx_writes_pointwise[] = {
    { "relu", act },
    { "leaky_relu", act },
    { "sigmoid", act },
    { "tanh", act },
    { "gelu", act },
    { "silu", act },
    { "relu6", act },
    { "elu", act },
    { "selu", act },
    { "hard_sigmoid", act },
    { "hard_swish", act },
    { "mish", act },
    { "softplus", act },
    { "gelu_tanh", act },
    { "softsign", act },
    { "log_sigmoid", act },
    { "abs", act },
    { "exp", act },
    { "log", act },
    { "sqrt", act },
    { "reciprocal", act },
    { "clip", clip },
    { "scale", scale },
    { "shift", shift },
    { "softmax", softmax },
    { "log_softmax", softmax },
    { "dropout", pass },
    { "dropout_channels", pass },
    { "dropout_samples", pass },
    { "reverse_gradient", pass },
    { "add", joined },
    { "subtract", joined },
    { "multiply", joined },
    { "concat", concat },
    { .kind = NULL },
};
