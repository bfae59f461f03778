/* Power iteration on the centred rows, without their covariance: v <- X^T X v. What a component explains is taken out
 * of the rows before the next. */
#include "train/projection.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { ITERATIONS = 300 };

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* To length one; false where there is none. */
static bool normalise(double *v, int64_t n)
{
    const double length = sqrt(dot(v, v, n));
    for (int64_t i = 0; i < n && length > 0; i++)
        v[i] /= length;
    return length > 0;
}

static void centre(double *x, int64_t n, int64_t channels)
{
    for (int64_t c = 0; c < channels; c++) {
        double mean = 0;
        for (int64_t i = 0; i < n; i++)
            mean += x[i * channels + c] / (double)n;
        for (int64_t i = 0; i < n; i++)
            x[i * channels + c] -= mean;
    }
}

/* The longest row, which the component of largest variance is not orthogonal to. */
static bool begin(const double *x, int64_t n, int64_t channels, double *v)
{
    double most = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const double square = dot(x + i * channels, x + i * channels, channels);
        at = square > most ? i : at;
        most = fmax(most, square);
    }
    memcpy(v, x + at * channels, (size_t)channels * sizeof *v);
    return normalise(v, channels);
}

static void turn(double *v, int64_t channels)
{
    double largest = 0;
    for (int64_t c = 0; c < channels; c++)
        largest = fabs(v[c]) > fabs(largest) ? v[c] : largest;
    for (int64_t c = 0; c < channels && largest < 0; c++)
        v[c] = -v[c];
}

/* The component in v; `next` is room for another. False where the rows are all zero. */
static bool find(const double *x, int64_t n, int64_t channels, double *v, double *next)
{
    if (!begin(x, n, channels, v))
        return false;
    for (int k = 0; k < ITERATIONS; k++) {
        memset(next, 0, (size_t)channels * sizeof *next);
        for (int64_t i = 0; i < n; i++) {
            const double along = dot(x + i * channels, v, channels);
            for (int64_t c = 0; c < channels; c++)
                next[c] += along * x[i * channels + c];
        }
        if (!normalise(next, channels))
            return false;
        const bool same = dot(next, v, channels) > 1 - 1e-14;
        memcpy(v, next, (size_t)channels * sizeof *v);
        if (same)
            break;
    }
    turn(v, channels);
    return true;
}

void wf_project(const float *rows, int64_t n, int64_t channels, float *xy, double share[2])
{
    const size_t count = (size_t)(n * channels);
    double *const x = wf_take((count + 2 * (size_t)channels + 1) * sizeof *x);
    double *const v = x + count, *const next = v + channels;
    for (size_t i = 0; i < count; i++)
        x[i] = rows[i];
    centre(x, n, channels);
    const double all = dot(x, x, (int64_t)count);
    memset(xy, 0, 2 * (size_t)n * sizeof *xy);
    for (int k = 0; k < 2; k++) {
        share[k] = 0;
        if (!(all > 0) || !find(x, n, channels, v, next))
            continue;
        for (int64_t i = 0; i < n; i++) {
            const double along = dot(x + i * channels, v, channels);
            xy[2 * i + k] = (float)along;
            share[k] += along * along / all;
            for (int64_t c = 0; c < channels; c++)
                x[i * channels + c] -= along * v[c];
        }
    }
    free(x);
}
