/*
 * An operator: one file, one table entry, all there is to know about it.
 *
 * `reads` is the only place in the program where a stencil is known; every halo in every pass comes
 * from it. Backward operators are operators too. The build collects `const struct wf_op wf_op_NAME`
 * from src/ops/ into wf_op_table: adding an operator is adding one file.
 *
 * Work. A rank runs a node on a region, its *work*. For an ordinary operator that is a region of
 * out[0] (all image outputs share their extents). For an operator that sums (sums_over() != 0) it is
 * a region of in[op->over]: each rank sums over its own part and the planner adds a reduce. A sum
 * over nothing (empty work) must still write its output: zeros.
 *
 * Adding an operator (docs/operators.md has a whole one):
 *
 *     struct scale { double factor; };
 *     const struct wf_op wf_op_scale = {
 *         .name = "scale", .n_in = 1,
 *         WF_ATTRS(scale, fields),
 *         .infer = infer, .grad = grad, .reference = reference, .cases = cases,
 *         .flags = WF_OP_POINTWISE | WF_OP_CHEAP, .inplace = 1u << 0,
 *     };
 */
#pragma once

#include <stddef.h>

#include "graph/graph.h"
#include "tensor/view.h"

/* One attribute, for the text form. */
enum wf_field_kind { WF_FIELD_INT /* int64_t[count] */, WF_FIELD_REAL /* double */, WF_FIELD_NAME };
struct wf_field {
    const char *name;
    enum wf_field_kind kind;
    size_t offset;
    int count;                /* of int64_t; 1 prints as a number, more as [a,b,c] */
    const char *const *names; /* WF_FIELD_NAME: int64_t index into this NULL-ended list */
};

/* Rows of a table of fields: WF_INTS(wf_conv_attrs, stride, 3). */
#define WF_FIELD(attrs, member, field_kind, n, list)                                               \
    {                                                                                              \
        .name = #member, .kind = field_kind, .offset = offsetof(struct attrs, member), .count = n, \
        .names = list                                                                              \
    }
#define WF_INTS(attrs, member, n) WF_FIELD(attrs, member, WF_FIELD_INT, n, NULL)
#define WF_INT(attrs, member) WF_INTS(attrs, member, 1)
#define WF_REAL(attrs, member) WF_FIELD(attrs, member, WF_FIELD_REAL, 1, NULL)
#define WF_NAMED(attrs, member, list) WF_FIELD(attrs, member, WF_FIELD_NAME, 1, list)
/* The members of struct wf_op for attributes `struct attrs` with these fields. */
#define WF_ATTRS(attrs, list) .attr_bytes = sizeof(struct attrs), .fields = list

struct wf_context; /* plan/target.h */

/* An input that is not in memory: the kernel computes it on its way from what its node reads. */
struct wf_fused_input {
    const struct wf_node *node; /* NULL: the input is in memory */
    const struct wf_view *in;
};

/* What a kernel is given. Views use global coordinates. An input's view covers at least
 * reads(work) within the image; reading outside the image is padding, and the kernel's business.
 * An output's view covers at least what the work writes. Optional inputs have data == NULL, and so
 * have fused ones, which only kernels are given that say so (wf_kernel.fuses). */
struct wf_call {
    const struct wf_node *node;
    struct wf_region work;
    const struct wf_view *in;
    const struct wf_view *out;
    const struct wf_fused_input *fused; /* per input; NULL: none is fused */
    /* Of sparse tensors: how many rows of each set this rank has (struct wf_value.set), in the device's
     * memory. On a host the work is no more than what is there. NULL: there are none. */
    int32_t *rows;
    void *scratch;              /* as many bytes as the kernel asked for when it was prepared */
    void *prepared;             /* what the kernel's prepare() left */
    uint64_t seed;              /* of the run, for dropout */
    uint64_t step;              /* counts training steps, for dropout */
    struct wf_context *context; /* of the device; NULL where it needs none */
};

enum wf_op_flags {
    /* out[0] at a position depends on the image inputs at that position only: a rank may compute
     * the halo itself instead of fetching it. */
    WF_OP_POINTWISE = 1u << 0,
    /* So little work that computing it again beats keeping the result for the backward pass. */
    WF_OP_CHEAP = 1u << 1,
    /* A sum whose results of parts of the work do not add up to that of the work: it runs on all of
     * the rank's work at once. */
    WF_OP_WHOLE = 1u << 2,
    /* A sum of inputs that are not cut, which are read where they are made, complete or not. */
    WF_OP_COLLECTS = 1u << 3,
    /* Away from the image's border its result depends on no position: work that is shifted reads inputs that
     * are shifted, and gives shifted results. So are pointwise operators without this flag. */
    WF_OP_SHIFTS = 1u << 4,
    /* Likewise, where the shifts are to each other exactly as the extents. */
    WF_OP_SCALES = 1u << 5,
    /* A sum that may be over the rows of a sparse tensor: it takes no more than its work. So do pointwise
     * operators. */
    WF_OP_ROWS = 1u << 6,
    /* It knows of sets of coordinates: its inputs may be of several. */
    WF_OP_SETS = 1u << 7,
    /* It makes a set, and says itself how many rows that has. */
    WF_OP_COUNTS = 1u << 8,
};

/* A case of the generic tests. Attributes are in the text form ("stride=[1,2,2] groups=2"); inputs
 * are a letter and a shape each ("x[2,1,5,7,3] p[3]"), where leading extents of one may be left out:
 * x image, p parameter (replicated), t class map i32 with a label below the channels of the first
 * input, b binary target 0/1, - absent. Only x and p are differentiated, unless the letter is upper
 * case (X, P: given but not differentiable). Where one node is not enough (a loss, a normalisation),
 * `build` makes the graph from the inputs and the attributes and returns its result. */
struct wf_case {
    const char *attrs, *in;
    struct wf_value *(*build)(struct wf_graph *g, struct wf_value *const in[],
                              const void *attrs); /* NULL: one node */
};

struct wf_op {
    const char *name;
    int n_in, n_out; /* n_in < 0: any number; n_out 0: one */
    int n_optional;  /* how many of the last inputs may be NULL */
    size_t attr_bytes;
    const struct wf_field *fields; /* ends with a NULL name */
    unsigned flags;
    unsigned inplace; /* bit i: out[0] may take the memory of in[i] (same shape and dtype) */
    /* out[o] may be written over in[renews + o], element by element: the next of a state. 0: no. */
    int renews;
    /* bit i: in[i], optional, is added to out[0] and has its shape and dtype. Reverse mode puts a
     * gradient there that it would otherwise add by a node of its own. */
    unsigned adds;

    /* Sets shape, dtype, replicated of each node->out[i] or fails with an error that says what does
     * not fit (the caller adds the layer's name). Outputs arrive with those of in[0]. NULL: they are
     * right. */
    bool (*infer)(const struct wf_node *node, struct wf_err *err);

    /* Appends backward nodes: given dy[o] for each output (NULL: no gradient flows), sets dx[i]
     * for each input with wanted[i], of which there is one at least. NULL: not differentiable. */
    void (*grad)(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[]);

    /* The region of in[input] that the work reads; may reach past the image. Not asked where there is
     * no work, of inputs that are absent, nor of weights, which are read whole. NULL: axes of equal
     * extent map one to one, all others are read whole. */
    struct wf_region (*reads)(const struct wf_node *node, int input, struct wf_region work);

    /* Axes of in[over] along which a rank's result is a partial sum: always these, or as the
     * attributes say. */
    unsigned sums;
    unsigned (*sums_over)(const struct wf_node *node);
    int over;
    /* The ranks' partial sums are not added up: each goes on with its own, and the numbers depend on
     * the mesh. NULL: never. */
    bool (*is_local)(const struct wf_node *node);
    /* The output whose sign, or whose value where it is an integer, decides what flows back: rounding
     * may turn it where out[0] is close to the edge. Negative, or NULL: none does. */
    int (*decides)(const struct wf_node *node);

    /* With these attributes it is bound to its place after all, whatever the flags say. NULL: never. */
    bool (*is_fixed)(const struct wf_node *node);

    /* place: in[input] lies in out[0] at this shift (concat). part: out[0] is the part of in[0] at this
     * shift (slice, a pad that only crops). The planner lets both share memory, or copies: where
     * one of them is true of a whole node, its kernel does not run. NULL or false: no. */
    bool (*place)(const struct wf_node *node, int input, int64_t shift[WF_AXES]);
    bool (*part)(const struct wf_node *node, int64_t shift[WF_AXES]);

    void (*reference)(const struct wf_call *call); /* slow and right; the oracle of every test */
    /* Operations for each element of the work (0: one), or for the work where attributes matter. */
    double flops_each;
    double (*flops)(const struct wf_node *node, struct wf_region work);
    const struct wf_case *cases; /* ends with a NULL in; NULL: covered by another's gradient */
};

extern const struct wf_op *const wf_op_table[]; /* ends with NULL; made by the build */
const struct wf_op *wf_op_find(const char *name);
static inline int wf_op_outputs(const struct wf_op *op)
{
    return op->n_out ? op->n_out : 1;
}

/* op->reads with its default, not clipped to the image. */
struct wf_region wf_op_reads(const struct wf_node *node, int input, struct wf_region work);
unsigned wf_op_sums_over(const struct wf_node *node);
bool wf_op_is_local(const struct wf_node *node);
int wf_op_decides(const struct wf_node *node);
double wf_op_flops(const struct wf_node *node, struct wf_region work);
/* The value whose region is the work: out[0], or in[over] for sums. */
const struct wf_value *wf_op_domain(const struct wf_node *node);

/* For gradients and builders: append a node named "<of>.<suffix>" (or "<of>", suffix NULL) and take its
 * first output. */
struct wf_value *wf_append(struct wf_graph *g, const struct wf_op *op, const char *of,
                           const char *suffix, const void *attrs, int n_in,
                           struct wf_value *const in[]);

/* For reference kernels: the element's offset in the view, or false outside the image (padding).
 * Stops the program when the element lies inside the image but not in the view. */
bool wf_ref_locate(const struct wf_view *v, const struct wf_shape *image, const int64_t at[WF_AXES],
                   int64_t *offset);
/* The element, or 0 where the coordinate lies outside the image. */
double wf_ref_get(const struct wf_view *v, const struct wf_shape *image, const int64_t at[WF_AXES]);

/* for (struct wf_cursor c = wf_cursor(region); wf_cursor_next(&c);) ... c.at[WF_H] ... */
struct wf_cursor {
    struct wf_region region;
    int64_t at[WF_AXES];
    bool started;
};
static inline struct wf_cursor wf_cursor(struct wf_region region)
{
    return (struct wf_cursor){ .region = region };
}
bool wf_cursor_next(struct wf_cursor *c);
static inline double wf_view_at(const struct wf_view *v, const int64_t at[WF_AXES])
{
    return wf_view_get(v, at[WF_N], at[WF_D], at[WF_H], at[WF_W], at[WF_C]);
}
static inline void wf_view_set(const struct wf_view *v, const int64_t at[WF_AXES], double value)
{
    wf_view_put(v, at[WF_N], at[WF_D], at[WF_H], at[WF_W], at[WF_C], value);
}
