/*
 * plan --sweep and bench --sweep: bytes per rank against the side of the image, for several numbers
 * of ranks. The mesh of each point is the one that the cost model chooses.
 *
 * `measure` runs a point and fills in what it used (bench); NULL: the plans alone (plan). A point that
 * needs more than this machine or memory.limit has is planned, not measured.
 */
#pragma once

#include "cli/cli.h"
#include "train/job.h"

struct wf_sweep_point {
    int64_t side;
    int ranks;
    const char *mesh;        /* NULL: no mesh of so many ranks can be */
    double bytes, all_bytes; /* planned: of the rank that needs most, of all ranks */
    double seconds;          /* of a step, estimated */
    double peak, measured;   /* bytes used and seconds; NAN: not measured */
};

typedef bool wf_sweep_measure(struct wf_job *job, struct wf_sweep_point *point, struct wf_err *err);

[[nodiscard]] bool wf_sweep_run(struct wf_cli *cli, wf_sweep_measure *measure, struct wf_err *err);

/* The flags of both commands. */
#define WF_SWEEP_FLAGS                                                                             \
    { "sweep", NULL,                                                                               \
      "bytes per rank against the side of the image, for several numbers of ranks" },              \
        { "sides", "LIST", "of the sweep, such as 256,512,1024" },                                 \
    {                                                                                              \
        "over", "LIST", "numbers of ranks of the sweep (1,5,6,9,10,12,28)"                         \
    }
