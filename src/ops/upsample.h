/*
 * Where the elements of an upsampling come from along one axis, in whole numbers: for the operator and
 * for the kernels of CPU and GPU.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/attrs.h"
#include "ops/build.h"

#ifdef __CUDACC__
#define WF_UPSAMPLE static inline __host__ __device__
#else
#define WF_UPSAMPLE static inline
#endif

/* The extents of the source and of the result; and how far the source moves on with each result, step / steps. */
struct wf_up_axis {
    int64_t mode, in, out, step, steps;
};

/* (1 - t) * first + t * second; second == first when t is 0. With cubic modes: the first and the last of the elements
 * that are taken, and where between the inner two. */
struct wf_up_source {
    int64_t first, second;
    double t;
};

WF_UPSAMPLE struct wf_up_axis wf_up_axis(const struct wf_upsample_attrs *a, int i, int64_t in,
                                         int64_t out)
{
    struct wf_up_axis axis = { a->mode, in, out, in, out };
    if (a->mode == WF_LINEAR_CORNERS || a->mode == WF_CUBIC_CORNERS) {
        axis.step = in - 1;
        axis.steps = out > 1 ? out - 1 : 1;
    } else if (a->steps[i]) {
        axis.step = a->step[i];
        axis.steps = a->steps[i];
    }
    return axis;
}

WF_UPSAMPLE bool wf_up_is_cubic(int64_t mode)
{
    return mode == WF_CUBIC || mode == WF_CUBIC_CORNERS;
}

/* Element `at`, or the one at the border that stands for it. */
WF_UPSAMPLE int64_t wf_up_inside(struct wf_up_axis a, int64_t at)
{
    return at < 0 ? 0 : at >= a.in ? a.in - 1 : at;
}

/* The element below source position above / bottom, and the rest. */
WF_UPSAMPLE int64_t wf_up_below(struct wf_up_axis a, int64_t i, double *t)
{
    const bool centres = a.mode == WF_CUBIC || a.mode == WF_LINEAR;
    const int64_t above = centres ? (2 * i + 1) * a.step - a.steps : i * a.step;
    const int64_t bottom = centres ? 2 * a.steps : a.steps;
    const int64_t top = above < 0 && a.mode == WF_LINEAR ? 0 : above;
    const int64_t below = top >= 0 ? top / bottom : -((-top + bottom - 1) / bottom);
    *t = (double)(top - below * bottom) / (double)bottom;
    return below;
}

WF_UPSAMPLE struct wf_up_source wf_up_source(struct wf_up_axis a, int64_t i)
{
    struct wf_up_source s = { 0, 0, 0 };
    if (a.mode == WF_NEAREST || a.mode == WF_NEAREST_EXACT) {
        const int64_t at =
            a.mode == WF_NEAREST ? i * a.step / a.steps : (2 * i + 1) * a.step / (2 * a.steps);
        s.first = s.second = wf_up_inside(a, at);
        return s;
    }
    const int64_t below = wf_up_below(a, i, &s.t);
    if (wf_up_is_cubic(a.mode)) {
        s.first = wf_up_inside(a, below - 1);
        s.second = wf_up_inside(a, below + 2);
        return s;
    }
    s.first = s.second = wf_up_inside(a, below);
    if (s.t != 0 && s.first + 1 < a.in)
        s.second = s.first + 1;
    else
        s.t = 0;
    return s;
}

/* The weight of the element at this distance from the source position: Keys's kernel with a = -0.75. */
WF_UPSAMPLE double wf_up_cubic(double distance)
{
    const double a = -0.75, x = distance < 0 ? -distance : distance;
    if (x >= 2)
        return 0;
    return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/* How much of source element p goes into result element i. */
WF_UPSAMPLE double wf_up_share(struct wf_up_axis a, int64_t i, int64_t p)
{
    if (wf_up_is_cubic(a.mode)) {
        double t, share = 0;
        const int64_t below = wf_up_below(a, i, &t);
        for (int k = -1; k <= 2; k++) /* elements past the border are the one at it */
            if (wf_up_inside(a, below + k) == p)
                share += wf_up_cubic(t - (double)k);
        return share;
    }
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
