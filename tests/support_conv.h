/*
 * Convolutions of oneDNN against the operators' reference kernels: problems, and a rig that runs one of
 * them. Memory around each buffer is guarded, because oneDNN's generated code is not seen by the
 * sanitizers.
 *
 *     struct rig r = rig_new(&problems[0], PASS_WGRAD, WF_BF16);
 *     rig_reference(&r, work);
 *     rig_check(&r, work, NULL);
 *     assert_int_equal(r.failures, 0);
 *     rig_free(&r);
 */
#ifndef WF_TESTS_SUPPORT_CONV_H
#define WF_TESTS_SUPPORT_CONV_H

#ifdef WF_HAVE_DNNL

#include "device/cpu/dnnl.h"
#include "support.h"

extern const struct wf_kernel wf_cpu_kernels_dnnl_conv[]; /* no header names it: the build does */

struct problem {
    const char *name;
    int64_t x[WF_AXES]; /* of the side under the windows */
    int64_t out, groups;
    int64_t kernel[3], stride[3], dilation[3], lo[3], hi[3];
};
enum { PROBLEMS = 40 };
extern const struct problem problems[PROBLEMS];

enum pass { PASS_CONV, PASS_CONVT, PASS_WGRAD, PASSES };

struct block {
    unsigned char *base;
    size_t bytes;
};

/* One node with its values. */
struct rig {
    struct wf_graph *g;
    const struct wf_kernel *kernel;
    const struct wf_node *node;
    struct wf_view in[3], out; /* whole, `out` by the reference */
    struct block in_block[3], out_block;
    struct wf_dnnl_options options;
    int threads, run_threads; /* prepared for; OpenMP's setting when the step runs, 0: leave it */
    bool may_be_reference;    /* slow kernels are no failure */
    int failures;             /* all are reported, not just the first */
};

struct rig rig_new(const struct problem *p, enum pass pass, enum wf_dtype dtype);
void rig_free(struct rig *r);
void rig_reference(const struct rig *r, struct wf_region work);
/* Packed inputs exactly as the planner gives them; the result against r->out. `name`, where given, is
 * that of the implementation. */
void rig_check(struct rig *r, struct wf_region work, char name[WF_IMPLEMENTATION]);

/* On windows as cuts give them: all, or with options given the whole and the inner one. Returns how
 * many were wrong. */
int check_problem(const struct problem *p, enum pass pass, enum wf_dtype dtype,
                  const struct wf_dnnl_options *options);

#endif
#endif
