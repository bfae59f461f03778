/*
 * Update rules over flat f32 storage, as data: what the optimiser asks of a device.
 *
 * The host works out the numbers of a step (struct wf_update): rule, learning rate, bias corrections,
 * what the gradient is multiplied by. A device only sweeps: it needs no state of its own beyond the
 * layout, which says where the trained tensors lie and how they are cut into pieces.
 *
 *   U1. Only elements inside tensors are touched: gaps of alignment, frozen parameters and parameters
 *       that the loss does not reach are in no tensor.
 *   U2. A piece lies in one tensor; pieces stand in the order of the tensors and cover each without
 *       gap. How they are cut depends on the layout alone.
 *   U3. Sums are in f64, per piece, and pieces are added in order: the same bits for any number of
 *       threads.
 *
 * With g = scale * gradient (and g += decay * p where the tensor decays and the rule couples), p the
 * parameter, s0 and s1 its states, all in f32:
 *
 *   SGD       p -= lr * g
 *   MOMENTUM  s0 = momentum * s0 + g;  p -= lr * s0
 *   NESTEROV  s0 = momentum * s0 + g;  p -= lr * (g + momentum * s0)
 *   ADAGRAD   s0 += g * g;  p -= lr * g / (sqrt(s0) + eps)
 *   RMSPROP   s0 = beta2 * s0 + (1 - beta2) * g * g;  d = g / (sqrt(s0) + eps)
 *             without a second state p -= lr * d; with one: s1 = momentum * s1 + d;  p -= lr * s1
 *   ADAM      s0 += (1 - beta1) * (g - s0);  s1 = beta2 * s1 + (1 - beta2) * g * g
 *             p -= lr * correct1 * s0 / (sqrt(s1) * correct2 + eps)
 *   ADAMW     p -= lr * decay * p, then as ADAM (g without decay)
 *   LAMB      s0, s1 as ADAM (g without decay);  r = correct1 * s0 / (sqrt(s1) * correct2 + eps) + decay * p
 *             p -= lr * (|p| / |r|) * r
 *   LARS      t = trust * |p| / (|g| + decay * |p|)  (g without decay)
 *             s0 = momentum * s0 + lr * t * (g + decay * p);  p -= s0
 *
 * |.| is the tensor's 2-norm. The quotient and t are 1 where |p| or the other norm is 0, and in tensors
 * that do not decay (biases and norms, where asked).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wf_optim_rule {
    WF_SGD,
    WF_MOMENTUM,
    WF_NESTEROV,
    WF_ADAGRAD,
    WF_RMSPROP,
    WF_ADAM,
    WF_ADAMW,
    WF_LAMB,
    WF_LARS,
    WF_OPTIM_RULES
};

enum {
    WF_UPDATE_STATES = 2,    /* arrays of state, at most */
    WF_UPDATE_PIECE = 16384, /* elements of a piece, at most */
};

struct wf_update_tensor {
    int64_t first, count; /* elements, from the start of the store */
    bool decays;          /* weight decay and trust ratio apply */
    int first_piece, n_pieces;
};

struct wf_update_piece {
    int64_t first;
    int32_t count, tensor;
};

struct wf_update_layout {
    int n_tensors, n_pieces;
    const struct wf_update_tensor *tensors;
    const struct wf_update_piece *pieces;
};

/* One step. The factors are those of the table above, worked out in f64. */
struct wf_update {
    enum wf_optim_rule rule;
    float scale; /* of the gradient: loss scale, accumulation, clipping */
    float lr, momentum, beta1, beta2, eps, decay, trust;
    float rest1, rest2;       /* 1 - beta1, 1 - beta2: taken in f32, 1 - 0.999f is off by 1.3e-5 */
    float correct1, correct2; /* 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float *param;
    const float *grad;
    /* In the device's memory, instead of `scale`; not finite: nothing is touched. NULL: `scale` it is. */
    const float *factor;
    float *state[WF_UPDATE_STATES]; /* NULL: the rule has none */
};

struct wf_context;

/* `prepared` is what prepare() made for a layout, which may go afterwards. */
struct wf_updater {
    /* NULL: no memory. The context is the device's (plan/target.h). */
    void *(*prepare)(struct wf_context *context, const struct wf_update_layout *layout);
    void (*release)(void *prepared);
    /* Sum of the squares of all tensors' gradients (U3); not finite where one of them is not, or
     * where the device failed. The result is there on return: a device waits for its earlier work. */
    double (*squares)(void *prepared, const float *grad);
    void (*update)(void *prepared, const struct wf_update *u);
    /* Optional, both: squares() and update() without waiting. The gradient, times u->scale, is clipped to a norm
     * of `clip` (0: any), and nothing is touched where the sum of squares is not finite. It is read afterwards;
     * that waits for the sum, not for the update. */
    void (*update_clipped)(void *prepared, const struct wf_update *u, double clip);
    double (*read_squares)(void *prepared);
};

extern const struct wf_updater wf_cpu_updater;
#ifdef WF_HAVE_CUDA
extern const struct wf_updater wf_cuda_updater;
#endif
