/* Every case of every operator in windows equals its reference kernel on the whole image. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "exec/stream.h"
#include "ops/build.h"
#include "support.h"

struct values_of {
    const struct support_case *c;
    const struct support_values *v;
};

static bool fill_case_input(void *user, const struct wf_value *input, const struct wf_view *view,
                            struct wf_err *err)
{
    (void)err;
    const struct values_of *of = user;
    const struct wf_view from = wf_view_part(of->v->views[input->id], view->box);
    wf_view_copy(view, &from);
    return true;
}

/* By name: the run's graph is a part of the case's. */
static bool fill_case_weights(void *user, struct wf_run *run, struct wf_err *err)
{
    const struct values_of *of = user;
    const struct wf_graph *g = wf_run_plan(run)->global->graph;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        const struct wf_view view = wf_run_view(run, v);
        if ((v->kind != WF_PARAM && v->kind != WF_STATE) || !view.data)
            continue;
        const struct wf_value *from = wf_graph_find(of->c->g, v->name);
        if (!from || !fill_case_input(user, from, &view, err))
            return wf_err_set(err, WF_ERR_FAILED, "no '%s'", v->name);
    }
    return true;
}

static void try_case(const struct wf_op *op, const struct wf_case *from,
                     const struct wf_device *device, int64_t window)
{
    struct wf_err err = { 0 };
    struct support_case c;
    char what[160];
    (void)snprintf(what, sizeof what, "%s %s, case %d, window %d", device->name, op->name,
                   (int)(from - op->cases), (int)window);
    if (!support_case_build(op, from, WF_F32, &c, &err))
        fail_msg("%s: %s", what, err.text);
    struct support_values v = support_values_new(c.g);
    support_case_fill(&c, &v, 7);
    support_run_reference(c.g, &v, false);
    struct values_of of = { &c, &v };
    const struct wf_stream_options options = {
        .plan = { .device = device },
        .window = { [WF_D] = window, [WF_H] = window, [WF_W] = window + 1 },
        .user = &of,
        .weights = fill_case_weights,
        .fill = fill_case_input
    };
    struct wf_comm *self = wf_comm_self();
    struct wf_stream *s = wf_stream_new(c.g, 1, &c.y, &options, self, &err);
    double off = 0, norm = 0;
    int64_t seen = 0;
    for (int64_t i = 0; s && i < wf_stream_windows(s) && !err.code; i++) {
        struct wf_view part;
        if (!wf_stream_run(s, i, &part, &err))
            break;
        for (struct wf_cursor at = wf_cursor(part.box); wf_cursor_next(&at); seen++) {
            const double want = wf_view_at(&v.views[c.y->id], at.at);
            off += pow(wf_view_at(&part, at.at) - want, 2);
            norm += want * want;
        }
    }
    if (err.code)
        fail_msg("%s: %s", what, err.text);
    if (seen != wf_shape_count(c.y->shape) || !(sqrt(off) <= 1e-5 * sqrt(norm) + 1e-7))
        fail_msg("%s: off by %.3g of %.3g, %d elements", what, sqrt(off), sqrt(norm), (int)seen);
    wf_stream_free(s);
    wf_comm_free(self);
    support_values_free(&v);
    wf_graph_free(c.g);
}

static void every_operator__in_windows_is_as_whole(void **state)
{
    for (const struct wf_op *const *op = wf_op_table; *op; op++) {
        if (strcmp((*op)->name, "dropout") == 0) /* not there at prediction; counts its steps */
            continue;
        for (const struct wf_case *c = (*op)->cases; c && c->in; c++) {
            try_case(*op, c, &wf_device_reference, 2);
            try_case(*op, c, &wf_device_cpu, 3);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator__in_windows_is_as_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
