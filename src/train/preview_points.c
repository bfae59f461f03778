/* Small pictures of a point cloud: parallel rays, from above and aside, the nearest point in front. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/loader.h"
#include "train/metrics.h"
#include "train/preview.h"

enum { DOT = 1 /* pixels around a point that it covers, too */ };

/* Where a point is seen: to the right, downwards, and how near. */
static void see(const double at[3], double to[3])
{
    const double turn = 0.6, tilt = 0.95; /* about the vertical axis; from the horizon, radians */
    const double x = cos(turn) * at[0] - sin(turn) * at[1];
    const double y = sin(turn) * at[0] + cos(turn) * at[1];
    to[0] = x;
    to[1] = -sin(tilt) * y - cos(tilt) * at[2];
    to[2] = -cos(tilt) * y + sin(tilt) * at[2];
}

struct frame {
    double least[2], scale;
    float *near; /* of each pixel */
};

static struct frame frame_of(const struct wf_cloud_batch *b, int64_t first, int64_t end)
{
    struct frame f = { .least = { (double)INFINITY, (double)INFINITY } };
    double most[2] = { -(double)INFINITY, -(double)INFINITY };
    for (int64_t i = first; i < end; i++) {
        double to[3];
        see(b->point_at + 3 * i, to);
        for (int k = 0; k < 2; k++) {
            f.least[k] = fmin(f.least[k], to[k]);
            most[k] = fmax(most[k], to[k]);
        }
    }
    const double size = fmax(most[0] - f.least[0], most[1] - f.least[1]);
    f.scale = (WF_PREVIEW_EDGE - 1 - 2 * DOT) / fmax(size, 1e-9);
    f.near = wf_take((size_t)WF_PREVIEW_EDGE * WF_PREVIEW_EDGE * sizeof *f.near);
    for (int i = 0; i < WF_PREVIEW_EDGE * WF_PREVIEW_EDGE; i++)
        f.near[i] = -INFINITY;
    return f;
}

struct dot {
    float color[3], label, guess;
};

static void paint(struct wf_preview *p, struct frame *f, const double at[3], const struct dot *d)
{
    double to[3];
    see(at, to);
    const int64_t x = DOT + (int64_t)((to[0] - f->least[0]) * f->scale);
    const int64_t y = DOT + (int64_t)((to[1] - f->least[1]) * f->scale);
    for (int64_t v = y - DOT; v <= y + DOT; v++)
        for (int64_t u = x - DOT; u <= x + DOT; u++) {
            const int64_t pixel = v * p->width + u;
            if (u < 0 || u >= p->width || v < 0 || v >= p->height || f->near[pixel] >= (float)to[2])
                continue;
            f->near[pixel] = (float)to[2];
            memcpy(p->image + 3 * pixel, d->color, sizeof d->color);
            p->label[pixel] = d->label;
            p->guess[pixel] = d->guess;
        }
}

/* The first three features; of fewer, the height. */
static void color_of(const struct wf_cloud_batch *b, int64_t point, float color[3])
{
    const float *const features = b->features + b->channels * b->point_voxels[point];
    for (int k = 0; k < 3; k++)
        color[k] = b->channels >= 3 ? features[k] : (float)b->point_at[3 * point + 2];
}

/* What is said of each voxel; -1: another rank has it. */
static int32_t *said_of(const struct wf_cloud_batch *b, const struct wf_view *logits)
{
    int32_t *const said = wf_take((size_t)(b->n + 1) * sizeof *said);
    for (int64_t i = 0; i < b->n; i++)
        said[i] = -1;
    for (int64_t i = 0; i < b->here; i++) {
        const int64_t at[WF_AXES] = { logits->box.lo[WF_N] + i };
        said[b->order[i]] = wf_metrics_said(logits, at);
    }
    return said;
}

/* Of ranks that have boxes of one sample, the one whose box is the lowest. */
static bool is_first(const struct wf_cloud_batch *b)
{
    return b->box[0] == INT32_MIN && b->box[2] == INT32_MIN && b->box[4] == INT32_MIN;
}

/* Such ranks draw the same dots. Pictures are added up, so each shows those that it has, and zeros elsewhere. */
static void draw(struct wf_preview *p, const struct wf_cloud_batch *b, int64_t row,
                 const struct wf_network *network, const struct wf_view *logits)
{
    const int64_t first = b->row_points[row], end = b->row_points[row + 1];
    const bool dense = network->logits->set != 0, first_box = is_first(b);
    struct frame f = frame_of(b, first, end);
    int32_t *const said = dense ? said_of(b, logits) : NULL;
    float back = 0;
    for (int i = 0; i < WF_PREVIEW_EDGE * WF_PREVIEW_EDGE; i++)
        p->label[i] = p->guess[i] = first_box ? -1 : 0;
    for (int64_t i = first; i < end; i++) {
        const bool counts = !network->has_ignore || b->point_labels[i] != network->ignore;
        struct dot d = { .label = counts ? (float)b->point_labels[i] : -1 };
        color_of(b, i, d.color);
        for (int k = 0; k < 3; k++)
            back = fminf(back, d.color[k]);
        d.guess = said ? (float)said[b->point_voxels[i]] : -1;
        if (said ? d.guess < 0 : !first_box)
            d = (struct dot){ 0 };
        paint(p, &f, b->point_at + 3 * i, &d);
    }
    for (int i = 0; i < WF_PREVIEW_EDGE * WF_PREVIEW_EDGE; i++)
        for (int k = 0; k < 3 && first_box && isinf(f.near[i]); k++)
            p->image[3 * i + k] = back;
    if (!dense && first_box) { /* of the cloud, where a classifier's verdict is looked for */
        const int64_t at[WF_AXES] = { b->first + row };
        p->label[0] = (float)b->row_labels[row];
        p->guess[0] = (float)wf_metrics_said(logits, at);
    }
    free(said);
    free(f.near);
}

bool wf_preview_points(struct wf_preview *p, const struct wf_cloud_batch *b, int64_t row,
                       const struct wf_network *network, const struct wf_view *logits,
                       struct wf_comm *comm, struct wf_err *err)
{
    const size_t pixels = (size_t)WF_PREVIEW_EDGE * WF_PREVIEW_EDGE;
    *p = (struct wf_preview){ .height = WF_PREVIEW_EDGE,
                              .width = WF_PREVIEW_EDGE,
                              .grey = b->channels < 3 };
    p->image = wf_take_zeroed(5 * pixels, sizeof *p->image);
    p->label = p->image + 3 * pixels;
    p->guess = p->label + pixels;
    if (row >= b->first && row < b->first + b->rows)
        draw(p, b, row - b->first, network, logits);
    return wf_comm_sum(comm, p->image, 5 * pixels, WF_F32, err);
}
