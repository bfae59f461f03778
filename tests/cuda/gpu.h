/* The memory and the surroundings of kernels under test: a GPU's, or the host's where they are
 * emulated (tests/emulate/). */
#ifndef WF_TESTS_CUDA_GPU_H
#define WF_TESTS_CUDA_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct wf_context;

/* Asked for by WF_TEST_SHORT: little of each case, where a sanitizer slows all down. */
static inline bool gpu_is_brief(void)
{
    return getenv("WF_TEST_SHORT") != NULL;
}

/* False and a line on stdout where there is no GPU to run on. */
bool gpu_start(void);
struct wf_context *gpu_context(void); /* for calls */
struct CUstream_st *gpu_stream(void); /* the context's */
void gpu_step(uint64_t step);         /* the number of the step that calls belong to */
void *gpu_alloc(size_t bytes);        /* of exactly that size, apart from all others */
void gpu_free(void *memory);
size_t gpu_room(void); /* bytes that are free */
void gpu_put(void *to, const void *from, size_t bytes);
void gpu_get(void *to, const void *from, size_t bytes);
/* The next kernels run in another order, and without tickets: their results must be the same. */
void gpu_turn(bool other_way);
/* The next convolutions of f32 images shorten their factors to tf32. */
void gpu_shorten(bool tf32);
/* Waits; false when something went wrong since the last call. */
bool gpu_finish(void);

#endif
