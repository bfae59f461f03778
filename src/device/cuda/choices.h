/*
 * Which of cuDNN's kernels was the fastest, by problem: kept in memory while a context lives and in a
 * file between runs.
 *
 * A line of the file is a key, a tab and a choice; a key names the GPU, cuDNN's version and the
 * problem. Ranks and processes may share the file: each reads it when it opens, and writes all that it
 * knows as a new file in the old one's place when it has found something new. Lines that do not read
 * back, and a file that cannot be written, are passed over: it only saves time.
 */
#ifndef WF_DEVICE_CUDA_CHOICES_H
#define WF_DEVICE_CUDA_CHOICES_H

#include "device/cuda/cudnn.h"

struct wf_cuda_choices;

/* `path` NULL: widefield/cudnn in $XDG_CACHE_HOME or ~/.cache; "": no file. */
struct wf_cuda_choices *wf_cuda_choices_new(const struct wf_cuda *cuda, const char *path);
void wf_cuda_choices_free(struct wf_cuda_choices *choices); /* writes what is new */

/* False where the problem is not known. WF_ENGINE_NONE: there is none for it. */
bool wf_cuda_choices_find(const struct wf_cuda_choices *choices,
                          const struct wf_cudnn_problem *problem, struct wf_cudnn_choice *choice);
void wf_cuda_choices_put(struct wf_cuda_choices *choices, const struct wf_cudnn_problem *problem,
                         const struct wf_cudnn_choice *choice);

#endif
