/*
 * Random convolutions as the CPU runs them, against the operators' reference kernels.
 *
 *     primitives [SEED [COUNT [PRECISION [FAULT]]]]
 *
 * COUNT cases (1000) per precision (f32, bf16, f16 or all) are drawn from SEED (1): one to three
 * dimensions, widths from 1 to 2048, small maps of many samples, odd channels, groups, unequal padding, strides, dilations, every
 * pass, whole images and windows as a cut gives them. Each is prepared and run as a plan would do it
 * and compared element by element. Primitives that the guard found wrong are counted by name; a result
 * that is wrong all the same fails the campaign and prints its case. With FAULT every primitive of
 * oneDNN whose name holds that text gets one wrong element in each result, and the campaign fails
 * unless the guard finds some of them. With FAULT "none" there is no guard: what is wrong then is what
 * it is for.
 *
 * The operands are random reals, not the guard's integers, so this is a second opinion. The tolerance:
 * one rounding of the result, and an f32 sum of n products of at most one, each with a rounding of
 * 2^-24, which add up like a random walk over a sum that grows like one.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "device/device.h"
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/spatial.h"
#ifdef WF_HAVE_DNNL
#include "device/cpu/dnnl.h"
#endif

enum { NAMES = 32, PASSES = 3, PRODUCTS = 3'000'000, ELEMENTS = 1'000'000 };

enum pass { CONV, CONVT, WGRAD };
static const char *const pass_names[PASSES] = { "conv", "convt", "conv_wgrad" };

/* --- drawing --- */

struct source {
    struct wf_random random;
    uint64_t at;
};

static int64_t below(struct source *s, int64_t n)
{
    return (int64_t)wf_random_below(s->random, s->at++, (uint32_t)n);
}

/* 1 .. most, each power of two as likely as another. */
static int64_t size_up_to(struct source *s, int64_t most)
{
    const double u = (double)wf_random_uniform(s->random, s->at++);
    const int64_t n = (int64_t)exp2(u * log2((double)most + 1));
    return n < 1 ? 1 : n > most ? most : n;
}

static int64_t draw_channels(struct source *s)
{
    static const int64_t blocks[] = { 8, 16, 32, 48, 64, 96, 128, 192 };
    const int64_t block = blocks[below(s, 8)];
    switch (below(s, 4)) {
    case 0:
        return 1 + below(s, 9);
    case 1:
        return block;
    case 2:
        return block + 1 - 2 * below(s, 2);
    default:
        return 1 + below(s, 100);
    }
}

struct problem {
    enum pass pass;
    enum wf_dtype dtype;
    bool bias, cut;
    int threads;
    struct wf_shape image; /* under the windows */
    int64_t out, kernel[3];
    struct wf_conv_attrs attrs;
};

static void draw_axis(struct source *s, struct problem *p, int axis)
{
    static const int64_t kernels[] = { 1, 1, 2, 3, 3, 3, 4, 5, 7 };
    static const int64_t most[] = { 12, 64, 2048 };
    const int64_t k = kernels[below(s, 9)];
    p->kernel[axis] = k;
    p->attrs.stride[axis] = below(s, 3) ? 1 : 1 + below(s, 3);
    p->attrs.dilation[axis] = below(s, 4) ? 1 : 1 + below(s, 3);
    p->attrs.pad_lo[axis] = below(s, 2) ? k / 2 : below(s, k + 1);
    p->attrs.pad_hi[axis] = below(s, 2) ? k / 2 : below(s, k + 1);
    p->image.at[WF_D + axis] = size_up_to(s, most[axis]);
}

/* Few positions, many samples and channels: some kernels are for these alone. */
static void make_small_map(struct source *s, struct problem *p)
{
    for (int i = 0; i < 3; i++)
        p->image.at[WF_D + i] = wf_min(p->image.at[WF_D + i], 1 + below(s, 5));
    p->image.at[WF_N] = 16 + below(s, 8);
    p->image.at[WF_C] = 16 + below(s, 20);
    p->out = 16 + below(s, 20);
}

static struct problem draw_once(struct source *s, enum wf_dtype dtype)
{
    struct problem p = { .pass = (enum pass)below(s, PASSES), .dtype = dtype };
    const int first = 2 - (int)(below(s, 8) ? below(s, 2) : 2); /* mostly 1D and 2D */
    const bool point = below(s, 4) == 0;
    for (int i = 0; i < 3; i++) {
        p.image.at[WF_D + i] = p.kernel[i] = p.attrs.stride[i] = p.attrs.dilation[i] = 1;
        if (i >= first)
            draw_axis(s, &p, i);
        if (point) {
            p.kernel[i] = p.attrs.dilation[i] = 1;
            p.attrs.pad_lo[i] = p.attrs.pad_hi[i] = 0;
        }
    }
    p.image.at[WF_N] = 1 + below(s, 3);
    p.image.at[WF_C] = draw_channels(s);
    p.out = draw_channels(s);
    p.attrs.groups = 1;
    if (below(s, 8) == 0) {
        make_small_map(s, &p);
    } else if (below(s, 6) == 0) {
        const int64_t groups = 1 + below(s, 8), in = 1 + below(s, 16), out = 1 + below(s, 16);
        const bool depthwise = below(s, 2);
        p.attrs.groups = depthwise ? p.image.at[WF_C] : groups;
        p.image.at[WF_C] = depthwise ? p.image.at[WF_C] : groups * in;
        p.out = depthwise ? p.image.at[WF_C] : groups * out;
    }
    p.bias = below(s, 2);
    p.cut = below(s, 3) == 0;
    p.threads = 1 + (int)below(s, 2);
    return p;
}

static struct wf_shape result_of(const struct problem *p)
{
    struct wf_shape y = WF_SHAPE(p->image.at[WF_N], 0, 0, 0, p->out);
    for (int i = 0; i < 3; i++) {
        const struct wf_window w = wf_conv_windows(&p->attrs, p->kernel).along[i];
        const int64_t span = p->attrs.dilation[i] * (p->kernel[i] - 1) + 1;
        const int64_t room = p->image.at[WF_D + i] + w.pad_lo + w.pad_hi;
        y.at[WF_D + i] = room < span ? 0 : wf_window_count(&w, p->image.at[WF_D + i]);
    }
    return y;
}

static int64_t count_of(const struct wf_shape *s)
{
    return wf_region_count(wf_shape_region(*s));
}

static int64_t taps_of(const struct problem *p)
{
    return p->kernel[0] * p->kernel[1] * p->kernel[2];
}

static bool is_handy(const struct problem *p)
{
    const struct wf_shape y = result_of(p);
    const int64_t in = p->image.at[WF_C] / p->attrs.groups;
    return count_of(&y) > 0 && count_of(&y) * taps_of(p) * in <= PRODUCTS &&
           count_of(&y) + count_of(&p->image) <= ELEMENTS;
}

static struct problem draw(struct source *s, enum wf_dtype dtype)
{
    struct problem p = draw_once(s, dtype);
    while (!is_handy(&p))
        p = draw_once(s, dtype);
    return p;
}

/* --- one case --- */

struct rig {
    struct wf_graph *g;
    const struct wf_node *node;
    struct wf_region work;
    struct wf_view in[3], got, want;
    char implementation[WF_IMPLEMENTATION];
};

static struct wf_value *value(struct wf_graph *g, const char *name, enum wf_dtype dtype,
                              struct wf_shape shape, bool replicated)
{
    struct wf_value *const v = wf_input(g, name, dtype, shape);
    WF_BUG_ON(!v, "'%s'", name);
    v->replicated = replicated;
    return v;
}

static void add_node(struct rig *r, const struct problem *p)
{
    static const struct wf_op *const ops[PASSES] = { &wf_op_conv, &wf_op_convt, &wf_op_conv_wgrad };
    struct wf_conv_attrs a = p->attrs;
    for (int i = 0; i < 3; i++)
        a.extent[i] = p->pass == CONV ? 0 : p->pass == CONVT ? p->image.at[WF_D + i] : p->kernel[i];
    const struct wf_shape ws = WF_SHAPE(p->out, p->kernel[0], p->kernel[1], p->kernel[2],
                                        p->image.at[WF_C] / p->attrs.groups);
    const struct wf_shape y = result_of(p);
    struct wf_value *in[3] = { value(r->g, "x", p->dtype, p->pass == CONVT ? y : p->image, false) };
    in[1] = p->pass == WGRAD ? value(r->g, "dy", p->dtype, y, false)
                             : value(r->g, "w", p->dtype, ws, true);
    if (p->pass != WGRAD && p->bias)
        in[2] = value(r->g, "b", WF_F32,
                      WF_SHAPE(1, 1, 1, 1, p->pass == CONV ? p->out : p->image.at[WF_C]), true);
    r->node = wf_node_add(r->g, ops[p->pass], "c", &a, p->pass == WGRAD ? 2 : 3, in);
    struct wf_err err = { 0 };
    WF_BUG_ON(!wf_graph_ok(r->g, &err) || !r->node, "%s", err.text);
}

static void *memory_for(const struct wf_view *v, int fill)
{
    const size_t bytes = (wf_view_bytes(v) + 63) / 64 * 64;
    void *const memory = aligned_alloc(64, bytes ? bytes : 64);
    WF_BUG_ON(!memory, "out of memory");
    memset(memory, fill, bytes);
    return memory;
}

static void fill_views(struct rig *r, struct source *s)
{
    for (int i = 0; i < r->node->n_in; i++) {
        const struct wf_value *const v = r->node->in[i];
        if (!v)
            continue;
        const struct wf_region whole = wf_shape_region(v->shape);
        const struct wf_region box =
            v->replicated ? whole : wf_region_intersect(wf_op_reads(r->node, i, r->work), whole);
        r->in[i] = wf_view_dense(NULL, v->dtype, box);
        r->in[i].data = memory_for(&r->in[i], 0);
        for (int64_t k = 0; k < wf_region_count(box); k++)
            wf_dtype_put(v->dtype, r->in[i].data, k,
                         2 * (double)wf_random_uniform(s->random, s->at++) - 1);
    }
    const struct wf_value *const y = r->node->out[0];
    const bool sums = wf_op_sums_over(r->node) != 0;
    r->got = r->want = wf_view_dense(NULL, y->dtype, sums ? wf_shape_region(y->shape) : r->work);
    r->got.data = memory_for(&r->got, 0xff);
    r->want.data = memory_for(&r->want, 0);
}

static void rig_init(struct rig *r, const struct problem *p, struct source *s)
{
    *r = (struct rig){ .g = wf_graph_new(&(struct wf_graph_options){ .training = true }) };
    add_node(r, p);
    r->work = wf_shape_region(wf_op_domain(r->node)->shape);
    for (int a = WF_D; p->cut && a <= WF_W; a++) {
        const int64_t lo = below(s, r->work.hi[a]), n = 1 + below(s, r->work.hi[a] - lo);
        r->work.lo[a] = lo;
        r->work.hi[a] = lo + n;
    }
    fill_views(r, s);
}

static void rig_release(struct rig *r)
{
    for (int i = 0; i < 3; i++)
        free(r->in[i].data);
    free(r->got.data);
    free(r->want.data);
    wf_graph_free(r->g);
}

static bool prepare(const struct wf_kernel *kernel, struct wf_prepare *p, const char *fault,
                    struct wf_err *err)
{
#ifdef WF_HAVE_DNNL
    extern const struct wf_kernel
        wf_cpu_kernels_dnnl_conv[]; /* no header names it: the build does */
    if (fault && kernel->prepare == wf_cpu_kernels_dnnl_conv->prepare)
        return wf_dnnl_prepare(
            p,
            &(struct wf_dnnl_options){ .traps = wf_dnnl_has_traps(),
                                       .spoil = strcmp(fault, "none") == 0 ? NULL : fault,
                                       .believe = strcmp(fault, "none") == 0 },
            err);
#endif
    (void)fault;
    return !kernel->prepare || kernel->prepare(p, err);
}

/* As a plan and a step would. */
static void run_fast(struct rig *r, int threads, const char *fault)
{
    const struct wf_kernel *const kernel = wf_device_cpu.find(r->node);
    struct wf_prepare p = {
        .node = r->node, .work = r->work, .in = r->in, .out = &r->got, .threads = threads
    };
    struct wf_view in[3];
    struct wf_err err = { 0 };
    (void)snprintf(p.implementation, sizeof p.implementation, "%s",
                   wf_kernel_is_reference(kernel) ? "reference" : "own");
    memcpy(in, r->in, sizeof in);
    for (int i = 0; i < 3; i++)
        in[i].data = NULL;
    p.in = in;
    WF_BUG_ON(!prepare(kernel, &p, fault, &err), "%s", err.text);
    void *const scratch = aligned_alloc(64, p.scratch_bytes / 64 * 64 + 64);
    WF_BUG_ON(!scratch, "out of memory");
    memset(scratch, 0xff, p.scratch_bytes);
    kernel->run(&(struct wf_call){ .node = r->node,
                                   .work = r->work,
                                   .in = r->in,
                                   .out = &r->got,
                                   .scratch = scratch,
                                   .prepared = p.prepared });
    if (kernel->release)
        kernel->release(p.prepared);
    free(scratch);
    memcpy(r->implementation, p.implementation, sizeof r->implementation);
}

/* How far the worst element is off, as a multiple of what is allowed. */
static double error_of(const struct rig *r, const struct problem *p)
{
    const bool sums = p->pass == WGRAD;
    const struct wf_shape y = result_of(p);
    const int64_t read = p->pass == CONV ? p->image.at[WF_C] : p->out;
    const double terms = sums ? (double)count_of(&y) / (double)p->out
                              : (double)(taps_of(p) * read) / (double)p->attrs.groups;
    const double rounding = r->got.dtype == WF_BF16 ? 0x1p-7 : 0x1p-22;
    const double adding = 0x1p-24 * (terms + 8) * 4;
    const double twice = p->pass == CONVT && p->bias ? 1 : 0; /* the bias is added behind */
    double worst = 0;
    for (int64_t i = 0; i < wf_region_count(r->got.box); i++) {
        const double want = wf_dtype_get(r->want.dtype, r->want.data, i);
        const double off = fabs(wf_dtype_get(r->got.dtype, r->got.data, i) - want);
        const double allowed = rounding * (fabs(want) + twice) + adding;
        if (!isnan(worst) && !(off <= allowed * worst))
            worst = off / allowed; /* NaN is kept */
    }
    return worst;
}

static void print_problem(const struct rig *r, const struct problem *p)
{
    const struct wf_conv_attrs *const a = &p->attrs;
    (void)printf("%s %s%s threads %d groups %" PRId64 " out %" PRId64 " image", pass_names[p->pass],
                 wf_dtype_name(p->dtype), p->bias ? " bias" : "", p->threads, a->groups, p->out);
    for (int i = 0; i < WF_AXES; i++)
        (void)printf(" %" PRId64, p->image.at[i]);
    (void)printf(" work");
    for (int i = 0; i < WF_AXES; i++)
        (void)printf(" %" PRId64 ":%" PRId64, r->work.lo[i], r->work.hi[i]);
    for (int i = 0; i < 3; i++)
        (void)printf(" | kernel %" PRId64 " stride %" PRId64 " dilation %" PRId64 " pad %" PRId64
                     ",%" PRId64,
                     p->kernel[i], a->stride[i], a->dilation[i], a->pad_lo[i], a->pad_hi[i]);
    (void)printf(" by '%s'\n", r->implementation);
}

/* --- the campaign --- */

struct tally {
    uint64_t seed;
    const char *fault;
    bool verbose;
    int64_t cases, excluded, wrong, references;
    struct {
        char name[WF_IMPLEMENTATION];
        int64_t count;
    } names[NAMES];
    int n_names;
};

/* What the guard passed over, by the library's name and the pass. */
static void note_excluded(struct tally *t, const struct problem *p, const struct rig *r)
{
    const char *const open = strchr(r->implementation, '('), *const end = strstr(r->implementation,
                                                                                 " is wrong");
    if (!open || !end)
        return;
    t->excluded++;
    if (t->verbose)
        print_problem(r, p);
    char name[WF_IMPLEMENTATION + 16];
    (void)snprintf(name, sizeof name, "%s %s %.*s", pass_names[p->pass], wf_dtype_name(p->dtype),
                   (int)(end - open - 1), open + 1);
    int i = 0;
    while (i < t->n_names && strcmp(t->names[i].name, name) != 0)
        i++;
    if (i == NAMES)
        return;
    if (i == t->n_names)
        (void)snprintf(t->names[t->n_names++].name, sizeof t->names[i].name, "%.100s", name);
    t->names[i].count++;
}

static void run_case(struct tally *t, enum wf_dtype dtype, int64_t index)
{
    struct source s = { .random = wf_random(t->seed, (uint64_t)index * 8 + (uint64_t)dtype) };
    const struct problem p = draw(&s, dtype);
    struct rig r;
    rig_init(&r, &p, &s);
    run_fast(&r, p.threads, t->fault);
    r.node->op->reference(
        &(struct wf_call){ .node = r.node, .work = r.work, .in = r.in, .out = &r.want });
    const double error = error_of(&r, &p);
    t->cases++;
    t->references += strncmp(r.implementation, "ref", 3) == 0;
    note_excluded(t, &p, &r);
    if (!(error <= 1)) {
        t->wrong++;
        (void)printf("wrong: case %" PRId64 " of seed %" PRIu64 ": %g times what is allowed: ",
                     index, t->seed, error);
        print_problem(&r, &p);
    }
    rig_release(&r);
}

static void print_names(const struct tally *t)
{
    for (int i = 0; i < t->n_names; i++)
        (void)printf("excluded: %6" PRId64 " x %s\n", t->names[i].count, t->names[i].name);
}

int main(int argc, char **argv)
{
    static const enum wf_dtype dtypes[] = { WF_F32, WF_BF16, WF_F16 };
    struct tally t = { .seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
                       .fault = argc > 4 && argv[4][0] ? argv[4] : NULL,
                       .verbose = getenv("VERBOSE") != NULL };
    const int64_t count = argc > 2 ? strtoll(argv[2], NULL, 10) : 1000;
    const char *const precision = argc > 3 ? argv[3] : "all";
    const time_t begin = time(NULL);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        const bool requested = strcmp(precision, wf_dtype_name(dtypes[d])) == 0;
        /* Unless asked for, only a few in f16: on a CPU the reference itself runs it. */
        const int64_t n = requested ? count : dtypes[d] == WF_F16 ? count / 100 : count;
        for (int64_t i = 0; (requested || strcmp(precision, "all") == 0) && i < n; i++) {
            run_case(&t, dtypes[d], i);
            if (t.cases % 1000 == 0)
                (void)fprintf(stderr, "%" PRId64 " cases, %ld s\n", t.cases,
                              (long)(time(NULL) - begin));
        }
    }
    print_names(&t);
    char about[128] = "no oneDNN";
#ifdef WF_HAVE_DNNL
    wf_dnnl_about(about);
    about[strcspn(about, ",")] = '\0';
#endif
    (void)printf("primitives: %" PRId64 " cases with %s, %" PRId64
                 " where a primitive was wrong and not "
                 "used, %" PRId64 " by the reference, %" PRId64 " wrong results\n",
                 t.cases, about, t.excluded, t.references, t.wrong);
    const bool missed = t.fault && strcmp(t.fault, "none") != 0 && t.excluded == 0;
    if (missed)
        (void)fprintf(stderr, "primitives: the planted fault '%s' was not found\n", t.fault);
    return t.wrong > 0 || missed || t.cases == 0;
}
