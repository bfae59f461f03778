/*
 * Sums per channel over a walk.
 *
 * S1: the walk is cut into chunks by its pieces alone, and chunks are added in order: the result
 *     has the same bits for any number of threads.
 */
#include "device/cpu/cpu.h"

size_t wf_cpu_sum_scratch(int sums, int64_t channels)
{
    return (size_t)(WF_CPU_CHUNKS + 1) * (size_t)(sums * wf_max(1, channels)) * sizeof(double);
}

struct chunk {
    const struct wf_cpu_walk *walk;
    const struct wf_cpu_sum *sum;
    int64_t first, end; /* pieces */
    double *part;       /* sums * channels */
};

static int64_t lane_count(const struct chunk *c)
{
    return c->walk->block * c->sum->channels;
}

static void add_lanes(const struct chunk *c, const struct wf_cpu_lanes *lanes)
{
    const int64_t channels = c->sum->channels, n = lane_count(c);
    for (int k = 0; k < c->sum->sums; k++) {
        double *part = c->part + k * channels;
        const double *lane = lanes->sum[k];
        for (int64_t i = 0; i < n; i += channels)
            for (int64_t j = 0; j < channels; j++)
                part[j] += lane[i + j];
    }
}

static void run_chunk(const struct chunk *c)
{
    struct wf_cpu_lanes lanes;
    const struct wf_cpu_sum *sum = c->sum;
    const int64_t n = lane_count(c);
    memset(lanes.total, 0, sizeof lanes.total);
    for (int k = 0; k < sum->sums; k++)
        memset(lanes.sum[k], 0, (size_t)n * sizeof(double));
    memset(c->part, 0, (size_t)(sum->sums * wf_max(1, sum->channels)) * sizeof *c->part);
    for (int64_t i = c->first; i < c->end; i++) {
        const struct wf_cpu_piece piece = wf_cpu_piece_at(c->walk, i);
        sum->body(&piece, sum->context, &lanes);
    }
    add_lanes(c, &lanes);
    if (sum->channels == 0)
        for (int k = 0; k < sum->sums; k++)
            c->part[k] = lanes.total[k];
}

const double *wf_cpu_walk_sum(const struct wf_cpu_walk *walk, const struct wf_cpu_sum *sum,
                              void *scratch)
{
    const int64_t n = sum->sums * wf_max(1, sum->channels), pieces = walk->pieces;
    const int64_t chunks = wf_min(wf_ceil_div(pieces, 16), WF_CPU_CHUNKS);
    double *total = scratch;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (chunks > 1)
#endif
    for (int64_t i = 0; i < chunks; i++) {
        const struct chunk c = { .walk = walk,
                                 .sum = sum,
                                 .first = wf_split_point(pieces, chunks, i),
                                 .end = wf_split_point(pieces, chunks, i + 1),
                                 .part = total + (i + 1) * n };
        run_chunk(&c);
    }
    memset(total, 0, (size_t)n * sizeof *total);
    for (int64_t i = 0; i < chunks; i++)
        for (int64_t k = 0; k < n; k++)
            total[k] += total[(i + 1) * n + k];
    return total;
}
