/*
 * Vectors as points of a plane: their first two principal components.
 *
 *     float xy[2 * n];
 *     double share[2];
 *     wf_project(vectors, n, channels, xy, share);
 *
 * `share` is the part of all variance that each component has. The sign of a component is that which makes its
 * largest element positive, so that the same vectors give the same picture.
 */
#pragma once

#include <stdint.h>

/* Of `n` rows of `channels` numbers; `xy` has two for each row. */
void wf_project(const float *rows, int64_t n, int64_t channels, float *xy, double share[2]);
