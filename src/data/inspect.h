/*
 * Inspection of a dataset: its properties and possible problems.
 *
 *     struct wf_inspection in;
 *     wf_inspect(ds, &in);
 *     ... in.warnings[i], one sentence each ...
 *     wf_inspection_release(&in);
 */
#pragma once

#include "data/dataset.h"

struct wf_inspection {
    struct wf_arena arena;
    int64_t good;                                /* samples without a problem */
    int64_t held_out;                            /* of them, by the dataset itself */
    int64_t smallest[WF_AXES], largest[WF_AXES]; /* extents along each axis, over good samples */
    int64_t sizes;                               /* distinct ones */
    double pixels;                               /* of all good samples */
    bool measured;                               /* `normal` is there */
    struct wf_normal normal;
    const char *unreadable; /* the error, if pixels cannot be read; or NULL */
    const char **warnings;  /* for the user; in addition to the dataset's problems */
    size_t n_warnings, room;
};

/* The dataset should have been opened with `tolerate`. Reads a spread of windows. */
void wf_inspect(const struct wf_dataset *ds, struct wf_inspection *in);
void wf_inspection_release(struct wf_inspection *in);
