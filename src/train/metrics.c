#include "train/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { FIVE = 5 };

static size_t cells(const struct wf_metrics *m)
{
    return (size_t)m->classes * (size_t)m->classes;
}

int wf_metrics_classes(int64_t channels)
{
    return channels < 2 ? 2 : (int)channels;
}

void wf_metrics_init(struct wf_metrics *m, int classes)
{
    *m = (struct wf_metrics){ .classes = classes };
    m->confusion = wf_take_zeroed(cells(m), sizeof *m->confusion);
}

void wf_metrics_release(struct wf_metrics *m)
{
    free(m->confusion);
    *m = (struct wf_metrics){ 0 };
}

void wf_metrics_clear(struct wf_metrics *m)
{
    memset(m->confusion, 0, cells(m) * sizeof *m->confusion);
    m->near = 0;
}

void wf_metrics_add(struct wf_metrics *to, const struct wf_metrics *from)
{
    WF_BUG_ON(to->classes != from->classes, "%d and %d classes", to->classes, from->classes);
    for (size_t i = 0; i < cells(to); i++)
        to->confusion[i] += from->confusion[i];
    to->near += from->near;
}

int64_t wf_metrics_total(const struct wf_metrics *m)
{
    int64_t total = 0;
    for (size_t i = 0; i < cells(m); i++)
        total += m->confusion[i];
    return total;
}

/* --- counting --- */

/* The class that a pixel's channels predict; with one channel, whether it is above `level`. */
static int64_t largest(const struct wf_view *v, int64_t offset, double level)
{
    const int64_t channels = wf_region_extent(v->box, WF_C);
    double best = wf_dtype_get(v->dtype, v->data, offset);
    if (channels == 1)
        return best > level;
    int64_t which = 0;
    for (int64_t c = 1; c < channels; c++) {
        const double value = wf_dtype_get(v->dtype, v->data, offset + c * v->stride[WF_C]);
        if (value > best) {
            best = value;
            which = c;
        }
    }
    return which;
}

static int64_t truth_at(const struct wf_view *target, int64_t offset)
{
    if (target->dtype == WF_I32)
        return ((const int32_t *)target->data)[offset];
    const double first = wf_dtype_get(target->dtype, target->data, offset);
    if (first < 0 || first > 1) /* a label that does not count stands in all channels */
        return -1;
    return largest(target, offset, 0.5);
}

int64_t wf_metrics_truth(const struct wf_view *target, const int64_t at[WF_AXES])
{
    return truth_at(target, wf_view_offset(target, at[WF_N], at[WF_D], at[WF_H], at[WF_W],
                                           target->box.lo[WF_C]));
}

int32_t wf_metrics_said(const struct wf_view *logits, const int64_t at[WF_AXES])
{
    const int64_t offset =
        wf_view_offset(logits, at[WF_N], at[WF_D], at[WF_H], at[WF_W], logits->box.lo[WF_C]);
    return (int32_t)largest(logits, offset, 0);
}

void wf_metrics_add_one(struct wf_metrics *m, int32_t truth, int32_t said)
{
    if (truth >= 0 && truth < m->classes)
        m->confusion[(int64_t)truth * m->classes + said]++;
}

double wf_metrics_margin(const struct wf_view *logits, const int64_t at[WF_AXES], int64_t truth)
{
    const int64_t channels = wf_region_extent(logits->box, WF_C), first = logits->box.lo[WF_C];
    const double own = wf_view_get(logits, at[WF_N], at[WF_D], at[WF_H], at[WF_W],
                                   channels == 1 ? first : first + truth);
    if (channels == 1)
        return truth ? -own : own;
    double other = -INFINITY;
    for (int64_t c = 0; c < channels; c++)
        if (c != truth)
            other =
                fmax(other, wf_view_get(logits, at[WF_N], at[WF_D], at[WF_H], at[WF_W], first + c));
    return other - own;
}

/* Among the FIVE largest; of equals the first count as larger, as largest() has it. */
static bool is_near(const struct wf_view *v, int64_t offset, int64_t truth)
{
    const double own = wf_dtype_get(v->dtype, v->data, offset + truth * v->stride[WF_C]);
    int above = 0;
    for (int64_t c = 0; c < wf_region_extent(v->box, WF_C); c++) {
        const double value = wf_dtype_get(v->dtype, v->data, offset + c * v->stride[WF_C]);
        above += value > own || (value == own && c < truth);
    }
    return above < FIVE;
}

void wf_metrics_count(struct wf_metrics *m, const struct wf_view *logits,
                      const struct wf_view *target, struct wf_region part, const int32_t *ignore)
{
    if (wf_region_is_empty(part))
        return;
    const int64_t *const lo = part.lo, *const hi = part.hi;
    for (int64_t n = lo[WF_N]; n < hi[WF_N]; n++)
        for (int64_t d = lo[WF_D]; d < hi[WF_D]; d++)
            for (int64_t h = lo[WF_H]; h < hi[WF_H]; h++)
                for (int64_t w = lo[WF_W]; w < hi[WF_W]; w++) {
                    const int64_t truth =
                        truth_at(target, wf_view_offset(target, n, d, h, w, target->box.lo[WF_C]));
                    if (truth < 0 || truth >= m->classes || (ignore && truth == *ignore))
                        continue;
                    const int64_t at = wf_view_offset(logits, n, d, h, w, logits->box.lo[WF_C]);
                    m->confusion[truth * m->classes + largest(logits, at, 0)]++;
                    if (m->per_image && m->classes > FIVE)
                        m->near += is_near(logits, at, truth);
                }
}

bool wf_metrics_sum(struct wf_metrics *m, struct wf_comm *comm, struct wf_err *err)
{
    return wf_comm_sum(comm, m->confusion, cells(m), WF_I64, err) &&
           wf_comm_sum(comm, &m->near, 1, WF_I64, err);
}

/* --- scores --- */

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

/* Over the values that are there. */
static double mean(const double *values, int count)
{
    double sum = 0;
    int there = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(values[i])) {
            sum += values[i];
            there++;
        }
    return ratio(sum, there);
}

struct wf_scores wf_scores(struct wf_arena *arena, const struct wf_metrics *m)
{
    const int n = m->classes;
    double *const iou = wf_arena_array(arena, n, double);
    double *const dice = wf_arena_array(arena, n, double);
    double *const recall = wf_arena_array(arena, n, double);
    double *const precision = wf_arena_array(arena, n, double);
    double *const fraction = wf_arena_array(arena, n, double);
    const int64_t total = wf_metrics_total(m);
    int64_t hits = 0;
    for (int c = 0; c < n; c++) {
        int64_t truth = 0, predicted = 0;
        for (int k = 0; k < n; k++) {
            truth += m->confusion[(int64_t)c * n + k];
            predicted += m->confusion[(int64_t)k * n + c];
        }
        const int64_t hit = m->confusion[(int64_t)c * n + c];
        hits += hit;
        /* A class that is not there has no score: what is taken for it counts against the others. */
        const double there = truth > 0 ? 1 : 0;
        iou[c] = ratio((double)hit, there * (double)(truth + predicted - hit));
        dice[c] = ratio(2 * (double)hit, there * (double)(truth + predicted));
        recall[c] = ratio((double)hit, (double)truth);
        precision[c] = ratio((double)hit, (double)predicted);
        fraction[c] = ratio((double)truth, (double)total);
    }
    return (struct wf_scores){ .classes = n,
                               .counted = total,
                               .iou = iou,
                               .dice = dice,
                               .recall = recall,
                               .precision = precision,
                               .fraction = fraction,
                               .mean_iou = mean(iou, n),
                               .mean_dice = mean(dice, n),
                               .accuracy = ratio((double)hits, (double)total),
                               .per_image = m->per_image,
                               .top5 = m->per_image && n > FIVE
                                           ? ratio((double)m->near, (double)total)
                                           : (double)NAN };
}
