/* Seconds of a clock that only goes forward. */
#pragma once

#include <time.h>

static inline double wf_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
