/* Layers that take images for matrices: rows are positions, columns channels. */
#include <string.h>

#include "onnx/write.h"
#include "ops/build.h"

/* Input k as [N, C, positions]. */
static const char *columns(struct wf_onnx_writer *w, int k)
{
    const int64_t shape[] = { 0, w->values[1 + w->layer->in[k]]->shape.at[WF_C], -1 };
    return wf_onnx_emit(w, "Reshape", NULL, 2,
                        (const char *[]){ wf_onnx_input(w, k), wf_onnx_int_list(w, 3, shape) });
}

static const char *turned(struct wf_onnx_writer *w, const char *x)
{
    const char *const y = wf_onnx_emit(w, "Transpose", NULL, 1, &x);
    wf_onnx_put_ints(w, "perm", 3, (int64_t[]){ 0, 2, 1 });
    return y;
}

static const char *joined(struct wf_onnx_writer *w, const char *a, const char *b)
{
    const char *const y = wf_onnx_emit(w, "Concat", NULL, 2, (const char *[]){ a, b });
    wf_onnx_put_int(w, "axis", 0);
    return y;
}

/* Spatial extents that the layer says, or one row of so many positions. */
static const char *extents_of(struct wf_onnx_writer *w, int64_t row)
{
    const int dims = w->e->net->dims;
    int64_t size[3];
    bool given = false;
    if (w->layer->like != WF_LAYER_NONE)
        return wf_onnx_extents_of(w, wf_onnx_image_of(w, w->layer->like));
    for (int i = 0; i < 3; i++) {
        given |= w->layer->a.size[i] > 0;
        size[i] = w->layer->a.size[i] ? w->layer->a.size[i] : 1;
    }
    if (!given)
        size[2] = row;
    return wf_onnx_int_list(w, dims, size + 3 - dims);
}

/* [N, C, positions] as an image; the channels follow. */
static const char *image(struct wf_onnx_writer *w, const char *out, const char *x,
                         const char *extents)
{
    const char *const lead = wf_onnx_int_list(w, 2, (int64_t[]){ 0, -1 });
    return wf_onnx_emit(w, "Reshape", out, 2, (const char *[]){ x, joined(w, lead, extents) });
}

/* Of matrices that are stored transposed: y^T is b^T a^T, so [N, C, positions] of the result is a product of the
 * second and the first. */
static const char *matmul(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const int64_t form = w->layer->a.form;
    const char *const a = columns(w, 0), *const b = columns(w, 1);
    const char *const first = form == WF_MATMUL_NT ? turned(w, b) : b;
    const char *const second = form == WF_MATMUL_TN ? turned(w, a) : a;
    const char *const y = wf_onnx_emit(w, "MatMul", NULL, 2, (const char *[]){ first, second });
    return image(w, out, y,
                 form == WF_MATMUL_TN ? extents_of(w, wf_onnx_channels(w))
                                      : wf_onnx_extents_of(w, wf_onnx_input(w, 0)));
}

static const char *transpose(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    return image(w, out, turned(w, columns(w, 0)), extents_of(w, wf_onnx_channels(w)));
}

static const char *softmax_sample(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const char *const x = wf_onnx_input(w, 0);
    const char *const shape = wf_onnx_emit(w, "Shape", NULL, 1, &x);
    const char *const flat = wf_onnx_emit(w, "Flatten", NULL, 1, &x);
    const char *const y = wf_onnx_emit(w, "Softmax", NULL, 1, &flat);
    wf_onnx_put_int(w, "axis", 1);
    return wf_onnx_emit(w, "Reshape", out, 2, (const char *[]){ y, shape });
}

const struct wf_onnx_write_row wf_onnx_writes_matrix[] = {
    { "matmul", matmul },
    { "transpose", transpose },
    { "softmax_sample", softmax_sample },
    { .kind = NULL },
};
