/*
 * Where the elements of an upsampling come from along one axis, in whole numbers: for the operator and
 * for the kernels of CPU and GPU.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/build.h"

#ifdef __CUDACC__
#define WF_UPSAMPLE static inline __host__ __device__
#else
#define WF_UPSAMPLE static inline
#endif

/* The extents of the source and of the result. */
struct wf_up_axis {
    int64_t mode, in, out;
};

/* (1 - t) * first + t * second; second == first when t is 0. */
struct wf_up_source {
    int64_t first, second;
    double t;
};

WF_UPSAMPLE struct wf_up_source wf_up_source(struct wf_up_axis a, int64_t i)
{
    struct wf_up_source s = { i * a.in / a.out, i * a.in / a.out, 0 };
    if (a.mode == WF_NEAREST)
        return s;
    const bool centres = a.mode == WF_LINEAR;
    const int64_t above = centres ? (2 * i + 1) * a.in - a.out : i * (a.in - 1);
    const int64_t top = above > 0 ? above : 0;
    const int64_t bottom = centres ? 2 * a.out : a.out > 1 ? a.out - 1 : 1;
    const int64_t rest = top % bottom;
    s.first = s.second = top / bottom;
    if (rest != 0 && s.first + 1 < a.in) {
        s.second = s.first + 1;
        s.t = (double)rest / (double)bottom;
    }
    return s;
}

/* How much of source element p goes into result element i. */
WF_UPSAMPLE double wf_up_share(struct wf_up_axis a, int64_t i, int64_t p)
{
    const struct wf_up_source s = wf_up_source(a, i);
    return p == s.first ? 1 - s.t : p == s.second ? s.t : 0.0;
}

/* The first result whose source reaches `at`: its second one, or its first. Sources do not fall. */
WF_UPSAMPLE int64_t wf_up_reaching(struct wf_up_axis a, int64_t at, bool second)
{
    int64_t left = 0, right = a.out;
    while (left < right) {
        const int64_t mid = left + (right - left) / 2;
        const struct wf_up_source s = wf_up_source(a, mid);
        if ((second ? s.second : s.first) >= at)
            right = mid;
        else
            left = mid + 1;
    }
    return left;
}
