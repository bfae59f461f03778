/*
 * Figures: what kernels took on a machine, and what others would take there.
 *
 * A load is everything that the seconds of a kernel depend on, as far as the cost model knows: the
 * operator, its type, and a few extents of its work. Figures are a table of loads that were measured
 * (train/calibrate.h), or shipped with the program for machines that we measured (wf_figures_shipped).
 * The seconds of another load follow from those of its kind that lie nearest, by the logarithms of
 * their extents: not seconds are interpolated, but how far they are from plain ones: a constant, operations, bytes
 * and weights, each at a speed that suits the kind's rows best, or for a kind of few rows at the speeds of the table's
 * head ("peak").
 *
 * The text form is read and written, a line for each:
 *
 *     widefield figures 1
 *     device cpu
 *     machine Intel(R) Xeon(R) Processor, 2 cores
 *     peak 2e+11 2e+10 1e-06                    operations and bytes a second, seconds of an empty kernel
 *     link threads 6e+09 4e-06                  a transport: bytes a second each way, seconds of a message
 *     step 2 3e-07 2e-05                        threads; seconds between two kernels, and beside all of them
 *     kernel 2 conv f32 - 65536 256 64 64 73728 1 3.36e+07 0.00123
 *                  threads, operator, type, operator of a fused input; the extents of enum wf_load_axis;
 *                  bytes; seconds
 *
 * Figures are not written after they are made: ranks that are threads share them.
 */
#pragma once

#include "base/err.h"
#include "graph/graph.h"

enum wf_load_axis {
    WF_LOAD_PIXELS, /* positions of the work, of all samples */
    WF_LOAD_WIDTH,  /* of the work along W */
    WF_LOAD_IN,     /* channels of the image that is read */
    WF_LOAD_OUT,    /* channels of the other image */
    WF_LOAD_EACH,   /* operations for each position */
    WF_LOAD_RATIO,  /* positions that are read for each of the work: strides */
    WF_LOAD_AXES
};

struct wf_load {
    const char *name;        /* the operator's, or one of those below; compared as pointers */
    const char *fused;       /* the operator's that is fused into it; or NULL */
    const char *type;        /* of the image: wf_load_type() */
    float log[WF_LOAD_AXES]; /* log2 of the extents */
    double flops, bytes;
};

/* What is no operator: copies, and the sweep of the optimiser over so many weights ("pixels"). */
extern const char wf_load_copy[], wf_load_update[];

/* "f32", "bf16", ...; with `tf32` that in place of f32. */
const char *wf_load_type(enum wf_dtype dtype, bool tf32);
void wf_load_set(struct wf_load *load, const double at[WF_LOAD_AXES]);
/* As in a line of a table: "conv f32 - 65536 256 64 64 73728 1 3.36e+07". */
const char *wf_load_print(struct wf_arena *arena, const struct wf_load *load);

struct wf_figures_link {
    double bytes_per_second, seconds;
};

struct wf_figures;

/* NULL with an error that names the line. `from` is where the text comes from, for messages. */
struct wf_figures *wf_figures_parse(const char *text, const char *from, struct wf_err *err);
/* An empty table, to be filled. Operations and bytes a second, and seconds of an empty kernel. */
struct wf_figures *wf_figures_new(const char *device, const char *machine, const double peak[3]);
void wf_figures_free(struct wf_figures *figures);
char *wf_figures_print(struct wf_arena *arena, const struct wf_figures *figures);

/* While a table is filled; of a load that is added twice the least seconds count. It is asked after
 * wf_figures_seal() only. */
void wf_figures_add(struct wf_figures *figures, int threads, const struct wf_load *load,
                    double seconds);
/* In place of what was added for as many threads. */
void wf_figures_add_step(struct wf_figures *figures, int threads, double between, double beside);
void wf_figures_add_link(struct wf_figures *figures, const char *transport,
                         const struct wf_figures_link *link);
void wf_figures_seal(struct wf_figures *figures);
/* What a table that was cut off lacks, from an older one of the same machine: kernels and links that it has not, and
 * steps, which follow from all kernels together. Both were read from text, which rounds. Returns how many kernels. */
int wf_figures_add_older(struct wf_figures *figures, const struct wf_figures *older);
/* Drops kernels whose seconds follow from the others to this part of them: 0.05 is a twentieth. */
void wf_figures_thin(struct wf_figures *figures, double tolerance);

/* "cpu", "cuda"; the machine as it was described; how many kernels were measured. */
const char *wf_figures_device(const struct wf_figures *figures);
const char *wf_figures_machine(const struct wf_figures *figures);
int wf_figures_count(const struct wf_figures *figures);

/* Seconds of a load on so many threads. Where no load of its kind was measured they are those of a type that stands in for its own, or
 * of its arithmetic and traffic alone, and `*known` (or NULL) is false. */
double wf_figures_seconds(const struct wf_figures *figures, int threads, const struct wf_load *load,
                          bool *known);
/* Beside its kernels, of a step with so many of them. */
double wf_figures_step(const struct wf_figures *figures, int threads, int kernels);
/* False: the transport was not measured. */
bool wf_figures_link(const struct wf_figures *figures, const char *transport,
                     struct wf_figures_link *link);
