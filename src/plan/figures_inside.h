/* A table of figures as figures.c keeps it and figures_model.c foretells from it; for these two, and for
 * bench/figures_cross.c. */
#pragma once

#include "plan/figures.h"

enum {
    WF_FIGURES_AXES = WF_LOAD_AXES + 3,
    WF_FIGURES_TERMS =
        4, /* of plain seconds: one, operations, bytes, operations for a position: weights */
    WF_FIGURES_APART = 32,
};

struct wf_figures_row {
    struct wf_load load;
    int threads;
    double seconds;
    float at[WF_FIGURES_AXES];
};

/* Rows of one kind: operator, type, fused input, threads. */
struct wf_figures_kind {
    const struct wf_figures_row *first;
    int count;
    double terms[WF_FIGURES_TERMS]; /* plain seconds, to which measured ones are compared */
    double most;                    /* plain seconds of the largest row */
    /* Rows much slower than those around them: of a problem for which a library has a bad kernel only. They stand
     * for their own load and for no other. */
    const struct wf_figures_row *apart[WF_FIGURES_APART];
    int n_apart;
};

/* All kinds of a sealed table, and the speeds of its head. */
const struct wf_figures_kind *wf_figures_kinds(const struct wf_figures *figures, size_t *count);
const double *wf_figures_peak(const struct wf_figures *figures);

/* Where a load lies among others of its kind. */
void wf_figures_place(const struct wf_load *load, float at[WF_FIGURES_AXES]);
/* Finds the kind's terms; of few rows they are the table's speeds. */
void wf_figures_fit(struct wf_figures_kind *kind, const double peak[3]);
/* Seconds of a load as they follow from the kind's rows. */
double wf_figures_kind_seconds(const struct wf_figures_kind *kind, const struct wf_load *load);
/* Marks rows that follow from the others to this part of their seconds; those below `short_seconds` to twice
 * that. */
struct wf_figures_thin {
    const struct wf_figures_kind *kind;
    const double *peak; /* of the table */
    double tolerance, short_seconds;
};
void wf_figures_thin_kind(const struct wf_figures_thin *t, bool *unused);
