/*
 * Kernels of a device against the reference kernels of their operators: one harness for all devices.
 *
 * A test describes its device (struct support_device) and names the cases. Each node of a case runs whole
 * and on parts, in packed memory, inside larger buffers with and without the alignment that wide accesses
 * need, with permuted axes, in place; and twice, the second time another way (more threads, the
 * opposite order), which must give the same bits. Guards around every box must come back as they were.
 *
 *     static const struct support_device device = { .kernels = wf_cpu_kernels, ... };
 *     assert_true(support_check_cases(&device, WF_BF16) > 100);
 */
#ifndef WF_TESTS_SUPPORT_KERNELS_H
#define WF_TESTS_SUPPORT_KERNELS_H

#include "plan/target.h"
#include "support.h"

enum { SUPPORT_VIEWS = 8 };
enum support_layout {
    SUPPORT_PACKED,
    SUPPORT_ALIGNED,  /* inside a larger buffer, whole vectors apart */
    SUPPORT_INSIDE,   /* inside a larger buffer, anywhere */
    SUPPORT_PERMUTED, /* channels first */
    SUPPORT_LAYOUTS
};

/* What an element may be off: so much of itself, and so much of the largest one. */
struct support_bound {
    double of_itself, of_largest;
};

struct support_device {
    const struct wf_kernel *const *kernels; /* ends with NULL */
    int threads;                            /* for preparing */
    bool takes_all;                         /* of an operator that it has a kernel for, all nodes */
    bool dense_take_nothing; /* kernels of packed boxes also run where there is no work */
    /* For tools under which a kernel takes a hundred times as long: no kernels of libraries, every
     * operator, case and type, but each once: whole in packed memory, an inner box inside a larger buffer,
     * and of the nodes that a case's gradient adds only those whose operators have no cases. */
    bool (*is_brief)(void);              /* NULL: never */
    struct wf_context *(*context)(void); /* for calls; NULL: none */
    void *(*alloc)(size_t bytes);        /* of exactly that size, apart from all others */
    void (*free)(void *memory);
    void (*put)(void *to, const void *from, size_t bytes);
    void (*get)(void *to, const void *from, size_t bytes);
    void (*turn)(bool other_way);
    bool (*finish)(void); /* waits; false when something went wrong; NULL: nothing can */
    struct support_bound (*tolerance)(const struct wf_node *node, const struct wf_kernel *kernel);
};

/* A view of `box` on the host, with a guard of known bytes around it, and the same on the device. */
struct support_guarded {
    const struct support_device *device;
    struct wf_view view, all; /* all: the view and its guard */
    size_t bytes;
    void *memory;
};

struct support_guarded support_guarded_new(const struct support_device *device, enum wf_dtype dtype,
                                           struct wf_region box, enum support_layout layout,
                                           int fill);
void support_guarded_free(struct support_guarded *m);
/* The view in the device's memory. */
struct wf_view support_guarded_view(const struct support_guarded *m);
bool support_inside(struct wf_region r, const int64_t at[WF_AXES]);

/* One run of a node. */
struct support_trial {
    const struct support_device *device;
    const struct wf_node *node;
    const struct wf_kernel *kernel;
    const struct support_values *values;
    struct wf_region work;
    enum support_layout layout;
    int alias; /* in[alias] is also out[0]; -1: none */
    bool other_way;
    struct support_guarded in[SUPPORT_VIEWS], out[SUPPORT_VIEWS];
};

void support_trial_init(struct support_trial *t);
void support_trial_run(const struct support_trial *t);       /* its kernel */
void support_trial_reference(const struct support_trial *t); /* the operator's reference */
void support_trial_release(struct support_trial *t);
/* Inside the box the numbers agree, outside of it nothing was written. */
void support_compare(const struct support_trial *t, const struct support_guarded *got,
                     const struct support_guarded *want, struct support_bound tolerance);

/* The planner gives such a kernel packed boxes only. */
bool support_wants_packed(const struct wf_kernel *kernel);

/* All kernels that take a node of the case; returns how many. */
int support_check_case(const struct support_device *device, const struct wf_op *op,
                       const struct wf_case *from, enum wf_dtype dtype);
/* The cases of all operators. */
int support_check_cases(const struct support_device *device, enum wf_dtype dtype);

/* Cases larger than the operators' own, in f32 and bf16. */
struct support_larger {
    const char *op;
    struct wf_case from;
};
void support_check_larger(const struct support_device *device, const struct support_larger *list,
                          size_t count);
/* Of a case: whole layers, with their gradients. */
struct wf_value *support_build_batch_norm(struct wf_graph *g, struct wf_value *const in[],
                                          const void *attrs);
struct wf_value *support_build_group_norm(struct wf_graph *g, struct wf_value *const in[],
                                          const void *attrs);
struct wf_value *support_build_cross_entropy(struct wf_graph *g, struct wf_value *const in[],
                                             const void *attrs);
struct wf_value *support_build_dice(struct wf_graph *g, struct wf_value *const in[],
                                    const void *attrs);

/* The variance of 1e4 + noise of 0.01 in every channel: sums in f32 would lose it. */
void support_check_small_deviation(const struct support_device *device, int64_t channels);

#endif
