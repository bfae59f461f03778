/* The median of a list of numbers. */
#pragma once

#include <stdint.h>

/* Sorts the values, the least first; count > 0, and none of them NaN. Of an even count it is the mean of the
 * two in the middle. */
double wf_median(double *values, int64_t count);
