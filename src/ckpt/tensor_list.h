/*
 * The tensors of a checkpoint in the order of its file, and where their elements are: in the memory of a run and its
 * optimiser, on another rank (exec/holders.h), or in a snapshot that was taken of both (ckpt/snapshot.h).
 */
#pragma once

#include "base/arena.h"
#include "ckpt/checkpoint.h"

struct wf_tensor_item {
    const struct wf_value *value;
    const char *name;  /* in the file */
    int array;         /* as exec/holders.h numbers them */
    float *ours;       /* in the device's memory, our layout; NULL: another rank holds it */
    const float *kept; /* in a snapshot, our layout; NULL: there is none */
};

struct wf_tensor_list {
    struct wf_arena arena;
    struct wf_tensor_item *items;
    size_t count, room;
    float *buffer;       /* for the largest of them, in PyTorch's layout */
    float *fetched;      /* likewise from another rank, in our layout; NULL: all are here */
    struct wf_host host; /* of the one at hand, in ours */
    const struct wf_run *run;
};

/* "param.NAME" and so on; NULL for values that have no tensor in this pass. Passes are: parameters, states, then each
 * array of the optimiser. */
const char *wf_tensor_name(struct wf_arena *arena, const struct wf_value *v, int pass);

/* All that a run and its optimiser (NULL: weights only) keep from step to step. */
void wf_tensor_list_init(struct wf_tensor_list *t, const struct wf_run *run,
                         const struct wf_optim *optim);
void wf_tensor_list_release(struct wf_tensor_list *t);
/* Room for the largest tensor, to be freed; NULL when there is no memory. */
float *wf_tensor_list_room(const struct wf_tensor_list *t, struct wf_err *err);
/* Allocates `buffer`, and `fetched` where it is needed. */
[[nodiscard]] bool wf_tensor_list_buffer(struct wf_tensor_list *t, struct wf_err *err);

/* Maps the tensor's memory for reading or writing in our layout. */
float *wf_tensor_map(struct wf_tensor_list *t, const struct wf_tensor_item *item);
/* Its elements in PyTorch's layout, valid until the next call; NULL on failure. */
const float *wf_tensor_give(struct wf_tensor_list *t, const struct wf_tensor_item *item,
                            struct wf_err *err);

/* The file of these tensors (checkpoint.c). */
[[nodiscard]] bool wf_tensor_list_write(struct wf_tensor_list *t, const char *path,
                                        const struct wf_checkpoint_info *info, struct wf_err *err);
