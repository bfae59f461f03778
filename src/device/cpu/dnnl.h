/*
 * Convolutions through oneDNN.
 *
 * dnnl_shim.c is the only file that sees oneDNN; it is the root 2.x and 3.x. A problem there is one
 * convolution of packed channels-last images, in one of three passes. `src` is always the side under
 * the windows and `dst` the side of the window positions, as in position
 * src = dst * stride + tap * dilation - pad_lo; each pass writes one of src, weights, dst.
 *
 *     struct wf_dnnl *lib = wf_dnnl_new(err);
 *     struct wf_dnnl_conv *c = wf_dnnl_conv_new(lib, &problem);      // NULL: oneDNN cannot
 *     wf_dnnl_conv_reorder(c, plain, blocked, scratch);
 *     wf_dnnl_conv_run(c, &(struct wf_dnnl_args){ .src = x, .weights = blocked, .dst = y, ... });
 *     wf_dnnl_conv_free(c);
 *     wf_dnnl_free(lib);
 *
 * Above it dnnl_conv.c turns a step (boxes of a cut image) into such problems, dnnl_form.c finds the
 * form of them for which oneDNN has a fast kernel, and dnnl_pack.c copies where a form asks for it.
 * dnnl_small.c has the weight gradient of small maps as products of matrices. dnnl_check.c holds every
 * primitive against sums of our own before it is used.
 */
#pragma once

#include "plan/target.h"
#include "device/conv_pass.h"

/* --- oneDNN, dnnl_shim.c --- */

struct wf_dnnl;      /* an engine and a stream: one per prepared step, no state is shared */
struct wf_dnnl_conv; /* a primitive with its memory objects; borrows its wf_dnnl */

struct wf_dnnl_problem {
    enum wf_conv_pass pass;
    enum wf_dtype dtype; /* f32 or bf16; of both images and the weights. Bias and dw are f32 */
    int64_t batch, groups, in, out; /* channels of src and dst, of all groups together */
    int64_t src[3], dst[3], kernel[3], stride[3], dilation[3];
    int64_t pad_lo[3], pad_hi[3]; /* pad_hi above -stride, pad_lo not negative */
    bool bias;                    /* forward only */
    int skip; /* of oneDNN's implementations, best first: so many are passed over, as wrong */
};

/* NULL on failure. With sizes_only its convolutions say what they need but do not run. */
struct wf_dnnl *wf_dnnl_new(bool sizes_only, struct wf_err *err);
void wf_dnnl_free(struct wf_dnnl *lib);
/* Faults for tests: implementations whose name holds `name` (borrowed) get one byte of each result
 * wrong or, with `swap` above 0, in images the first channel and that one exchanged; NULL: none. */
void wf_dnnl_spoil(struct wf_dnnl *lib, const char *name, int64_t swap);
/* What verdicts depend on beside the problem: version, instruction set, cache, the check itself. */
enum { WF_DNNL_ABOUT = 96, WF_DNNL_CHECK = 2 }; /* bytes; verdicts of other checks are not read */
void wf_dnnl_about(char text[WF_DNNL_ABOUT]);
/* True where a convolution crashes when all taps of one row or plane of its result lie in the padding. */
bool wf_dnnl_crashes_on_missed_rows(const struct wf_dnnl *lib, enum wf_dtype dtype);
/* It computes convolutions in bf16 by AMX's tiles. */
bool wf_dnnl_has_amx(void);
/* True where oneDNN's bf16 weight gradient writes past its memory (2.x with AMX, wide images) or
 * divides by zero (few channels). */
bool wf_dnnl_has_traps(void);

struct wf_dnnl_conv *wf_dnnl_conv_new(struct wf_dnnl *lib, const struct wf_dnnl_problem *p);
void wf_dnnl_conv_free(struct wf_dnnl_conv *c);
const char *wf_dnnl_conv_name(const struct wf_dnnl_conv *c); /* oneDNN's, "brgconv:avx512_core" */
size_t wf_dnnl_conv_scratch(const struct wf_dnnl_conv *c);   /* bytes */
/* Bytes of the weights in the primitive's own order; 0 where that is the plain one. */
size_t wf_dnnl_conv_blocked(const struct wf_dnnl_conv *c);
/* What runs returns false where oneDNN refuses: then it is no primitive to be used. */
/* plain (out, kd, kh, kw, in / groups) -> blocked; blocked -> plain for the weight gradient. */
[[nodiscard]] bool wf_dnnl_conv_reorder(struct wf_dnnl_conv *c, void *plain, void *blocked,
                                        void *scratch);
struct wf_dnnl_args {
    void *src, *weights, *bias, *dst, *scratch;
};
[[nodiscard]] bool wf_dnnl_conv_run(struct wf_dnnl_conv *c, const struct wf_dnnl_args *args);

/* c += transposed a times b, all f32: a has `terms` rows of `rows` numbers, b `terms` rows of
 * `columns`; steps from row to row in elements. oneDNN keeps its own scratch for it. */
struct wf_dnnl_product {
    int64_t rows, columns, terms;
    const float *a, *b;
    float *c;
    int64_t a_step, b_step, c_step;
};
[[nodiscard]] bool wf_dnnl_add_product(const struct wf_dnnl_product *p);

/* --- checking, dnnl_check.c and dnnl_verdict.c --- */

/* Runs the primitive, made for the problem, on a sample. True where it computes the right numbers;
 * `*sure` false: there was no memory to find out. */
bool wf_dnnl_conv_compare(struct wf_dnnl *lib, struct wf_dnnl_conv *conv,
                          const struct wf_dnnl_problem *problem, bool *sure);

/* Factors for channels that are compared as one sum: integers with a sign, no two of one size, so that
 * exchanged channels are seen, and small enough for sums of 2^13 results to be exact in a double. */
void wf_dnnl_factors(uint64_t *random, double *factors, int64_t count);

struct wf_choices;

/* How primitives are checked when they are made. */
struct wf_dnnl_checking {
    bool skip;                   /* no check: the plan is only looked at */
    struct wf_choices *verdicts; /* where they are kept; NULL: nowhere */
    int threads;                 /* the number in effect */
};

/* For a step that is prepared. */
struct wf_dnnl_checking wf_dnnl_checking(const struct wf_prepare *prepare);
/* The same, once for each primitive: the verdict is kept. */
bool wf_dnnl_conv_is_right(struct wf_dnnl *lib, struct wf_dnnl_conv *conv,
                           const struct wf_dnnl_problem *problem,
                           const struct wf_dnnl_checking *checking);
/* Kept verdicts by key. False where there is none. */
bool wf_dnnl_verdict_find(const struct wf_dnnl_checking *checking, const char *key, bool *right);
void wf_dnnl_verdict_put(const struct wf_dnnl_checking *checking, const char *key, bool right);

/* --- packed copies, dnnl_pack.c --- */

/* A packed image of `box`, which may reach past what exists; `channels` at least its C, the rest
 * zeros. */
struct wf_dnnl_pack {
    struct wf_region box;
    int64_t channels;
    enum wf_dtype dtype; /* that of the view, or f32 */
};
size_t wf_dnnl_pack_bytes(const struct wf_dnnl_pack *pack);
/* From the view, zeros where it has nothing. */
void wf_dnnl_gather(const struct wf_dnnl_pack *pack, void *to, const struct wf_view *from);
/* Into the view, where it has room. */
void wf_dnnl_scatter(const struct wf_dnnl_pack *pack, void *from, const struct wf_view *to);
/* y += b at every position of a packed view of f32 or bf16. */
void wf_dnnl_add_bias(const struct wf_view *y, const float *b);
/* sum = or += the first n of each row of `padded`. */
struct wf_dnnl_rows {
    int64_t count, n, padded_n;
};
void wf_dnnl_add_rows(double *sum, const float *padded, const struct wf_dnnl_rows *rows, bool add);
void wf_dnnl_round(float *dw, const double *sum, int64_t n);

/* --- forms, dnnl_form.c --- */

/* How the window of a step is given to oneDNN. All zero: as it is. */
struct wf_dnnl_form {
    bool pad;         /* zeros around src are written out, the primitive has no padding */
    bool split;       /* one problem per group */
    bool wide;        /* bf16 computed in f32 */
    int64_t channels; /* dst and src channels become multiples of this; 0: stay (weight gradient) */
    int64_t rows;     /* at most this many of dst along the outermost axis at a time; 0: all */
    int64_t columns;  /* the same along W; 0: all */
};

struct wf_dnnl_piece {
    struct wf_dnnl_pack src, dst;
    bool pack_src, pack_dst; /* not in place: gather before, or scatter behind */
    int64_t group;
    int made; /* index of its primitive */
};

struct wf_dnnl_made {
    struct wf_dnnl_problem problem;
    struct wf_dnnl_conv *conv;
};

/* A prepared step. */
struct wf_dnnl_step {
    enum wf_conv_pass pass;
    int threads;
    struct wf_conv_attrs attrs;
    int64_t kernel[3], in, out; /* channels in all */
    bool bias;
    struct wf_view src, dst; /* packed, as the step will get them; data is NULL */
    struct wf_dnnl_form form;
    bool clear; /* data pass: the pieces do not cover all of src */
    struct wf_dnnl *lib;
    struct wf_dnnl_checking checking;
    char wrong[48]; /* the first implementation that was passed over; "": none */
    bool own;       /* none of oneDNN's is right: the operator's reference runs */
    struct wf_dnnl_made *made;
    size_t n_made, room_made;
    struct wf_dnnl_piece *pieces;
    size_t n_pieces, room_pieces;
    /* Scratch: offsets and what the whole takes. */
    size_t at_blocked, at_plain, at_sum, at_src, at_dst, scratch_bytes;
};

struct wf_dnnl_options {
    bool traps;                      /* go around them: as wf_dnnl_has_traps() says, or forced */
    const struct wf_dnnl_form *form; /* NULL: the best */
    const char *spoil;               /* wf_dnnl_spoil() */
    int64_t swap;
    bool believe; /* no check: for tests that show what it is for */
};

/* Fills form, pieces, primitives and scratch; or `own`. */
[[nodiscard]] bool wf_dnnl_step_plan(struct wf_dnnl_step *s, const struct wf_dnnl_options *options,
                                     struct wf_err *err);
/* Plain weights pass through scratch: widened, or a piece's gradient before it is added. */
bool wf_dnnl_step_has_plain(const struct wf_dnnl_step *s);
size_t wf_dnnl_step_weights(const struct wf_dnnl_step *s); /* elements */
void wf_dnnl_step_clear(struct wf_dnnl_step *s);           /* back to before wf_dnnl_step_plan() */

/* --- kernels, dnnl_conv.c --- */

/* Of the calling thread; what it was before. */
int wf_dnnl_use_threads(int threads);
/* What the kernels' prepare() does; tests have options of their own. */
[[nodiscard]] bool wf_dnnl_prepare(struct wf_prepare *p, const struct wf_dnnl_options *options,
                                   struct wf_err *err);
