/*
 * What a load takes that was not measured, from those of its kind that were.
 *
 * Plain seconds are a constant, and operations, bytes and weights at constant speeds: the four terms, none
 * negative, that suit the kind's rows best. Weights have a speed of their own because libraries copy them
 * into another order in each run. How far a load is from them changes slowly along the axes,
 * so it follows from the nearest rows, by kriging.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/figures_inside.h"

enum {
    NEAREST = 16, /* loads that an estimate is taken from */
    ENOUGH = 8,   /* loads of a kind, for terms of its own */
    TILE = 32,    /* channels that kernels take at once */
    FEW = 5,
};

/* How far along an axis loads of a kind are alike, in powers of two; and how much of what differs is chance. Chosen
 * such that kernels of networks that were measured on two machines follow best from those of others. */
static const float reach[WF_FIGURES_AXES] = { 9, 15, 7.5f, 7.5f, 9, 9, 1, 4, 4 };
static const double chance = 0.015;
/* By how many powers of two a row is slower than follows from the others, to be none that they follow from. */
static const double apart = 4;

/* By how many powers of two channels miss a multiple of TILE; 0 also for fewer than FEW, which all miss it. */
static float uneven(float log_channels)
{
    const long channels = lrint(exp2((double)log_channels));
    int misses = 0;
    for (long tile = TILE; channels >= FEW && tile > 1 && channels % tile != 0; tile /= 2)
        misses++;
    return (float)misses;
}

/* The axis behind a load's own is 0 for products of all channels with all, and up to 2 for those of groups and for no products: these
 * are other kernels, however many their operations. The last two are how channels suit vectors and tiles: 24 are not
 * between 16 and 32. */
void wf_figures_place(const struct wf_load *load, float at[WF_FIGURES_AXES])
{
    const float sparse =
        1 + load->log[WF_LOAD_IN] + load->log[WF_LOAD_OUT] - load->log[WF_LOAD_EACH];
    for (int a = 0; a < WF_LOAD_AXES; a++)
        at[a] = load->log[a] / reach[a];
    at[WF_LOAD_AXES] = fminf(fmaxf(sparse, 0), 2) / reach[WF_LOAD_AXES];
    for (int i = 0; i < 2; i++)
        at[WF_LOAD_AXES + 1 + i] = uneven(load->log[WF_LOAD_IN + i]) / reach[WF_LOAD_AXES + 1 + i];
}

/* In proportion to them: products of a position are with as many. */
static double weights_of(const struct wf_load *load)
{
    return exp2((double)load->log[WF_LOAD_EACH]);
}

static double plain_seconds(const struct wf_figures_kind *kind, const struct wf_load *load)
{
    return kind->terms[0] + kind->terms[1] * load->flops + kind->terms[2] * load->bytes +
           kind->terms[3] * weights_of(load);
}

/* --- terms --- */

/* Solves a symmetric system of n <= WF_FIGURES_TERMS equations by elimination; false: it has no one solution. */
static bool solve_terms(int n, double a[WF_FIGURES_TERMS][WF_FIGURES_TERMS + 1],
                        double x[WF_FIGURES_TERMS])
{
    for (int i = 0; i < n; i++) {
        if (fabs(a[i][i]) < 1e-9)
            return false;
        for (int k = i + 1; k < n; k++) {
            const double by = a[k][i] / a[i][i];
            for (int j = i; j <= n; j++)
                a[k][j] -= by * a[i][j];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        x[i] = a[i][n];
        for (int j = i + 1; j < n; j++)
            x[i] -= a[i][j] * x[j];
        x[i] /= a[i][i];
    }
    return true;
}

static bool is_apart(const struct wf_figures_kind *kind, const struct wf_figures_row *row)
{
    for (int i = 0; i < kind->n_apart; i++)
        if (kind->apart[i] == row)
            return true;
    return false;
}

/* Sums of products over a kind's rows, of each term's seconds over those measured, and of the latter over themselves: 1.
 * Units are those of the mean row, so that all are alike. */
struct fit {
    double unit[WF_FIGURES_TERMS], sums[WF_FIGURES_TERMS][WF_FIGURES_TERMS],
        right[WF_FIGURES_TERMS], count;
};

static void fit_init(struct fit *fit, const struct wf_figures_kind *kind)
{
    *fit = (struct fit){ .count = kind->count - kind->n_apart };
    for (int pass = 0; pass < 2; pass++)
        for (const struct wf_figures_row *r = kind->first; r < kind->first + kind->count; r++) {
            if (is_apart(kind, r))
                continue;
            double part[WF_FIGURES_TERMS] = { 1 / r->seconds, r->load.flops / r->seconds,
                                              r->load.bytes / r->seconds,
                                              weights_of(&r->load) / r->seconds };
            for (int i = 0; i < WF_FIGURES_TERMS; i++) {
                if (pass == 0) {
                    fit->unit[i] += part[i] / fit->count;
                    continue;
                }
                part[i] /= fit->unit[i] > 0 ? fit->unit[i] : 1;
                fit->right[i] += part[i];
                for (int k = 0; k <= i; k++)
                    fit->sums[i][k] += part[i] * part[k];
            }
        }
}

/* With the terms of `mask` alone: the sum of squares of what is left, or infinity where a term were negative. */
static double try_terms(const struct fit *fit, unsigned mask, double terms[WF_FIGURES_TERMS])
{
    int which[WF_FIGURES_TERMS] = { 0 }, n = 0;
    double a[WF_FIGURES_TERMS][WF_FIGURES_TERMS + 1], x[WF_FIGURES_TERMS], left = fit->count;
    for (int i = 0; i < WF_FIGURES_TERMS; i++)
        if (mask & 1u << i)
            which[n++] = i;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++)
            a[i][k] = fit->sums[which[i] > which[k] ? which[i] : which[k]]
                               [which[i] > which[k] ? which[k] : which[i]];
        a[i][n] = fit->right[which[i]];
    }
    if (!solve_terms(n, a, x))
        return INFINITY;
    memset(terms, 0, WF_FIGURES_TERMS * sizeof *terms);
    for (int i = 0; i < n; i++) {
        if (x[i] < 0)
            return INFINITY;
        left -= x[i] * fit->right[which[i]];
        terms[which[i]] = x[i] / fit->unit[which[i]];
    }
    return left;
}

/* The terms, none negative, with the least squares of relative errors. */
static void find_terms(struct wf_figures_kind *kind)
{
    struct fit fit;
    double least = INFINITY, terms[WF_FIGURES_TERMS];
    fit_init(&fit, kind);
    for (unsigned mask = 1; mask < 1u << WF_FIGURES_TERMS; mask++) {
        const double left = try_terms(&fit, mask, terms);
        if (left < least) {
            least = left;
            memcpy(kind->terms, terms, sizeof kind->terms);
        }
    }
}

/* --- the rest --- */

struct near {
    float distance; /* its square */
    const struct wf_figures_row *row;
};

static const float same = 1e-9f; /* what is nearer is the same load */

static float distance(const float a[WF_FIGURES_AXES], const float b[WF_FIGURES_AXES])
{
    float sum = 0;
    for (int i = 0; i < WF_FIGURES_AXES; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/* The nearest rows of a kind, but for one of them. */
static int find_near(const struct wf_figures_kind *kind, const float at[WF_FIGURES_AXES],
                     const struct wf_figures_row *without, struct near near[NEAREST])
{
    int n = 0;
    for (int i = 0; i < kind->count; i++) {
        const struct wf_figures_row *const r = kind->first + i;
        if (r == without)
            continue;
        const float d = distance(r->at, at);
        if ((kind->n_apart > 0 && d >= same && is_apart(kind, r)) ||
            (n == NEAREST && d >= near[n - 1].distance))
            continue;
        int to = n < NEAREST ? n++ : n - 1;
        for (; to > 0 && near[to - 1].distance > d; to--)
            near[to] = near[to - 1];
        near[to] = (struct near){ d, r };
    }
    return n;
}

/* How alike what is measured at such a distance is: Matern's function of order 3/2. */
static double likeness(float square)
{
    const double d = sqrt(3.0 * (double)square);
    return (1 + d) * exp(-d);
}

/* a = L L', in place of its lower half; then x := a^-1 x for both right sides. */
static void solve_pairs(int n, double a[NEAREST][NEAREST], double x[NEAREST][2])
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = a[i][j];
            for (int k = 0; k < j; k++)
                sum -= a[i][k] * a[j][k];
            a[i][j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / a[j][j];
        }
        for (int k = 0; k < i; k++)
            for (int side = 0; side < 2; side++)
                x[i][side] -= a[i][k] * x[k][side];
        for (int side = 0; side < 2; side++)
            x[i][side] /= a[i][i];
    }
    for (int i = n - 1; i >= 0; i--)
        for (int side = 0; side < 2; side++) {
            for (int k = i + 1; k < n; k++)
                x[i][side] -= a[k][i] * x[k][side];
            x[i][side] /= a[i][i];
        }
}

static double excess_of_row(const struct wf_figures_kind *kind, const struct wf_figures_row *r)
{
    return log2(r->seconds / plain_seconds(kind, &r->load));
}

/* log2 of the seconds over plain ones, from the nearest rows by ordinary kriging: each counts by how alike it is, and
 * rows that are like each other share their say. Far from all it is their mean. */
static double excess_of_near(const struct wf_figures_kind *kind, int n,
                             const struct near near[NEAREST])
{
    double a[NEAREST][NEAREST], x[NEAREST][2], ones = 0, sum = 0, result = 0;
    for (int i = 0; i < n; i++) {
        const struct wf_figures_row *const r = near[i].row;
        for (int j = 0; j <= i; j++)
            a[i][j] = likeness(distance(r->at, near[j].row->at)) + (i == j ? chance : 0);
        x[i][0] = excess_of_row(kind, r);
        x[i][1] = 1;
    }
    solve_pairs(n, a, x);
    for (int i = 0; i < n; i++) {
        sum += x[i][0];
        ones += x[i][1];
    }
    const double mean = n > 0 ? sum / ones : 0;
    for (int i = 0; i < n; i++)
        result += likeness(near[i].distance) * (x[i][0] - mean * x[i][1]);
    return mean + result;
}

static double excess_of(const struct wf_figures_kind *kind, const struct wf_load *load)
{
    struct near near[NEAREST];
    float at[WF_FIGURES_AXES];
    wf_figures_place(load, at);
    const int n = find_near(kind, at, NULL, near);
    if (n > 0 && near[0].distance < same) /* it was measured */
        return excess_of_row(kind, near[0].row);
    return excess_of_near(kind, n, near);
}

/* --- rows apart --- */

/* By how much it is slower than follows from the others. */
static double slower_by(const struct wf_figures_kind *kind, const struct wf_figures_row *r)
{
    struct near near[NEAREST];
    const int n = find_near(kind, r->at, r, near);
    return n == NEAREST ? excess_of_row(kind, r) - excess_of_near(kind, n, near) : 0;
}

/* The slowest first: those around it are looked at without it. Products of groups, and what has none, are other kernels
 * of which there may be one row. */
static void find_apart(struct wf_figures_kind *kind)
{
    while (kind->n_apart < WF_FIGURES_APART) {
        const struct wf_figures_row *worst = NULL;
        double most = apart;
        for (const struct wf_figures_row *r = kind->first; r < kind->first + kind->count; r++) {
            if (r->at[WF_LOAD_AXES] > 0 || excess_of_row(kind, r) < apart || is_apart(kind, r))
                continue;
            const double by = slower_by(kind, r);
            worst = by > most ? r : worst;
            most = fmax(by, most);
        }
        if (!worst)
            return;
        kind->apart[kind->n_apart++] = worst;
    }
}

void wf_figures_fit(struct wf_figures_kind *kind, const double peak[3])
{
    kind->terms[0] = peak[2];
    kind->terms[1] = 1 / peak[0];
    kind->terms[2] = 1 / peak[1];
    kind->terms[3] = 0;
    kind->n_apart = 0;
    if (kind->count >= ENOUGH) {
        find_terms(kind);
        find_apart(kind);
        if (kind->n_apart > 0)
            find_terms(kind);
    }
    for (const struct wf_figures_row *r = kind->first; r < kind->first + kind->count; r++)
        kind->most = fmax(kind->most, plain_seconds(kind, &r->load));
}

/* What is larger than all that was measured takes as much longer: a part of it fills the machine already. */
double wf_figures_kind_seconds(const struct wf_figures_kind *kind, const struct wf_load *load)
{
    const double times = fmax(1, plain_seconds(kind, load) / kind->most);
    struct wf_load part = *load;
    part.flops /= times;
    part.bytes /= times;
    part.log[WF_LOAD_PIXELS] -= (float)log2(times);
    return plain_seconds(kind, load) * exp2(excess_of(kind, &part));
}

/* --- fewer rows --- */

struct wrong {
    double error; /* over how far it may be off */
    int row;
};

static int worst_first(const void *a, const void *b)
{
    const struct wrong *const x = a, *const y = b;
    return (x->error < y->error) - (x->error > y->error);
}

/* Rows that do not follow from those in use, the worst first. */
static int find_wrong(const struct wf_figures_thin *t, const bool *unused,
                      struct wf_figures_row *use, struct wrong *list)
{
    const struct wf_figures_kind *const all = t->kind;
    struct wf_figures_kind some = { .first = use };
    int n = 0;
    for (int i = 0; i < all->count; i++)
        if (!unused[i])
            use[some.count++] = all->first[i];
    wf_figures_fit(&some, t->peak);
    for (int i = 0; i < all->count; i++) {
        const struct wf_figures_row *const r = &all->first[i];
        const double most = log2(1 + (r->seconds < t->short_seconds ? 2 : 1) * t->tolerance);
        const double error =
            unused[i] ? fabs(log2(wf_figures_kind_seconds(&some, &r->load) / r->seconds)) : 0;
        if (error > most)
            list[n++] = (struct wrong){ error / most, i };
    }
    qsort(list, (size_t)n, sizeof *list, worst_first);
    return n;
}

/* From few rows to more: those that follow worst from the ones before are taken, some at a time. */
void wf_figures_thin_kind(const struct wf_figures_thin *t, bool *unused)
{
    struct wf_arena arena = { 0 };
    const int count = t->kind->count;
    struct wrong *const list = wf_arena_array(&arena, count, struct wrong);
    struct wf_figures_row *const use = wf_arena_array(&arena, count, struct wf_figures_row);
    int used = 0, n;
    for (int i = 0; i < count; i++) {
        unused[i] = i % (count / ENOUGH + 1) != 0;
        used += !unused[i];
    }
    while ((n = find_wrong(t, unused, use, list)) > 0) {
        const int some = n < used / 16 + 1 ? n : used / 16 + 1;
        for (int i = 0; i < some; i++)
            unused[list[i].row] = false;
        used += some;
    }
    wf_arena_release(&arena);
}
