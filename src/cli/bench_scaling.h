/* What bench --scaling has measured, and its picture. */
#ifndef WF_CLI_BENCH_SCALING_H
#define WF_CLI_BENCH_SCALING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

enum { WF_SCALING_MOST = 16 };
enum wf_scaling_kind { WF_SCALING_WEAK, WF_SCALING_STRONG, WF_SCALING_KINDS };

struct wf_scaling_point {
    int ranks;
    int64_t batch; /* global; 0: fewer samples than ranks, nothing was measured */
    double seconds, rate, efficiency; /* of a step; images per second; against the first */
    double loss;                      /* after the steps */
    double train_loss, mean_iou;      /* after training; NaN: not asked for */
};

struct wf_scaling {
    int count;
    struct wf_scaling_point points[WF_SCALING_KINDS][WF_SCALING_MOST];
};

extern const char *const wf_scaling_names[WF_SCALING_KINDS];

/* Images per second over ranks, against what they would be if nothing were lost. */
const char *wf_scaling_svg(struct wf_arena *arena, const struct wf_scaling *s, const char *title);

#endif
