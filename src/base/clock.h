/* Seconds of a clock that only goes forward. */
#ifndef WF_BASE_CLOCK_H
#define WF_BASE_CLOCK_H

#include <time.h>

static inline double wf_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
