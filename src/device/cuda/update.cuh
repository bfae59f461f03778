/* One element of an update rule: the formulas of device/update.h, in its order of operations. */
#ifndef WF_DEVICE_CUDA_UPDATE_CUH
#define WF_DEVICE_CUDA_UPDATE_CUH

#include "device/cuda/device.cuh"

namespace wf
{

/* The numbers of a step for one tensor. */
struct Rule {
    struct wf_update u;
    float decay, ratio; /* decay is 0 where the tensor does not decay */
};

/* State s0 and s1 and the parameter p are changed in place. */
template <int Kind, bool Second>
__device__ inline void element(const Rule &r, float g, float &p, float &s0, float &s1)
{
    const struct wf_update &u = r.u;
    switch (Kind) {
    case WF_SGD:
        p -= u.lr * (u.scale * g + r.decay * p);
        break;
    case WF_MOMENTUM:
        s0 = u.momentum * s0 + (u.scale * g + r.decay * p);
        p -= u.lr * s0;
        break;
    case WF_NESTEROV: {
        const float d = u.scale * g + r.decay * p;
        s0 = u.momentum * s0 + d;
        p -= u.lr * (d + u.momentum * s0);
        break;
    }
    case WF_ADAGRAD: {
        const float d = u.scale * g + r.decay * p;
        s0 += d * d;
        p -= u.lr * d / (sqrtf(s0) + u.eps);
        break;
    }
    case WF_RMSPROP: {
        const float d = u.scale * g + r.decay * p;
        s0 = u.beta2 * s0 + u.rest2 * d * d;
        if (Second) {
            s1 = u.momentum * s1 + d / (sqrtf(s0) + u.eps);
            p -= u.lr * s1;
        } else
            p -= u.lr * d / (sqrtf(s0) + u.eps);
        break;
    }
    case WF_ADAM:
    case WF_ADAMW: {
        const float d = u.scale * g + (Kind == WF_ADAM ? r.decay * p : 0.0f);
        const float keep = Kind == WF_ADAM ? 1.0f : 1.0f - u.lr * r.decay;
        s0 += u.rest1 * (d - s0);
        s1 = u.beta2 * s1 + u.rest2 * d * d;
        p = keep * p - u.lr * u.correct1 * s0 / (sqrtf(s1) * u.correct2 + u.eps);
        break;
    }
    case WF_LAMB: /* the moments were made with the norms */
        p -= u.lr * r.ratio * (u.correct1 * s0 / (sqrtf(s1) * u.correct2 + u.eps) + r.decay * p);
        break;
    case WF_LARS:
        s0 = u.momentum * s0 + u.lr * r.ratio * (u.scale * g + r.decay * p);
        p -= s0;
        break;
    }
}

/* LAMB: the moments of an element; returns what its tensor's second norm is taken of. */
__device__ inline float lamb_moments(const Rule &r, float g, float p, float &s0, float &s1)
{
    const struct wf_update &u = r.u;
    const float d = u.scale * g;
    s0 += u.rest1 * (d - s0);
    s1 = u.beta2 * s1 + u.rest2 * d * d;
    return u.correct1 * s0 / (sqrtf(s1) * u.correct2 + u.eps) + r.decay * p;
}

} // namespace wf

#endif
