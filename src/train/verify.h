/*
 * The same step whole and cut: what is compared, against what, and why a difference may be innocent.
 *
 *     wf_verify_settle(&settings);
 *     struct wf_verify v = { .job = wf_job_new(&launch, &settings, &files, err), .tolerance = 1e-5 };
 *     ok = wf_verify_run(&v, err) && (!launch.is_root || wf_verify_verdict(&v, err));
 *
 * A difference counts when it is past the tolerance *and* past what rounding alone does to that tensor.
 * The second is measured, on one rank: the step runs again with image and weights changed in the last bits
 * and other numbers of threads, and what that moves has no digits to compare (a gradient that is 1e-9 of the others, a bias in front of a
 * norm). That leaves decisions: where a ReLU's argument, or the best two of a max pooling, lie within
 * rounding of each other, whole and cut may decide differently, and a gradient jumps. Such a decision is
 * looked for by name (verify_turned.c); where there is one, the comparison runs again with image and
 * weights moved a little, so that this decision is clear. An error of the cut would show there too.
 */
#pragma once

#include "train/stepper.h"

enum wf_verify_kind {
    WF_VERIFY_LOSS,
    WF_VERIFY_PRED,
    WF_VERIFY_GRAD,
    WF_VERIFY_PARAM,
    WF_VERIFY_KINDS
};

struct wf_verify_tensor {
    enum wf_verify_kind kind;
    const char *name;
    const struct wf_value *value;
    int micro;       /* of loss and pred: the micro-batch */
    double norm;     /* of the whole step's */
    double apart;    /* norm of the difference, on the worst rank */
    double rel;      /* apart over what it is held against */
    double rounding; /* what the last bits of image and weights move; 0: not measured */
    bool excused;    /* past the tolerance, and within rounding */
};

/* Each element of image and weights times 1 +- by, drawn by seed, name and place. */
struct wf_nudge {
    uint64_t seed;
    double by;   /* 0: as it is */
    int threads; /* of a whole step; 0: as many as may be */
};

/* Decisions that whole and cut took differently, all within rounding. */
struct wf_turned {
    int64_t count;     /* 0: none */
    double distance;   /* against its layer's root mean square; of the ranks' farthest, the sum */
    const char *layer; /* the first */
    bool is_pooling;
};

struct wf_verify {
    struct wf_job *job;
    struct wf_verify_tensor *tensors;
    int count;
    double tolerance;
    struct wf_nudge moved; /* of the comparison that decides */
    /* the results: on rank 0; `pass`, `overflows` and `turned` on every rank */
    double worst[WF_VERIFY_KINDS];
    int worst_at[WF_VERIFY_KINDS]; /* tensor, or -1 */
    int excused;                   /* tensors */
    int excused_worst;             /* the tensor that is farthest for what rounding does, or -1 */
    bool pass;
    bool overflows; /* the whole step's own numbers are not finite */
    struct wf_turned turned;
};

extern const char *const wf_verify_kind_names[WF_VERIFY_KINDS];

/* The settings that a step is compared with. Weights are compared after plain descent, whatever the
 * optimiser: Adam's first step is the sign of the gradient, and one that is nothing but rounding becomes a
 * whole step. Its rules are compared with PyTorch's in tests/test_optim.c. A ReLU turns a difference in
 * the last bit of the forward pass into a thousandth of a gradient: on a GPU only kernels are compared
 * whose sums do not depend on the cut. */
void wf_verify_settle(struct wf_settings *s);
/* Collective under a launcher. False where the job cannot be compared; what was found is in `v`. */
[[nodiscard]] bool wf_verify_run(struct wf_verify *v, struct wf_err *err);
/* Of rank 0: false, with the worst tensor, where the steps are not the same. */
[[nodiscard]] bool wf_verify_verdict(const struct wf_verify *v, struct wf_err *err);
/* What rounding alone does to a tensor, against what its difference is held against. */
double wf_verify_rounding(const struct wf_verify *v, const struct wf_verify_tensor *t);

/* --- its parts --- */

/* Changes image and weights of a step that was not run yet. */
[[nodiscard]] bool wf_verify_nudge(const struct wf_stepper *stepper, struct wf_nudge nudge,
                                   struct wf_err *err);

/* A step on rank 0 alone, with all cores, moved as it is and then nudged; `stepper`
 * stays to be looked at. */
[[nodiscard]] bool wf_verify_whole(const struct wf_verify *v, struct wf_comm *self,
                                   struct wf_nudge bits, struct wf_stepper *stepper,
                                   struct wf_err *err);

/* Collective under a launcher. Looks for decisions that turn, image and weights moved as they are. */
[[nodiscard]] bool wf_verify_find_turned(struct wf_verify *v, struct wf_err *err);
