#include "base/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double wf_median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    const double upper = values[count / 2];
    return count % 2 ? upper : (values[count / 2 - 1] + upper) / 2;
}
