/*
 * How well figures foretell what was not measured: kernels of each pair of channel counts from all others.
 *
 *     build/bench/figures_cross FILE...
 *     build/bench/figures_cross --thin 0.05 FILE > share/figures/NAME.txt
 *
 * FILE is what 'check --calibrate' wrote, or one of share/figures/. Rows of a kind with the same channels are left
 * out together, as of a network whose width the calibration does not have, and foretold from the kind's other rows.
 * A line for each kind with most seconds: its part of all seconds, the mean of |log2(foretold / measured)| and of the
 * ratio, both weighted by seconds, for all rows and for those whose channels are no multiples of 16.
 * With --thin it prints the table without rows that follow from the others to this part, as tables are shipped.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "plan/figures_inside.h"

struct sums {
    double weight, error, foretold, measured;
    int count;
};

static void add(struct sums *to, double foretold, double measured)
{
    const double weight = sqrt(measured);
    to->weight += weight;
    to->error += weight * fabs(log2(foretold / measured));
    to->foretold += foretold;
    to->measured += measured;
    to->count++;
}

static void print(const char *name, const struct sums *s)
{
    if (s->count > 0)
        (void)printf("  %s %5d rows, off by %4.1f%%, together %.2f", name, s->count,
                     100 * (exp2(s->error / s->weight) - 1), s->foretold / s->measured);
}

static bool is_odd(const struct wf_load *load)
{
    for (int a = WF_LOAD_IN; a <= WF_LOAD_OUT; a++) {
        const long channels = lrint(exp2((double)load->log[a]));
        if (channels > 4 && channels % 16 != 0)
            return true;
    }
    return false;
}

static bool is_same_width(const struct wf_load *a, const struct wf_load *b)
{
    return a->log[WF_LOAD_IN] == b->log[WF_LOAD_IN] && a->log[WF_LOAD_OUT] == b->log[WF_LOAD_OUT];
}

static void leave_out(const struct wf_figures_kind *kind, const double peak[3], struct sums *all,
                      struct sums *odd)
{
    struct wf_figures_row *const rest = malloc(sizeof *rest * (size_t)kind->count);
    for (int i = 0; rest && i < kind->count; i++) {
        const struct wf_figures_row *const row = &kind->first[i];
        struct wf_figures_kind some = { .first = rest };
        for (int k = 0; k < kind->count; k++)
            if (!is_same_width(&row->load, &kind->first[k].load))
                rest[some.count++] = kind->first[k];
        if (some.count < 4)
            continue;
        wf_figures_fit(&some, peak);
        const double foretold = wf_figures_kind_seconds(&some, &row->load);
        add(all, foretold, row->seconds);
        if (is_odd(&row->load))
            add(odd, foretold, row->seconds);
    }
    free(rest);
}

static void cross(const struct wf_figures *figures)
{
    size_t count;
    const struct wf_figures_kind *const kinds = wf_figures_kinds(figures, &count);
    struct sums total = { 0 }, total_odd = { 0 };
    for (size_t i = 0; i < count; i++) {
        struct sums all = { 0 }, odd = { 0 };
        leave_out(&kinds[i], wf_figures_peak(figures), &all, &odd);
        const struct wf_load *const load = &kinds[i].first->load;
        if (all.count >= 20) {
            (void)printf("%-12s %-4s %-10s %d:", load->name, load->type,
                         load->fused ? load->fused : "-", kinds[i].first->threads);
            print("all", &all);
            print("odd", &odd);
            (void)printf("\n");
        }
        total.weight += all.weight;
        total.error += all.error;
        total.foretold += all.foretold;
        total.measured += all.measured;
        total.count += all.count;
        total_odd.weight += odd.weight;
        total_odd.error += odd.error;
        total_odd.foretold += odd.foretold;
        total_odd.measured += odd.measured;
        total_odd.count += odd.count;
    }
    print("all", &total);
    print("odd", &total_odd);
    (void)printf("\n");
}

static void print_thin(struct wf_figures *figures, double tolerance)
{
    struct wf_arena arena = { 0 };
    wf_figures_thin(figures, tolerance);
    (void)fputs(wf_figures_print(&arena, figures), stdout);
    wf_arena_release(&arena);
}

int main(int argc, char **argv)
{
    const bool thin = argc > 2 && strcmp(argv[1], "--thin") == 0;
    for (int i = thin ? 3 : 1; i < argc; i++) {
        struct wf_err err = { 0 };
        FILE *const file = fopen(argv[i], "rb");
        enum { MOST = 64 << 20 };
        char *const text = calloc(1, MOST + 1);
        struct wf_figures *figures = NULL;
        if (file && text && fread(text, 1, MOST, file) > 0)
            figures = wf_figures_parse(text, argv[i], &err);
        if (figures && thin)
            print_thin(figures, strtod(argv[2], NULL));
        else if (figures)
            cross(figures);
        else
            (void)fprintf(stderr, "'%s': %s\n", argv[i], err.text);
        wf_figures_free(figures);
        free(text);
        if (file)
            (void)fclose(file);
    }
    return 0;
}
