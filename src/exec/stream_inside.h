/* Inside a stream: exec/stream.c runs it, exec/stream_stage.c its stages, exec/stream_choose.c sizes its windows,
 * exec/stream_sums.c makes sums over the image. */
#pragma once

#include "exec/blend.h"
#include "exec/stream.h"
#include "exec/window_grid.h"

enum {
    WF_STREAM_KINDS = 40, /* of windows, whose plans are kept: 27 are those of a grid in 3D */
};

/* A plan with a run, for all windows that lie alike. */
struct wf_stream_kind {
    struct wf_global_plan *global;
    struct wf_plan *plan;
    struct wf_run *run; /* of the first: with the weights, and an arena that most others fit in */
};

/* The part of the graph that ends in a sum, or in the output. */
struct wf_stream_stage {
    struct wf_graph *graph;
    struct wf_value **map; /* per value of the stream's graph: its counterpart here, or NULL */
    struct wf_window_grid grid;
    double flops;
    struct wf_stream_kind kinds[WF_STREAM_KINDS];
    int n_kinds, oldest; /* the one that makes room, from 1 on */
    /* The window at hand, and the kind it is of. */
    struct wf_arena arena;
    struct wf_geometry geometry;
    struct wf_stream_kind *kind;
};

/* A result of an earlier pass: of a sum over the image, or one that was kept. */
struct wf_stream_given {
    struct wf_value *value; /* of the stream's graph */
    void *data;             /* dense; NULL: it was not made yet, or nothing reads it any more */
    enum wf_dtype dtype;    /* f64 of a sum, that of the value otherwise */
    bool is_kept;           /* not of a sum */
    int last;               /* the pass that reads it last */
};

/* Over the whole image. */
static inline struct wf_view wf_stream_given_view(const struct wf_stream_given *g)
{
    return wf_view_dense(g->data, g->dtype, wf_shape_region(g->value->shape));
}

struct wf_stream {
    struct wf_arena arena;
    const struct wf_graph *graph;
    struct wf_value *outputs[WF_STREAM_OUTPUTS];
    int n_outputs;
    /* What the last stage computes: the outputs, and the sums of options.number. */
    struct wf_value **ends;
    int n_ends;
    bool has_number; /* options.number was made */
    struct wf_stream_options options;
    struct wf_comm *comm, *self;
    struct wf_stream_given *given;
    int n_given, passes;
    int64_t plans; /* made so far */
    struct wf_stream_stage last;
    struct wf_host host; /* of the value at hand */
    struct wf_host made[WF_STREAM_OUTPUTS];
    void *sent; /* in the device's memory: an input that comes while a window is computed */
    size_t sent_bytes;
    double done, total;   /* flops of all stages */
    double whole, worked; /* flops of the last one's windows, and what was computed for them */
    size_t most_bytes;
    struct wf_blender *blender; /* NULL: windows are parts of the whole */
    struct wf_stream_blend blend;
    void *crop;       /* a window of the image for the device */
    size_t most_kept; /* bytes in host memory, of results between passes */
};

/* The part of the graph that ends in these values; what was given so far is given. */
void wf_stream_stage_cut(const struct wf_stream *s, struct wf_stream_stage *t, int n_outputs,
                         struct wf_value *const outputs[]);
/* And its grid. The values are of equal extents but for their channels, or the first are those of a sum
 * over such an extent. */
[[nodiscard]] bool wf_stream_stage_init(const struct wf_stream *s, struct wf_stream_stage *t,
                                        int n_outputs, struct wf_value *const outputs[],
                                        struct wf_err *err);
void wf_stream_stage_release(struct wf_stream_stage *t);
/* One window of it, from the inputs to its outputs. */
[[nodiscard]] bool wf_stream_stage_run(struct wf_stream *s, struct wf_stream_stage *t,
                                       int64_t index, struct wf_err *err);

/* The same in parts: to a window, into it what earlier passes gave, and what was done is counted. */
[[nodiscard]] bool wf_stream_stage_turn(struct wf_stream *s, struct wf_stream_stage *t,
                                        int64_t index, struct wf_err *err);
void wf_stream_stage_fill_given(struct wf_stream *s, const struct wf_stream_stage *t);
void wf_stream_stage_count(struct wf_stream *s, const struct wf_stream_stage *t);
/* The window that most others are like. */
struct wf_region wf_stream_stage_middle(const struct wf_stream_stage *t);
/* A value's view has the place of the window at hand, not of the one that the plan was made for. */
struct wf_view wf_stream_stage_placed(const struct wf_stream_stage *t, const struct wf_value *v,
                                      struct wf_view view);
/* The last windows but one end where they are like those before them. Of a stage whose windows may overlap: not of a
 * sum. */
[[nodiscard]] bool wf_stream_stage_settle(struct wf_stream *s, struct wf_stream_stage *t,
                                          struct wf_err *err);

/* An input from the host's memory into a view on the device. */
[[nodiscard]] bool wf_stream_send_input(struct wf_stream *s, struct wf_view there,
                                        const struct wf_stream_work *work, struct wf_err *err);

/* exec/stream_blend.c: with options.blend. */
[[nodiscard]] bool wf_stream_blend_init(struct wf_stream *s, struct wf_err *err);
struct wf_region wf_stream_blend_reads(const struct wf_stream *s, int64_t band);
[[nodiscard]] bool wf_stream_blend_run(struct wf_stream *s, int64_t band,
                                       const struct wf_stream_work *work, struct wf_err *err);

/* exec/stream_sums.c. Sets s->ends. */
[[nodiscard]] bool wf_stream_find_ends(struct wf_stream *s, struct wf_err *err);
/* The sums over the image that the outputs depend on, in order. */
int wf_stream_find_sums(const struct wf_stream *s, const struct wf_node **sums);
/* Collective. Makes s->given of s->passes sums. */
[[nodiscard]] bool wf_stream_take_sums(struct wf_stream *s, const struct wf_node *const sums[],
                                       struct wf_err *err);

/* What is kept between s->passes sums, on paper: sets s->total and s->most_kept. */
void wf_stream_lay_out(struct wf_stream *s, const struct wf_node *const sums[]);

/* Room for the sums of options.number, once there are passes no more. */
[[nodiscard]] bool wf_stream_begin_number(struct wf_stream *s, struct wf_err *err);
/* From nothing again, for another image. */
void wf_stream_restart_number(struct wf_stream *s);
/* Adds a window's part of them. */
[[nodiscard]] bool wf_stream_add_number(struct wf_stream *s, struct wf_err *err);

struct wf_stream_need {
    size_t bytes; /* beside the weights */
    double flops; /* of a plan that was made; 0: it was clear without one that it does not fit */
    const char *largest; /* the layer at the largest value */
};

/* What a window needs; stops early where it is past the limit. */
[[nodiscard]] bool wf_stream_find_need(const struct wf_stream *s, const struct wf_stream_stage *t,
                                       struct wf_region window, struct wf_stream_need *need,
                                       struct wf_err *err);
/* Sets the stage's grid: as was wished, or as large as the limit allows, or as is fastest. */
[[nodiscard]] bool wf_stream_choose_grid(const struct wf_stream *s, struct wf_stream_stage *t,
                                         struct wf_shape whole, struct wf_err *err);
