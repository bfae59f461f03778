/* Layers that pool, resample and move as nodes of ONNX. */
#include <math.h>
#include <string.h>

#include "onnx/write.h"
#include "ops/build.h"

static int dims_of(const struct wf_onnx_writer *w)
{
    return w->e->net->dims;
}

/* --- pooling --- */

static const char *pool(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const struct wf_layer_attrs *const a = &w->layer->a;
    const bool max = strcmp(w->layer->kind->name, "max_pool") == 0;
    const int dims = dims_of(w);
    int64_t kernel[3], stride[3], pads[6];
    for (int i = 0; i < dims; i++) {
        const int k = 3 - dims + i;
        kernel[i] = a->kernel[k] > 0 ? a->kernel[k] : 1;
        stride[i] = a->stride[k] > 0 ? a->stride[k] : kernel[i];
        pads[i] = a->pad_lo[k];
        pads[dims + i] = a->pad_hi[k];
    }
    const char *const x = wf_onnx_input(w, 0);
    const char *const y = wf_onnx_emit(w, max ? "MaxPool" : "AveragePool", out, 1, &x);
    wf_onnx_put_ints(w, "kernel_shape", dims, kernel);
    wf_onnx_put_ints(w, "strides", dims, stride);
    wf_onnx_put_ints(w, "pads", 2 * dims, pads);
    wf_onnx_put_int(w, "ceil_mode", a->ceil);
    if (!max)
        wf_onnx_put_int(w, "count_include_pad", a->count_pad);
    return y;
}

static const char *global_pool(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const char *const x = wf_onnx_input(w, 0);
    const bool max = strcmp(w->layer->kind->name, "global_max_pool") == 0;
    return wf_onnx_emit(w, max ? "GlobalMaxPool" : "GlobalAveragePool", out, 1, &x);
}

/* The axis of the layer's attribute, in ONNX's count. */
static int64_t axis_of(const struct wf_onnx_writer *w)
{
    const int64_t axis = w->layer->a.axis;
    return axis == WF_LAYER_CHANNELS ? 1 : axis - WF_LAYER_DEPTH + 2 - (3 - dims_of(w));
}

static const char *reduced(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const bool max = strcmp(w->layer->kind->name, "max") == 0;
    const int64_t axis = axis_of(w);
    const char *const y =
        wf_onnx_emit(w, max ? "ReduceMax" : "ReduceMean", out, 2,
                     (const char *[]){ wf_onnx_input(w, 0), wf_onnx_int_list(w, 1, &axis) });
    wf_onnx_put_int(w, "keepdims", 1);
    return y;
}

static const char *global_sum(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    static const int64_t axes[] = { 2, 3, 4 };
    (void)vector;
    const char *const x = wf_onnx_input(w, 0);
    const char *const y = wf_onnx_emit(
        w, "ReduceSum", out, 2, (const char *[]){ x, wf_onnx_int_list(w, dims_of(w), axes) });
    wf_onnx_put_int(w, "keepdims", 1);
    return y;
}

/* --- extents --- */

/* Batch and channels of x, then these spatial extents. */
static const char *whole_shape(struct wf_onnx_writer *w, const char *x, const char *spatial)
{
    const char *const first = wf_onnx_emit(w, "Shape", NULL, 1, &x);
    wf_onnx_put_int(w, "start", 0);
    wf_onnx_put_int(w, "end", 2);
    const char *const y = wf_onnx_emit(w, "Concat", NULL, 2, (const char *[]){ first, spatial });
    wf_onnx_put_int(w, "axis", 0);
    return y;
}

static bool put_mode(struct wf_onnx_writer *w, const char *mode)
{
    static const char *const forms[][3] = {
        { "nearest", "nearest", "asymmetric" }, { "nearest_exact", "nearest", "half_pixel" },
        { "linear", "linear", "half_pixel" },   { "linear_corners", "linear", "align_corners" },
        { "cubic", "cubic", "half_pixel" },     { "cubic_corners", "cubic", "align_corners" },
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(mode, forms[i][0]) != 0)
            continue;
        wf_onnx_put_text(w, "mode", forms[i][1]);
        wf_onnx_put_text(w, "coordinate_transformation_mode", forms[i][2]);
        if (strcmp(forms[i][1], "nearest") == 0)
            wf_onnx_put_text(w, "nearest_mode", i == 0 ? "floor" : "round_prefer_ceil");
        return true;
    }
    return false;
}

static const char *upsample(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const struct wf_layer_attrs *const a = &w->layer->a;
    const int dims = dims_of(w), last = 3 - dims;
    const char *const x = wf_onnx_input(w, 0);
    const char *scales = NULL, *sizes = NULL;
    if (w->layer->like != WF_LAYER_NONE) {
        sizes = whole_shape(w, x, wf_onnx_extents_of(w, wf_onnx_image_of(w, w->layer->like)));
    } else if (a->size[last] > 0) {
        sizes = whole_shape(w, x, wf_onnx_int_list(w, dims, a->size + last));
    } else {
        float factors[5] = { 1, 1 };
        for (int i = 0; i < dims; i++)
            factors[2 + i] = a->scale[last + i] > 0 ? (float)a->scale[last + i] : 1.0F;
        scales = wf_onnx_floats(w, 1, (int64_t[]){ 2 + dims }, factors);
    }
    const char *const y =
        wf_onnx_emit(w, "Resize", out, sizes ? 4 : 3, (const char *[]){ x, NULL, scales, sizes });
    return put_mode(w, wf_upsample_mode_names[a->mode]) ? y : NULL;
}

/* Zeros that are added, or positions that are cut off where negative. */
static const char *padded(struct wf_onnx_writer *w, const char *out, const char *x,
                          const char *amounts, const char *mode)
{
    const char *const y = wf_onnx_emit(w, "Pad", out, 2, (const char *[]){ x, amounts });
    wf_onnx_put_text(w, "mode", mode);
    return y;
}

/* What goes in front, of all that is missing. Division of integers truncates. */
static const char *front_of(struct wf_onnx_writer *w, const char *missing)
{
    const enum wf_layer_align align = (enum wf_layer_align)w->layer->a.align;
    const char *even = missing;
    const char *const part =
        wf_onnx_int_list(w, 1, (int64_t[]){ align == WF_LAYER_START ? INT64_MAX : 2 });
    if (align == WF_LAYER_CUT_END)
        even = wf_onnx_emit(w, "Max", NULL, 2,
                            (const char *[]){ missing, wf_onnx_int_list(w, 1, (int64_t[]){ 0 }) });
    else if (align == WF_LAYER_CENTRE) /* down also below 0: a remainder has the divisor's sign */
        even = wf_onnx_emit(
            w, "Sub", NULL, 2,
            (const char *[]){ missing,
                              wf_onnx_emit(w, "Mod", NULL, 2, (const char *[]){ missing, part }) });
    return wf_onnx_emit(w, "Div", NULL, 2, (const char *[]){ even, part });
}

static const char *fit(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const char *const x = wf_onnx_input(w, 0);
    const char *const from = wf_onnx_extents_of(w, x);
    const char *const to = wf_onnx_extents_of(w, wf_onnx_image_of(w, w->layer->like));
    const char *const none = wf_onnx_int_list(w, 2, (int64_t[]){ 0, 0 });
    const char *const missing = wf_onnx_emit(w, "Sub", NULL, 2, (const char *[]){ to, from });
    const char *const lo = front_of(w, missing);
    const char *const hi = wf_onnx_emit(w, "Sub", NULL, 2, (const char *[]){ missing, lo });
    const char *const all =
        wf_onnx_emit(w, "Concat", NULL, 4, (const char *[]){ none, lo, none, hi });
    wf_onnx_put_int(w, "axis", 0);
    return padded(w, out, x, all, "constant");
}

static const char *pad(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    static const char *const modes[] = { "constant", "reflect", "wrap", "edge" };
    const struct wf_layer_attrs *const a = &w->layer->a;
    const int dims = dims_of(w);
    int64_t pads[10] = { 0 };
    if (strcmp(w->layer->kind->name, "pad_channels") == 0) {
        pads[1] = a->from;
        pads[3 + dims] = a->to;
    }
    for (int i = 0; i < dims; i++) {
        pads[2 + i] = a->pad_lo[3 - dims + i];
        pads[4 + dims + i] = a->pad_hi[3 - dims + i];
    }
    return padded(w, out, wf_onnx_input(w, 0), wf_onnx_int_list(w, 2 * (2 + dims), pads),
                  modes[a->pad_mode]);
}

static const char *slice(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const int64_t axis = axis_of(w), from = w->layer->a.from;
    const int64_t to = w->layer->a.to ? w->layer->a.to : INT64_MAX;
    *vector = axis == 1 && w->vector[1 + w->layer->in[0]];
    return wf_onnx_emit(
        w, "Slice", out, 4,
        (const char *[]){ *vector ? w->names[1 + w->layer->in[0]] : wf_onnx_input(w, 0),
                          wf_onnx_int_list(w, 1, &from), wf_onnx_int_list(w, 1, &to),
                          wf_onnx_int_list(w, 1, &axis) });
}

/* --- shapes --- */

static const char *flatten(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const char *const x = wf_onnx_input(w, 0);
    *vector = true;
    return wf_onnx_emit(w, "Flatten", out, 1, &x);
}

static const char *mixed_shape(struct wf_onnx_writer *w, int n, const char *const parts[]);

static const char *reshape(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const int dims = dims_of(w);
    if (w->layer->like != WF_LAYER_NONE) {
        const char *const to = wf_onnx_extents_of(w, wf_onnx_image_of(w, w->layer->like));
        const char *const lead = wf_onnx_int_list(w, 2, (int64_t[]){ 0, -1 });
        return wf_onnx_emit(w, "Reshape", out, 2,
                            (const char *[]){ w->names[1 + w->layer->in[0]],
                                              mixed_shape(w, 2, (const char *[]){ lead, to }) });
    }
    int64_t shape[5] = { 0, w->layer->a.out ? wf_layer_out(w->e->net, w->layer) : -1 };
    for (int i = 0; i < dims; i++)
        shape[2 + i] = w->layer->a.size[3 - dims + i] ? w->layer->a.size[3 - dims + i] : 1;
    const char *const x = w->names[1 + w->layer->in[0]];
    return wf_onnx_emit(w, "Reshape", out, 2,
                        (const char *[]){ x, wf_onnx_int_list(w, 2 + dims, shape) });
}

/* Channels [g, c] as [c, g]. */
static const char *channel_shuffle(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const char *const x = wf_onnx_input(w, 0);
    const int64_t groups = w->layer->a.groups, each = wf_onnx_channels(w) / groups;
    const char *const shape = wf_onnx_emit(w, "Shape", NULL, 1, &x);
    const char *const split = wf_onnx_emit(
        w, "Reshape", NULL, 2,
        (const char *[]){ x, wf_onnx_int_list(w, 4, (int64_t[]){ 0, groups, each, -1 }) });
    const char *const turned = wf_onnx_emit(w, "Transpose", NULL, 1, &split);
    wf_onnx_put_ints(w, "perm", 4, (int64_t[]){ 0, 2, 1, 3 });
    return wf_onnx_emit(w, "Reshape", out, 2, (const char *[]){ turned, shape });
}

/* Spatial extents of x times or divided by r. */
static const char *scaled_extents(struct wf_onnx_writer *w, const char *x, const char *op,
                                  int64_t r)
{
    return wf_onnx_emit(w, op, NULL, 2,
                        (const char *[]){ wf_onnx_extents_of(w, x), wf_onnx_int_list(w, 1, &r) });
}

/* One element of each spatial extent, between fixed ones: "before, h, between, w, ..." as a shape. */
static const char *mixed_shape(struct wf_onnx_writer *w, int n, const char *const parts[])
{
    const char *const y = wf_onnx_emit(w, "Concat", NULL, n, parts);
    wf_onnx_put_int(w, "axis", 0);
    return y;
}

static const char *pick(struct wf_onnx_writer *w, const char *list, int64_t i)
{
    return wf_onnx_emit(w, "Gather", NULL, 2, (const char *[]){ list, wf_onnx_int_list(w, 1, &i) });
}

/* [N, C r r, H, W] as [N, C, H r, W r], of any number of axes. */
static const char *pixel_shuffle(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const int dims = dims_of(w);
    const int64_t r = (int64_t)w->layer->a.factor;
    const char *const x = wf_onnx_input(w, 0);
    int64_t channels = wf_onnx_channels(w), first[5] = { 0 }, perm[8] = { 0, 1 };
    for (int i = 0; i < dims; i++)
        channels /= r;
    first[1] = channels;
    for (int i = 0; i < dims; i++) {
        first[2 + i] = r;
        perm[2 + 2 * i] = 2 + dims + i;
        perm[3 + 2 * i] = 2 + i;
    }
    const char *const shape = mixed_shape(
        w, 2, (const char *[]){ wf_onnx_int_list(w, 2 + dims, first), wf_onnx_extents_of(w, x) });
    const char *y = wf_onnx_emit(w, "Reshape", NULL, 2, (const char *[]){ x, shape });
    y = wf_onnx_emit(w, "Transpose", NULL, 1, &y);
    wf_onnx_put_ints(w, "perm", 2 + 2 * dims, perm);
    const char *const to =
        mixed_shape(w, 2,
                    (const char *[]){ wf_onnx_int_list(w, 2, (int64_t[]){ 0, channels }),
                                      scaled_extents(w, x, "Mul", r) });
    return wf_onnx_emit(w, "Reshape", out, 2, (const char *[]){ y, to });
}

static const char *pixel_unshuffle(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const int dims = dims_of(w);
    const int64_t r = (int64_t)w->layer->a.factor, channels = wf_onnx_channels(w);
    const char *const x = wf_onnx_input(w, 0), *const small = scaled_extents(w, x, "Div", r);
    const char *parts[7];
    int64_t perm[8] = { 0, 1 }, all = channels;
    parts[0] = wf_onnx_int_list(w, 2, (int64_t[]){ 0, channels });
    for (int i = 0; i < dims; i++) {
        parts[1 + 2 * i] = pick(w, small, i);
        parts[2 + 2 * i] = wf_onnx_int_list(w, 1, &r);
        perm[2 + i] = 3 + 2 * i;
        perm[2 + dims + i] = 2 + 2 * i;
        all *= r;
    }
    const char *y = wf_onnx_emit(w, "Reshape", NULL, 2,
                                 (const char *[]){ x, mixed_shape(w, 1 + 2 * dims, parts) });
    y = wf_onnx_emit(w, "Transpose", NULL, 1, &y);
    wf_onnx_put_ints(w, "perm", 2 + 2 * dims, perm);
    const char *const to =
        mixed_shape(w, 2, (const char *[]){ wf_onnx_int_list(w, 2, (int64_t[]){ 0, all }), small });
    return wf_onnx_emit(w, "Reshape", out, 2, (const char *[]){ y, to });
}

const struct wf_onnx_write_row wf_onnx_writes_shape[] = {
    { "max_pool", pool },
    { "avg_pool", pool },
    { "global_pool", global_pool },
    { "global_max_pool", global_pool },
    { "global_sum", global_sum },
    { "mean", reduced },
    { "max", reduced },
    { "upsample", upsample },
    { "fit", fit },
    { "pad", pad },
    { "pad_channels", pad },
    { "slice", slice },
    { "flatten", flatten },
    { "reshape", reshape },
    { "channel_shuffle", channel_shuffle },
    { "pixel_shuffle", pixel_shuffle },
    { "pixel_unshuffle", pixel_unshuffle },
    { .kind = NULL },
};
