/*
 * A fingerprint of a dataset: to detect whether a resumed run, or another rank, has the same
 * dataset.
 *
 * A sample's fingerprint is a hash over its name, size in pixels, label and part, and over its
 * files: name within the dataset, bytes, and the first and last block of their content. It does not
 * depend on the path of the dataset, nor on times. `all` is over all samples and over the meaning
 * of labels.
 *
 *     struct wf_fingerprint f;
 *     bool ok = wf_dataset_fingerprint(&arena, ds, &f, err);
 *     const int64_t sample = wf_fingerprint_differs(&f, &other);    wf_dataset_sample(ds, sample)->name
 *
 * Files of at most WF_FINGERPRINT_LOOKS samples are opened, spread evenly over the dataset: in a
 * larger one, the replacement of other files by files of the same name and size in pixels is not
 * detected.
 */
#pragma once

#include "data/dataset.h"

enum { WF_FINGERPRINT_LOOKS = 16384, WF_FINGERPRINT_UNKNOWN = -2 };

struct wf_fingerprint {
    uint64_t all;
    int64_t samples;
    const uint64_t *each; /* by sample */
};

/* Not collective: of the files that this process sees. `each` lives in the arena. */
[[nodiscard]] bool wf_dataset_fingerprint(struct wf_arena *arena, const struct wf_dataset *ds,
                                          struct wf_fingerprint *f, struct wf_err *err);
/* The first sample that is not the same in both, or that one of them lacks; -1: none. */
int64_t wf_fingerprint_differs(const struct wf_fingerprint *a, const struct wf_fingerprint *b);

/* As a text for a checkpoint; of large datasets without their samples. */
const char *wf_fingerprint_print(struct wf_arena *arena, const struct wf_fingerprint *f);
/* Whether it is the text of the same dataset. If not, `*samples` is the number of the other's
 * samples, and `*first` the first sample that differs; -1: only the meaning of labels differs;
 * WF_FINGERPRINT_UNKNOWN: the text has no samples. */
bool wf_fingerprint_matches(const struct wf_fingerprint *f, const char *text, int64_t *samples,
                            int64_t *first);
