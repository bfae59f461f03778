/*
 * Descriptors of cuDNN's graph interface.
 *
 * Two things corrupt memory here without an error, so they are done in one place each: an attribute is
 * read and written with the C type that its cuDNN type stands for (an enum is an int, a number an
 * int64_t), and arrays that cuDNN fills hold as many created descriptors as it was told.
 */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cudnn.h"
#include "device/cuda/cudnn_attributes.h"

#include "base/memory.h"

enum { UID_IMAGE = 1, UID_WEIGHTS, UID_RESULT, UID_BIAS, UID_SUM };
enum { DESCRIPTORS = 16 };

/* Descriptors refer to each other: they are kept together and destroyed last to first. */
struct bag {
    const struct wf_cudnn *dnn;
    cudnnBackendDescriptor_t list[DESCRIPTORS];
    int count;
};

struct wf_cudnn_graph {
    struct wf_cuda *cuda;
    struct wf_cudnn_problem problem;
    struct bag bag;
    cudnnBackendDescriptor_t ops; /* the operation graph */
    int users;
};

struct wf_cudnn_plan {
    struct wf_cudnn_graph *graph;
    struct bag bag;
    cudnnBackendDescriptor_t knobs[WF_CUDNN_KNOBS];
    int n_knobs;
    cudnnBackendDescriptor_t plan;
    size_t workspace;
    bool compiled;
    /* The pointers of the last run and their descriptor: mostly the same in every step. */
    cudnnBackendDescriptor_t pack;
    struct wf_cudnn_pointers pointers;
    void *pack_workspace;
};

/* --- descriptors --- */

static cudnnBackendDescriptor_t make(struct bag *bag, cudnnBackendDescriptorType_t type)
{
    WF_BUG_ON(bag->count == DESCRIPTORS, "more than %d descriptors", DESCRIPTORS);
    cudnnBackendDescriptor_t d = NULL;
    if (bag->dnn->cudnnBackendCreateDescriptor(type, &d) != CUDNN_STATUS_SUCCESS)
        return NULL;
    bag->list[bag->count++] = d;
    return d;
}

static void empty(struct bag *bag)
{
    while (bag->count > 0)
        (void)bag->dnn->cudnnBackendDestroyDescriptor(bag->list[--bag->count]);
}

static cudnnDataType_t data_type(enum wf_dtype dtype)
{
    return dtype == WF_BF16  ? CUDNN_DATA_BFLOAT16
           : dtype == WF_F16 ? CUDNN_DATA_HALF
                             : CUDNN_DATA_FLOAT;
}

/* --- the graph --- */

/* Two spatial axes where the first is of no account, else three. */
static int space_of(const struct wf_cudnn_problem *p)
{
    return p->image[0] == 1 && p->result[0] == 1 && p->kernel[0] == 1 && p->pad_lo[0] == 0 &&
                   p->pad_hi[0] == 0
               ? 2
               : 3;
}

struct tensor {
    int64_t uid, n, channels;
    const int64_t *space; /* WF_CUDNN_SPACE extents */
    enum wf_dtype dtype;
    int64_t align;
    bool is_virtual;
};

/* Packed, channels last. cuDNN names the axes N, C, spatial. */
static cudnnBackendDescriptor_t add_tensor(struct wf_cudnn_graph *g, const struct tensor *t)
{
    const struct wf_cudnn *const dnn = g->bag.dnn;
    const int space = space_of(&g->problem);
    int64_t extent[2 + WF_CUDNN_SPACE] = { t->n, t->channels }, stride[2 + WF_CUDNN_SPACE];
    for (int i = 0; i < space; i++)
        extent[2 + i] = t->space ? t->space[WF_CUDNN_SPACE - space + i] : 1;
    int64_t step = t->channels;
    stride[1] = 1;
    for (int i = space - 1; i >= 0; i--) {
        stride[2 + i] = step;
        step *= extent[2 + i];
    }
    stride[0] = step;
    cudnnBackendDescriptor_t d = make(&g->bag, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool is_virtual = t->is_virtual;
    const bool ok = d && set_type(dnn, d, CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(t->dtype)) &&
                    set_ints(dnn, d, CUDNN_ATTR_TENSOR_DIMENSIONS, 2 + space, extent) &&
                    set_ints(dnn, d, CUDNN_ATTR_TENSOR_STRIDES, 2 + space, stride) &&
                    set_int(dnn, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, t->uid) &&
                    set_int(dnn, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t->align) &&
                    set(dnn, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual) &&
                    finalize(dnn, d);
    return ok ? d : NULL;
}

static cudnnBackendDescriptor_t add_convolution(struct wf_cudnn_graph *g)
{
    const struct wf_cudnn *const dnn = g->bag.dnn;
    const struct wf_cudnn_problem *const p = &g->problem;
    const int space = space_of(p), skip = WF_CUDNN_SPACE - space;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t d = make(&g->bag, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const bool ok =
        d && set_type(dnn, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT) &&
        set(dnn, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
        set_int(dnn, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, space) &&
        set_ints(dnn, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, space, p->pad_lo + skip) &&
        set_ints(dnn, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, space, p->pad_hi + skip) &&
        set_ints(dnn, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, space, p->stride + skip) &&
        set_ints(dnn, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, space, p->dilation + skip) &&
        finalize(dnn, d);
    return ok ? d : NULL;
}

static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t image, weights, result, conv, alpha, beta;
} passes[] = {
    [WF_CONV_FORWARD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
    [WF_CONV_DATA] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
    [WF_CONV_WEIGHTS] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA },
};

static cudnnBackendDescriptor_t add_operation(struct wf_cudnn_graph *g,
                                              cudnnBackendDescriptor_t image,
                                              cudnnBackendDescriptor_t weights,
                                              cudnnBackendDescriptor_t result)
{
    const struct wf_cudnn *const dnn = g->bag.dnn;
    const enum wf_conv_pass pass = g->problem.pass;
    cudnnBackendDescriptor_t d = make(&g->bag, passes[pass].type);
    const bool ok = d && set_descriptor(dnn, d, passes[pass].image, image) &&
                    set_descriptor(dnn, d, passes[pass].weights, weights) &&
                    set_descriptor(dnn, d, passes[pass].result, result) &&
                    set_descriptor(dnn, d, passes[pass].conv, add_convolution(g)) &&
                    set_float(dnn, d, passes[pass].alpha, 1.0f) &&
                    set_float(dnn, d, passes[pass].beta, 0.0f) && finalize(dnn, d);
    return ok ? d : NULL;
}

/* to = from + bias */
static cudnnBackendDescriptor_t add_bias(struct wf_cudnn_graph *g, cudnnBackendDescriptor_t from,
                                         cudnnBackendDescriptor_t to, int64_t channels)
{
    const struct wf_cudnn *const dnn = g->bag.dnn;
    const struct tensor bias = {
        .uid = UID_BIAS, .n = 1, .channels = channels, .dtype = WF_F32, .align = 16
    };
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    cudnnBackendDescriptor_t how = make(&g->bag, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    if (!how || !set(dnn, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode) ||
        !set_type(dnn, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT) ||
        !finalize(dnn, how))
        return NULL;
    cudnnBackendDescriptor_t d = make(&g->bag, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    const bool ok =
        d && set_descriptor(dnn, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how) &&
        set_descriptor(dnn, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from) &&
        set_descriptor(dnn, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, add_tensor(g, &bias)) &&
        set_descriptor(dnn, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to) && finalize(dnn, d);
    return ok ? d : NULL;
}

static bool build(struct wf_cudnn_graph *g)
{
    const struct wf_cudnn *const dnn = g->bag.dnn;
    const struct wf_cudnn_problem *const p = &g->problem;
    const struct tensor image = { UID_IMAGE, p->n, p->in, p->image, p->dtype, p->align[0], false };
    const struct tensor result = {
        UID_RESULT, p->n, p->out, p->result, p->dtype, p->align[1], false
    };
    const struct tensor weights = { UID_WEIGHTS, p->out, p->in / p->groups, p->kernel, p->dtype,
                                    16,          false };
    cudnnBackendDescriptor_t x = add_tensor(g, &image), y = add_tensor(g, &result);
    cudnnBackendDescriptor_t w = add_tensor(g, &weights), ops[2] = { NULL, NULL };
    if (!x || !y || !w)
        return false;
    int64_t count = 1;
    if (p->bias) { /* the convolution makes a sum in f32 that is nowhere, the bias is added to it */
        struct tensor sum = p->pass == WF_CONV_DATA ? image : result;
        sum.uid = UID_SUM;
        sum.dtype = WF_F32;
        sum.align = 16;
        sum.is_virtual = true;
        cudnnBackendDescriptor_t s = add_tensor(g, &sum);
        const bool data = p->pass == WF_CONV_DATA;
        ops[0] = s ? add_operation(g, data ? s : x, w, data ? y : s) : NULL;
        ops[1] = ops[0] ? add_bias(g, s, data ? x : y, sum.channels) : NULL;
        count = 2;
    } else {
        ops[0] = add_operation(g, x, w, y);
    }
    g->ops = make(&g->bag, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    return ops[count - 1] && g->ops &&
           set(dnn, g->ops, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
               &g->cuda->cudnn) &&
           set(dnn, g->ops, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
               ops) &&
           finalize(dnn, g->ops);
}

struct wf_cudnn_graph *wf_cudnn_graph_new(struct wf_cuda *cuda,
                                          const struct wf_cudnn_problem *problem)
{
    struct wf_cudnn_graph *const g = wf_take_zeroed(1, sizeof *g);
    g->cuda = cuda;
    g->problem = *problem;
    g->users = 1;
    g->bag.dnn = &cuda->dnn;
    if (build(g))
        return g;
    wf_cudnn_graph_free(g);
    return NULL;
}

void wf_cudnn_graph_free(struct wf_cudnn_graph *g)
{
    if (!g || --g->users > 0)
        return;
    empty(&g->bag);
    free(g);
}

/* --- candidates --- */

/* What an engine's notes forbid. In f32 the tensor cores round factors (tf32), and transforms lose
 * digits that a strict sum keeps. */
static bool is_allowed(const struct wf_cudnn *dnn, const struct wf_cudnn_problem *p,
                       cudnnBackendDescriptor_t engine)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (dnn->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                      CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                      &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    const bool strict = p->dtype == WF_F32 && !p->tf32;
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        const cudnnBackendNumericalNote_t note = notes[i];
        if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && p->deterministic)
            return false;
        if (note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
            return false;
        if (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS && !p->tf32)
            return false;
        if (strict && (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
                       note == CUDNN_NUMERICAL_NOTE_FFT || note == CUDNN_NUMERICAL_NOTE_WINOGRAD ||
                       note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 ||
                       note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 ||
                       note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13))
            return false;
    }
    return true;
}

/* Engines that are compiled when a plan is made take half a second each: only the first suggestion for
 * a large problem may be one. A sum that is nowhere has no others. */
static bool is_compiled(const struct wf_cudnn *dnn, cudnnBackendDescriptor_t engine)
{
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (dnn->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                      CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
                                      &count, notes) != CUDNN_STATUS_SUCCESS)
        return true;
    for (int64_t i = 0; i < count && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return true;
    return false;
}

/* The knobs of a configuration. */
static bool read_knobs(const struct wf_cudnn *dnn, cudnnBackendDescriptor_t config,
                       struct wf_cudnn_choice *choice)
{
    cudnnBackendDescriptor_t knobs[WF_CUDNN_KNOBS] = { NULL };
    int64_t count = 0;
    bool ok = true;
    for (int i = 0; ok && i < WF_CUDNN_KNOBS; i++)
        ok = dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]) ==
             CUDNN_STATUS_SUCCESS;
    ok = ok && dnn->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, WF_CUDNN_KNOBS, &count,
                                             knobs) == CUDNN_STATUS_SUCCESS;
    ok = ok && count <= WF_CUDNN_KNOBS;
    choice->n_knobs = ok ? (int)count : 0;
    for (int i = 0; ok && i < choice->n_knobs; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)0;
        int64_t value = 0, one = 0;
        ok = dnn->cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                           CUDNN_TYPE_KNOB_TYPE, 1, &one,
                                           &type) == CUDNN_STATUS_SUCCESS &&
             dnn->cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                           CUDNN_TYPE_INT64, 1, &one,
                                           &value) == CUDNN_STATUS_SUCCESS;
        choice->knobs[i].type = (int64_t)type;
        choice->knobs[i].value = value;
    }
    for (int i = 0; i < WF_CUDNN_KNOBS; i++)
        if (knobs[i])
            (void)dnn->cudnnBackendDestroyDescriptor(knobs[i]);
    return ok;
}

/* A configuration as a choice; false where it may not be used. */
static bool read_config(const struct wf_cudnn *dnn, const struct wf_cudnn_problem *p,
                        cudnnBackendDescriptor_t config, bool compiled,
                        struct wf_cudnn_choice *choice)
{
    cudnnBackendDescriptor_t engine = NULL;
    int64_t one = 0;
    memset(choice, 0, sizeof *choice);
    if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    const bool ok =
        dnn->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one,
                                      &engine) == CUDNN_STATUS_SUCCESS &&
        dnn->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                      &one, &choice->engine) == CUDNN_STATUS_SUCCESS &&
        is_allowed(dnn, p, engine) && (compiled || !is_compiled(dnn, engine)) &&
        read_knobs(dnn, config, choice);
    (void)dnn->cudnnBackendDestroyDescriptor(engine);
    return ok;
}

static bool is_listed(const struct wf_cudnn_choice list[], int n,
                      const struct wf_cudnn_choice *choice)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&list[i], choice, sizeof *choice) == 0)
            return true;
    return false;
}

/* Adds what one kind of heuristics suggests. */
static int suggest(struct wf_cudnn_graph *g, cudnnBackendHeurMode_t mode,
                   struct wf_cudnn_choice list[], int n, int most)
{
    const struct wf_cudnn *const dnn = g->bag.dnn;
    cudnnBackendDescriptor_t heuristics = NULL, configs[WF_CUDNN_CANDIDATES] = { NULL };
    int64_t found = 0;
    int made = 0;
    if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics) !=
        CUDNN_STATUS_SUCCESS)
        return n;
    bool ok = set_descriptor(dnn, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->ops) &&
              set(dnn, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) &&
              finalize(dnn, heuristics);
    for (; ok && made < WF_CUDNN_CANDIDATES; made++)
        if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[made]) !=
            CUDNN_STATUS_SUCCESS)
            break;
    ok = ok && dnn->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &found,
                                             configs) == CUDNN_STATUS_SUCCESS;
    for (int i = 0; ok && i < made && i < found && n < most; i++)
        if (read_config(dnn, &g->problem, configs[i],
                        g->problem.bias || (g->problem.large && i == 0), &list[n]) &&
            !is_listed(list, n, &list[n]))
            n++;
    for (int i = 0; i < made; i++)
        (void)dnn->cudnnBackendDestroyDescriptor(configs[i]);
    (void)dnn->cudnnBackendDestroyDescriptor(heuristics);
    return n;
}

int wf_cudnn_candidates(struct wf_cudnn_graph *g, struct wf_cudnn_choice list[], int most)
{
    int n = suggest(g, CUDNN_HEUR_MODE_A, list, 0, most);
    if (g->problem.widely)
        n = suggest(g, CUDNN_HEUR_MODE_B, list, n, most);
    return n > 0 ? n : suggest(g, CUDNN_HEUR_MODE_FALLBACK, list, 0, most);
}

/* --- plans --- */

static cudnnBackendDescriptor_t make_config(struct wf_cudnn_plan *p,
                                            const struct wf_cudnn_choice *choice)
{
    const struct wf_cudnn *const dnn = p->bag.dnn;
    cudnnBackendDescriptor_t engine = make(&p->bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine || !set_descriptor(dnn, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, p->graph->ops) ||
        !set_int(dnn, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, choice->engine) ||
        !finalize(dnn, engine))
        return NULL;
    p->compiled = is_compiled(dnn, engine);
    for (int i = 0; i < choice->n_knobs; i++, p->n_knobs++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)choice->knobs[i].type;
        if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &p->knobs[i]) !=
            CUDNN_STATUS_SUCCESS)
            return NULL;
        if (!set(dnn, p->knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                 &type) ||
            !set_int(dnn, p->knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, choice->knobs[i].value) ||
            !finalize(dnn, p->knobs[i])) {
            p->n_knobs++; /* it is made and has to go */
            return NULL;
        }
    }
    cudnnBackendDescriptor_t config = make(&p->bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const bool ok = config && set_descriptor(dnn, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine) &&
                    (p->n_knobs == 0 || set(dnn, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, p->n_knobs, p->knobs)) &&
                    finalize(dnn, config);
    return ok ? config : NULL;
}

static bool build_plan(struct wf_cudnn_plan *p, const struct wf_cudnn_choice *choice)
{
    const struct wf_cudnn *const dnn = p->bag.dnn;
    cudnnBackendDescriptor_t config = make_config(p, choice);
    if (!config)
        return false;
    p->plan = make(&p->bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    return p->plan &&
           set(dnn, p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
               &p->graph->cuda->cudnn) &&
           set_descriptor(dnn, p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config) &&
           finalize(dnn, p->plan);
}

static bool read_plan(struct wf_cudnn_plan *p, const char *text, size_t size)
{
    const struct wf_cudnn *const dnn = p->bag.dnn;
    p->compiled = true;
    p->plan = make(&p->bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    return p->plan &&
           set(dnn, p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
               (int64_t)size, text) &&
           set(dnn, p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
               &p->graph->cuda->cudnn) &&
           finalize(dnn, p->plan);
}

static struct wf_cudnn_plan *plan_of(struct wf_cudnn_graph *graph)
{
    struct wf_cudnn_plan *const p = wf_take_zeroed(1, sizeof *p);
    p->graph = graph;
    graph->users++;
    p->bag.dnn = graph->bag.dnn;
    return p;
}

/* The plan if it was made and says what it needs, otherwise it is freed. */
static struct wf_cudnn_plan *settled(struct wf_cudnn_plan *p, bool made)
{
    const struct wf_cudnn *const dnn = p->bag.dnn;
    int64_t one = 0, bytes = 0;
    if (made &&
        dnn->cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                      CUDNN_TYPE_INT64, 1, &one, &bytes) == CUDNN_STATUS_SUCCESS) {
        p->workspace = bytes > 0 ? (size_t)bytes : 0;
        return p;
    }
    wf_cudnn_plan_free(p);
    return NULL;
}

struct wf_cudnn_plan *wf_cudnn_plan_new(struct wf_cudnn_graph *graph,
                                        const struct wf_cudnn_choice *choice)
{
    struct wf_cudnn_plan *const p = plan_of(graph);
    return settled(p, build_plan(p, choice));
}

struct wf_cudnn_plan *wf_cudnn_plan_parse(struct wf_cudnn_graph *graph, const char *text,
                                          size_t size)
{
    struct wf_cudnn_plan *const p = plan_of(graph);
    return settled(p, read_plan(p, text, size));
}

bool wf_cudnn_plan_is_compiled(const struct wf_cudnn_plan *plan)
{
    return plan->compiled;
}

char *wf_cudnn_plan_print(const struct wf_cudnn_plan *plan, size_t *size)
{
    const struct wf_cudnn *const dnn = plan->bag.dnn;
    int64_t room = 0, count = 0;
    if (dnn->cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                      CUDNN_TYPE_CHAR, 0, &room, NULL) != CUDNN_STATUS_SUCCESS ||
        room <= 0)
        return NULL;
    char *const text = wf_take((size_t)room + 1);
    if (dnn->cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                      CUDNN_TYPE_CHAR, room, &count,
                                      text) == CUDNN_STATUS_SUCCESS) {
        *size = (size_t)count;
        return text;
    }
    free(text);
    return NULL;
}

void wf_cudnn_plan_free(struct wf_cudnn_plan *p)
{
    if (!p)
        return;
    const struct wf_cudnn *const dnn = p->bag.dnn;
    if (p->pack)
        (void)dnn->cudnnBackendDestroyDescriptor(p->pack);
    empty(&p->bag);
    for (int i = 0; i < p->n_knobs; i++)
        (void)dnn->cudnnBackendDestroyDescriptor(p->knobs[i]);
    wf_cudnn_graph_free(p->graph);
    free(p);
}

size_t wf_cudnn_plan_workspace(const struct wf_cudnn_plan *plan)
{
    return plan->workspace;
}

/* The pointers of a run, in a descriptor of their own. */
static bool point(struct wf_cudnn_plan *p, const struct wf_cudnn_pointers *at, void *workspace)
{
    const struct wf_cudnn *const dnn = p->bag.dnn;
    if (p->pack && memcmp(&p->pointers, at, sizeof *at) == 0 && p->pack_workspace == workspace)
        return true;
    if (p->pack)
        (void)dnn->cudnnBackendDestroyDescriptor(p->pack);
    p->pack = NULL;
    if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &p->pack) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    const int64_t ids[] = { UID_IMAGE, UID_WEIGHTS, UID_RESULT, UID_BIAS };
    const void *const data[] = { at->image, at->weights, at->result, at->bias };
    const int64_t count = p->graph->problem.bias ? 4 : 3;
    p->pointers = *at;
    p->pack_workspace = workspace;
    if (set_ints(dnn, p->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, count, ids) &&
        set(dnn, p->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
            data) &&
        set(dnn, p->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace) &&
        finalize(dnn, p->pack))
        return true;
    (void)dnn->cudnnBackendDestroyDescriptor(p->pack);
    p->pack = NULL;
    return false;
}

bool wf_cudnn_plan_run(struct wf_cudnn_plan *p, const struct wf_cudnn_pointers *pointers,
                       void *workspace)
{
    return point(p, pointers, workspace) &&
           p->bag.dnn->cudnnBackendExecute(p->graph->cuda->cudnn, p->plan, p->pack) ==
               CUDNN_STATUS_SUCCESS;
}
