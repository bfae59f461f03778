/* The texts of a checkpoint: struct wf_checkpoint_info to and from metadata strings. */
#pragma once

#include "base/arena.h"
#include "ckpt/checkpoint.h"

enum wf_checkpoint_text {
    WF_CHECKPOINT_FORMAT,
    WF_CHECKPOINT_CONFIG,
    WF_CHECKPOINT_SEED,
    WF_CHECKPOINT_STEP, /* from here on: struct wf_position */
    WF_CHECKPOINT_EPOCH,
    WF_CHECKPOINT_BATCH,
    WF_CHECKPOINT_SKIPPED,
    WF_CHECKPOINT_IN_A_ROW,
    WF_CHECKPOINT_LOSS_SUM,
    WF_CHECKPOINT_LOSS_SAMPLES,
    WF_CHECKPOINT_LOSS,
    WF_CHECKPOINT_BEST,
    WF_CHECKPOINT_BEST_EPOCH,
    WF_CHECKPOINT_STALE,
    WF_CHECKPOINT_SECONDS,
    WF_CHECKPOINT_LOSS_SCALE,
    WF_CHECKPOINT_SCALE_STREAK,
    WF_CHECKPOINT_LR_FACTOR,
    WF_CHECKPOINT_LR_BEST,
    WF_CHECKPOINT_LR_SEEN,
    WF_CHECKPOINT_LR_BAD, /* up to here */
    WF_CHECKPOINT_MEAN,
    WF_CHECKPOINT_DEVIATION,
    WF_CHECKPOINT_CLASS_NAMES,
    WF_CHECKPOINT_DATA, /* from here on: not in older files, whose checksum does not cover them */
    WF_CHECKPOINT_TARGETS,
    WF_CHECKPOINT_TEXTS
};
extern const char *const wf_checkpoint_keys[WF_CHECKPOINT_TEXTS];

#define WF_CHECKPOINT_HASH_KEY "xxh64"
enum { WF_CHECKPOINT_HASH = 17 }; /* 16 digits and the end */

struct wf_checkpoint_texts {
    const char *value[WF_CHECKPOINT_TEXTS]; /* NULL: absent */
};

void wf_checkpoint_print(struct wf_arena *arena, const struct wf_checkpoint_info *info,
                         struct wf_checkpoint_texts *texts);
[[nodiscard]] bool wf_checkpoint_parse(struct wf_arena *arena,
                                       const struct wf_checkpoint_texts *texts,
                                       struct wf_checkpoint_info *info, struct wf_err *err);
