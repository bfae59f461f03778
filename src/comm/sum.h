/*
 * The arithmetic of sums over ranks, independent of the transport.
 *
 * Each element is summed in the order of `parts`, so the result does not depend on which rank adds
 * which block. bf16 and f16 are added in f32 and rounded once. Integers wrap around.
 */
#pragma once

#include <stddef.h>

#include "tensor/dtype.h"

/* Elements first .. first + count of all parts are replaced by their sum. */
void wf_sum_block(enum wf_dtype dtype, void *const *parts, int ranks, size_t first, size_t count);

/* sum += part; a part in bf16 or f16 is added to a sum in f32. */
void wf_sum_add(enum wf_dtype part_dtype, void *sum, const void *part, size_t count);

/* bf16 or f16 to f32 and back. */
void wf_sum_widen(enum wf_dtype dtype, float *to, const void *from, size_t count);
void wf_sum_narrow(enum wf_dtype dtype, void *to, const float *from, size_t count);
