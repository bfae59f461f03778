/*
 * oneDNN, 2.x and 3.x, as one convolution interface. 3.x has no operation descriptors and makes
 * memory descriptors opaque; all of that ends here.
 *
 * What is asked for: images channels-last by name (`any` never picks the fast f32 kernels), weights
 * in whatever order the primitive likes, scratch given by the caller. 1D runs as 2D with one row.
 */
#include "device/cpu/dnnl.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <oneapi/dnnl/dnnl.h>

struct wf_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    bool sizes_only, has_traps;
    const char *spoil; /* wf_dnnl_spoil() */
    int64_t swap;
};

/* A memory descriptor by value (2.x) or by handle (3.x). */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t md_own;
typedef const_dnnl_memory_desc_t md_ref;
static md_ref md_of(const md_own *md)
{
    return *md;
}
static void md_drop(md_own *md)
{
    if (*md)
        dnnl_memory_desc_destroy(*md);
    *md = NULL;
}
static dnnl_status_t md_make(md_own *md, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                             dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(md, n, dims, type, tag);
}
#else
typedef dnnl_memory_desc_t md_own;
typedef const dnnl_memory_desc_t *md_ref;
static md_ref md_of(const md_own *md)
{
    return md->ndims ? md : NULL;
}
static void md_drop(md_own *)
{
}
static dnnl_status_t md_make(md_own *md, int n, const dnnl_dims_t dims, dnnl_data_type_t type,
                             dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(md, n, dims, type, tag);
}
#endif

struct descriptors {
    md_own src, weights, dw, bias, dst;
    md_own plain; /* weights as ours lie; f32 for the gradient */
};

struct wf_dnnl_conv {
    struct wf_dnnl *lib;
    enum wf_conv_pass pass;
    bool bias;
    struct descriptors md;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive, reorder; /* reorder NULL: the primitive takes the plain order */
    dnnl_memory_t src, weights, plain, bias_memory, dst, scratchpad, reorder_pad;
    size_t scratch, reorder_scratch, blocked;
    const char *name;
    bool spoilt;
    int64_t channels; /* of the result */
    size_t element;   /* bytes of one of an image */
};

/* --- engine and stream --- */

/* Virtual machines may have AMX and not say how large its tiles are (CPUID leaf 0x1d). oneDNN then takes that for
 * tiles of no size and ends by an illegal instruction. It must be told before it is asked anything. */
static void avoid_unknown_tiles(void)
{
#ifdef __x86_64__
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool has_amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 24);
    const bool knows_tiles = __get_cpuid_count(0x1d, 1, &a, &b, &c, &d) && a != 0;
    const bool is_set = getenv("ONEDNN_MAX_CPU_ISA") || getenv("DNNL_MAX_CPU_ISA");
    if (has_amx && !knows_tiles && !is_set)
        (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
#endif
}

struct wf_dnnl *wf_dnnl_new(bool sizes_only, struct wf_err *err)
{
    struct wf_dnnl *lib = calloc(1, sizeof *lib);
    avoid_unknown_tiles();
    if (lib) {
        lib->sizes_only = sizes_only;
        lib->has_traps = wf_dnnl_has_traps();
    }
    if (lib && dnnl_engine_create(&lib->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&lib->stream, lib->engine, dnnl_stream_default_flags) == dnnl_success &&
        dnnl_primitive_attr_create(&lib->attr) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(lib->attr, dnnl_scratchpad_mode_user) ==
            dnnl_success)
        return lib;
    wf_dnnl_free(lib);
    wf_err_set(err, WF_ERR_FAILED, "oneDNN could not make a CPU engine");
    return NULL;
}

void wf_dnnl_free(struct wf_dnnl *lib)
{
    if (!lib)
        return;
    if (lib->attr)
        dnnl_primitive_attr_destroy(lib->attr);
    if (lib->stream)
        dnnl_stream_destroy(lib->stream);
    if (lib->engine)
        dnnl_engine_destroy(lib->engine);
    free(lib);
}

void wf_dnnl_spoil(struct wf_dnnl *lib, const char *name, int64_t swap)
{
    lib->spoil = name;
    lib->swap = swap;
}

void wf_dnnl_about(char text[WF_DNNL_ABOUT])
{
    const dnnl_version_t *const v = dnnl_version();
    avoid_unknown_tiles();
    (void)snprintf(text, WF_DNNL_ABOUT,
                   "oneDNN %d.%d.%d %.8s, ISA %#x, L2 %ld, check %d:", v->major, v->minor, v->patch,
                   v->hash, (unsigned)dnnl_get_effective_cpu_isa(), sysconf(_SC_LEVEL2_CACHE_SIZE),
                   WF_DNNL_CHECK);
}

bool wf_dnnl_crashes_on_missed_rows(const struct wf_dnnl *lib, enum wf_dtype dtype)
{
    return dtype == WF_BF16 && lib->has_traps;
}

bool wf_dnnl_has_amx(void)
{
    const unsigned amx = dnnl_cpu_isa_avx512_core_amx;
    avoid_unknown_tiles();
    return ((unsigned)dnnl_get_effective_cpu_isa() & amx) == amx;
}

bool wf_dnnl_has_traps(void)
{
    return dnnl_version()->major < 3 && wf_dnnl_has_amx();
}

/* --- descriptors --- */

static bool fits(int64_t v)
{
    return v <= INT_MAX && v >= INT_MIN; /* its kernels count in int */
}

static bool problem_fits(const struct wf_dnnl_problem *p)
{
    bool ok = fits(p->batch) && fits(p->groups) && fits(p->in) && fits(p->out);
    for (int i = 0; i < 3; i++)
        ok = ok && fits(p->src[i]) && fits(p->dst[i]) && fits(p->kernel[i]) && fits(p->stride[i]) &&
             fits(p->dilation[i]) && fits(p->pad_lo[i]) && fits(p->pad_hi[i]);
    return ok;
}

/* The first spatial axis that oneDNN is told of: 0 for 3D, 1 for 2D. */
static int first_axis(const struct wf_dnnl_problem *p)
{
    const bool flat = p->src[0] == 1 && p->dst[0] == 1 && p->kernel[0] == 1;
    return flat ? 1 : 0;
}

static bool describe_image(md_own *md, const struct wf_dnnl_problem *p, int64_t channels,
                           const int64_t extent[3])
{
    const int first = first_axis(p);
    dnnl_dims_t dims = { p->batch, channels };
    for (int i = first; i < 3; i++)
        dims[2 + i - first] = extent[i];
    const dnnl_data_type_t type = p->dtype == WF_BF16 ? dnnl_bf16 : dnnl_f32;
    return md_make(md, 5 - first, dims, type, first ? dnnl_nhwc : dnnl_ndhwc) == dnnl_success;
}

static bool describe_weights(md_own *md, const struct wf_dnnl_problem *p, dnnl_data_type_t type,
                             bool plain)
{
    const int first = first_axis(p);
    const dnnl_format_tag_t own =
        p->groups > 1 ? (first ? dnnl_gohwi : dnnl_godhwi) : (first ? dnnl_ohwi : dnnl_odhwi);
    dnnl_dims_t dims = { 0 };
    int n = 0;
    if (p->groups > 1)
        dims[n++] = p->groups;
    dims[n++] = p->out / p->groups;
    dims[n++] = p->in / p->groups;
    for (int i = first; i < 3; i++)
        dims[n++] = p->kernel[i];
    return md_make(md, n, dims, type, plain ? own : dnnl_format_tag_any) == dnnl_success;
}

static bool describe(struct descriptors *md, const struct wf_dnnl_problem *p)
{
    const dnnl_data_type_t type = p->dtype == WF_BF16 ? dnnl_bf16 : dnnl_f32;
    const bool gradient = p->pass == WF_CONV_WEIGHTS;
    const dnnl_dims_t bias = { p->out };
    return describe_image(&md->src, p, p->in, p->src) &&
           describe_image(&md->dst, p, p->out, p->dst) &&
           describe_weights(&md->weights, p, type, false) &&
           describe_weights(&md->dw, p, dnnl_f32, false) &&
           describe_weights(&md->plain, p, gradient ? dnnl_f32 : type, true) &&
           (!p->bias || md_make(&md->bias, 1, bias, dnnl_f32, dnnl_a) == dnnl_success);
}

/* --- primitives --- */

struct geometry {
    dnnl_dims_t stride, dilation, lo, hi;
};

static struct geometry geometry_of(const struct wf_dnnl_problem *p)
{
    struct geometry g = { 0 };
    const int first = first_axis(p);
    for (int i = first; i < 3; i++) {
        g.stride[i - first] = p->stride[i];
        g.dilation[i - first] = p->dilation[i] - 1;
        g.lo[i - first] = p->pad_lo[i];
        g.hi[i - first] = p->pad_hi[i];
    }
    return g;
}

/*
 * The brgemm kernels of the forward pass take many input channels in blocks whose size depends on
 * the image's width, so that a cut image would differ from a whole one in the last bit (and a ReLU
 * or a maximum makes more of that). Up to this many channels they do not; beyond, the direct kernel
 * is taken, which adds in one order and is about as fast.
 */
enum { BRGEMM_CHANNELS = 128 };

/* Which of the library's implementations of a problem are asked for. */
enum wanted { ANY, DIRECT, BRGEMM };

static const char *name_of(const_dnnl_primitive_desc_t desc)
{
    const char *name = "";
    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) != dnnl_success)
        return "";
    return name;
}

/* The implementations that were met before the one asked for. */
struct met {
    int skip; /* so many wanted ones are still passed over */
    char last[64];
};

/* True for the one asked for. oneDNN 2.6.3 meets an implementation anew for each of its primitives in
 * its cache: the same name in a row counts once. */
static bool is_requested(const_dnnl_primitive_desc_t desc, enum wanted wanted, struct met *met)
{
    const char *const name = name_of(desc);
    const bool brgemm = strncmp(name, "brg", 3) == 0;
    if (strcmp(name, met->last) == 0 || (wanted != ANY && brgemm != (wanted == BRGEMM)))
        return false;
    (void)snprintf(met->last, sizeof met->last, "%s", name);
    return met->skip-- == 0;
}

struct ask {
    const struct wf_dnnl *lib;
    const struct descriptors *md;
    const struct geometry *g;
    enum wf_conv_pass pass;
    dnnl_primitive_desc_t hint; /* the forward descriptor, for the other passes */
};

#if DNNL_VERSION_MAJOR >= 3
static dnnl_primitive_desc_t first_desc(const struct ask *a)
{
    dnnl_primitive_desc_t desc = NULL;
    const struct geometry *const g = a->g;
    const dnnl_engine_t engine = a->lib->engine;
    const dnnl_primitive_attr_t attr = a->lib->attr;
    const md_ref src = md_of(&a->md->src), dst = md_of(&a->md->dst), w = md_of(&a->md->weights);
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    dnnl_status_t status;
    if (a->pass == WF_CONV_FORWARD)
        status = dnnl_convolution_forward_primitive_desc_create(
            &desc, engine, dnnl_forward_training, alg, src, w, md_of(&a->md->bias), dst, g->stride,
            g->dilation, g->lo, g->hi, attr);
    else if (a->pass == WF_CONV_DATA)
        status = dnnl_convolution_backward_data_primitive_desc_create(
            &desc, engine, alg, src, w, dst, g->stride, g->dilation, g->lo, g->hi, a->hint, attr);
    else
        status = dnnl_convolution_backward_weights_primitive_desc_create(
            &desc, engine, alg, src, md_of(&a->md->dw), NULL, dst, g->stride, g->dilation, g->lo,
            g->hi, a->hint, attr);
    return status == dnnl_success ? desc : NULL;
}

/* NULL where there is none. */
static dnnl_primitive_desc_t find_desc(const struct ask *a, enum wanted wanted, struct met *met)
{
    dnnl_primitive_desc_t desc = first_desc(a);
    while (desc) {
        if (is_requested(desc, wanted, met))
            return desc;
        if (dnnl_primitive_desc_next_impl(desc) != dnnl_success)
            break;
    }
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    return NULL;
}
#else
static bool make_operation(const struct ask *a, dnnl_convolution_desc_t *op)
{
    const struct geometry *const g = a->g;
    const md_ref src = md_of(&a->md->src), dst = md_of(&a->md->dst), w = md_of(&a->md->weights);
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    if (a->pass == WF_CONV_FORWARD)
        return dnnl_dilated_convolution_forward_desc_init(
                   op, dnnl_forward_training, alg, src, w, md_of(&a->md->bias), dst, g->stride,
                   g->dilation, g->lo, g->hi) == dnnl_success;
    if (a->pass == WF_CONV_DATA)
        return dnnl_dilated_convolution_backward_data_desc_init(
                   op, alg, src, w, dst, g->stride, g->dilation, g->lo, g->hi) == dnnl_success;
    return dnnl_dilated_convolution_backward_weights_desc_init(op, alg, src, md_of(&a->md->dw),
                                                               NULL, dst, g->stride, g->dilation,
                                                               g->lo, g->hi) == dnnl_success;
}

/* NULL where there is none. */
static dnnl_primitive_desc_t find_desc(const struct ask *a, enum wanted wanted, struct met *met)
{
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_iterator_t it;
    dnnl_primitive_desc_t desc = NULL;
    if (!make_operation(a, &op) ||
        dnnl_primitive_desc_iterator_create(&it, &op, a->lib->attr, a->lib->engine, a->hint) !=
            dnnl_success)
        return NULL;
    do {
        desc = dnnl_primitive_desc_iterator_fetch(it);
        if (desc && is_requested(desc, wanted, met))
            break;
        if (desc)
            dnnl_primitive_desc_destroy(desc);
        desc = NULL;
    } while (dnnl_primitive_desc_iterator_next(it) == dnnl_success);
    dnnl_primitive_desc_iterator_destroy(it);
    return desc;
}
#endif

/* NULL where oneDNN has nothing (more) for it. */
static dnnl_primitive_desc_t desc_of(const struct wf_dnnl *lib, const struct descriptors *md,
                                     const struct wf_dnnl_problem *p)
{
    const struct geometry g = geometry_of(p);
    struct ask ask = { .lib = lib, .md = md, .g = &g };
    struct met met = { .skip = p->skip }, none = { 0 };
    if (p->pass == WF_CONV_FORWARD) {
        const bool direct = p->in / p->groups > BRGEMM_CHANNELS;
        dnnl_primitive_desc_t desc = find_desc(&ask, direct ? DIRECT : ANY, &met);
        return desc || !direct ? desc : find_desc(&ask, BRGEMM, &met);
    }
    dnnl_primitive_desc_t forward = find_desc(&ask, ANY, &none);
    if (!forward)
        return NULL;
    ask.pass = p->pass;
    ask.hint = forward;
    dnnl_primitive_desc_t desc = find_desc(&ask, ANY, &met);
    dnnl_primitive_desc_destroy(forward);
    return desc;
}

static bool make_memory(dnnl_memory_t *memory, const struct wf_dnnl *lib, md_ref md)
{
    return dnnl_memory_create(memory, md, lib->engine, DNNL_MEMORY_NONE) == dnnl_success;
}

/* The weights' own order, its memory objects and the way to or from it. */
static bool make_weights(struct wf_dnnl_conv *c)
{
    const bool gradient = c->pass == WF_CONV_WEIGHTS;
    const md_ref plain = md_of(&c->md.plain);
    const md_ref own = dnnl_primitive_desc_query_md(
        c->desc, gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    if (!make_memory(&c->weights, c->lib, own))
        return false;
    if (dnnl_memory_desc_equal(own, plain))
        return true;
    c->blocked = dnnl_memory_desc_get_size(own);
    const dnnl_engine_t engine = c->lib->engine;
    dnnl_primitive_desc_t desc = NULL;
    const dnnl_status_t status =
        gradient
            ? dnnl_reorder_primitive_desc_create(&desc, own, engine, plain, engine, c->lib->attr)
            : dnnl_reorder_primitive_desc_create(&desc, plain, engine, own, engine, c->lib->attr);
    if (status != dnnl_success)
        return false;
    const md_ref pad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    c->reorder_scratch = pad ? dnnl_memory_desc_get_size(pad) : 0;
    const bool ok =
        make_memory(&c->plain, c->lib, plain) &&
        (!c->reorder_scratch || make_memory(&c->reorder_pad, c->lib, pad)) &&
        (c->lib->sizes_only || dnnl_primitive_create(&c->reorder, desc) == dnnl_success);
    dnnl_primitive_desc_destroy(desc);
    return ok;
}

struct wf_dnnl_conv *wf_dnnl_conv_new(struct wf_dnnl *lib, const struct wf_dnnl_problem *p)
{
    struct wf_dnnl_conv *c = problem_fits(p) ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return NULL;
    c->lib = lib;
    c->pass = p->pass;
    c->bias = p->bias;
    c->element = wf_dtype_size(p->dtype);
    c->channels = p->pass == WF_CONV_DATA ? p->in : p->out;
    if (!describe(&c->md, p) || !(c->desc = desc_of(lib, &c->md, p)))
        goto none;
    if (dnnl_primitive_desc_query(c->desc, dnnl_query_impl_info_str, 0, &c->name) != dnnl_success ||
        (!lib->sizes_only && dnnl_primitive_create(&c->primitive, c->desc) != dnnl_success) ||
        !make_weights(c) || !make_memory(&c->src, lib, md_of(&c->md.src)) ||
        !make_memory(&c->dst, lib, md_of(&c->md.dst)))
        goto none;
    if (c->bias && !make_memory(&c->bias_memory, lib, md_of(&c->md.bias)))
        goto none;
    const md_ref pad = dnnl_primitive_desc_query_md(c->desc, dnnl_query_scratchpad_md, 0);
    c->scratch = pad ? dnnl_memory_desc_get_size(pad) : 0;
    if (c->scratch && !make_memory(&c->scratchpad, lib, pad))
        goto none;
    c->spoilt = lib->spoil && strstr(c->name, lib->spoil);
    return c;
none:
    wf_dnnl_conv_free(c);
    return NULL;
}

void wf_dnnl_conv_free(struct wf_dnnl_conv *c)
{
    if (!c)
        return;
    enum { MEMORIES = 7, DESCRIPTORS = 6 };
    const dnnl_memory_t memories[MEMORIES] = { c->src, c->weights,    c->plain,      c->bias_memory,
                                               c->dst, c->scratchpad, c->reorder_pad };
    for (int i = 0; i < MEMORIES; i++)
        if (memories[i])
            dnnl_memory_destroy(memories[i]);
    if (c->reorder)
        dnnl_primitive_destroy(c->reorder);
    if (c->primitive)
        dnnl_primitive_destroy(c->primitive);
    if (c->desc)
        dnnl_primitive_desc_destroy(c->desc);
    md_own *const mds[DESCRIPTORS] = { &c->md.src,  &c->md.weights, &c->md.dw,
                                       &c->md.bias, &c->md.dst,     &c->md.plain };
    for (int i = 0; i < DESCRIPTORS; i++)
        md_drop(mds[i]);
    free(c);
}

const char *wf_dnnl_conv_name(const struct wf_dnnl_conv *c)
{
    return c->name;
}

size_t wf_dnnl_conv_scratch(const struct wf_dnnl_conv *c)
{
    return c->scratch > c->reorder_scratch ? c->scratch : c->reorder_scratch;
}

size_t wf_dnnl_conv_blocked(const struct wf_dnnl_conv *c)
{
    return c->blocked;
}

/* --- running --- */

static dnnl_exec_arg_t bind(int arg, dnnl_memory_t memory, void *data)
{
    const dnnl_status_t status = dnnl_memory_set_data_handle(memory, data);
    WF_BUG_ON(status != dnnl_success, "oneDNN status %d for argument %d", (int)status, arg);
    return (dnnl_exec_arg_t){ arg, memory };
}

static bool execute(const struct wf_dnnl_conv *c, const_dnnl_primitive_t primitive, int n,
                    const dnnl_exec_arg_t args[])
{
    dnnl_status_t status = dnnl_primitive_execute(primitive, c->lib->stream, n, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(c->lib->stream);
    return status == dnnl_success;
}

bool wf_dnnl_conv_reorder(struct wf_dnnl_conv *c, void *plain, void *blocked, void *scratch)
{
    WF_BUG_ON(!c->reorder, "'%s' takes plain weights", c->name);
    const bool gradient = c->pass == WF_CONV_WEIGHTS;
    dnnl_exec_arg_t args[3] = {
        bind(gradient ? DNNL_ARG_TO : DNNL_ARG_FROM, c->plain, plain),
        bind(gradient ? DNNL_ARG_FROM : DNNL_ARG_TO, c->weights, blocked),
    };
    if (c->reorder_scratch)
        args[2] = bind(DNNL_ARG_SCRATCHPAD, c->reorder_pad, scratch);
    return execute(c, c->reorder, c->reorder_scratch ? 3 : 2, args);
}

static void swap_bytes(unsigned char *a, unsigned char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

/* The planted fault: one element of the result, in its middle; of weights the first, since their
 * order may have gaps. Or two channels. */
static void spoil(const struct wf_dnnl_conv *c, const struct wf_dnnl_args *a)
{
    if (c->pass == WF_CONV_WEIGHTS) {
        ((unsigned char *)a->weights)[sizeof(float) - 1] ^= 0x44;
        return;
    }
    const bool data = c->pass == WF_CONV_DATA;
    const size_t count =
        dnnl_memory_desc_get_size(md_of(data ? &c->md.src : &c->md.dst)) / c->element;
    unsigned char *const at = data ? a->src : a->dst;
    const int64_t swap = c->lib->swap;
    if (swap > 0) {
        const size_t row = (size_t)c->channels * c->element, other = (size_t)swap * c->element;
        for (size_t i = 0; swap < c->channels && i < count * c->element; i += row)
            swap_bytes(at + i, at + i + other, c->element);
        return;
    }
    at[(count / 2 + 1) * c->element - 1] ^= 0x44;
}

bool wf_dnnl_conv_run(struct wf_dnnl_conv *c, const struct wf_dnnl_args *a)
{
    static const int names[][3] = {
        [WF_CONV_FORWARD] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST },
        [WF_CONV_DATA] = { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST },
        [WF_CONV_WEIGHTS] = { DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST },
    };
    dnnl_exec_arg_t args[5] = { bind(names[c->pass][0], c->src, a->src),
                                bind(names[c->pass][1], c->weights, a->weights),
                                bind(names[c->pass][2], c->dst, a->dst) };
    int n = 3;
    if (c->bias)
        args[n++] = bind(DNNL_ARG_BIAS, c->bias_memory, a->bias);
    if (c->scratch)
        args[n++] = bind(DNNL_ARG_SCRATCHPAD, c->scratchpad, a->scratch);
    if (!execute(c, c->primitive, n, args))
        return false;
    if (c->spoilt)
        spoil(c, a);
    return true;
}

bool wf_dnnl_add_product(const struct wf_dnnl_product *p)
{
    return dnnl_sgemm('T', 'N', p->rows, p->columns, p->terms, 1.0f, p->a, p->a_step, p->b,
                      p->b_step, 1.0f, p->c, p->c_step) == dnnl_success;
}
