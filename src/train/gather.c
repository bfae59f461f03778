#include "train/gather.h"

#include <stdlib.h>
#include <string.h>

#include "ops/op.h"
#include "tensor/border.h"

enum { TAG = 1, BOX_NUMBERS = 2 * WF_AXES };

void wf_export_view(const struct wf_value *value, const struct wf_view *view, float *all)
{
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);)
        all[wf_outside_index(&value->shape, c.at)] = (float)wf_view_at(view, c.at);
}

/* Collective. Every rank's box on every rank. */
static struct wf_region *share_boxes(struct wf_arena *arena, struct wf_comm *comm,
                                     struct wf_region mine, struct wf_err *err)
{
    const size_t size = (size_t)wf_comm_size(comm);
    int64_t *const numbers = wf_arena_array(arena, size * BOX_NUMBERS, int64_t);
    int64_t *const own = numbers + BOX_NUMBERS * wf_comm_rank(comm);
    memcpy(own, mine.lo, sizeof mine.lo);
    memcpy(own + WF_AXES, mine.hi, sizeof mine.hi);
    if (!wf_comm_sum(comm, numbers, size * BOX_NUMBERS, WF_I64, err))
        return NULL;
    struct wf_region *const boxes = wf_arena_array(arena, size, struct wf_region);
    for (size_t r = 0; r < size; r++) {
        memcpy(boxes[r].lo, numbers + BOX_NUMBERS * r, sizeof boxes[r].lo);
        memcpy(boxes[r].hi, numbers + BOX_NUMBERS * r + WF_AXES, sizeof boxes[r].hi);
    }
    return boxes;
}

/* One rank after another, so that rank 0 needs room for one box only. */
static bool collect(struct wf_comm *comm, const struct wf_value *value,
                    const struct wf_region *boxes, struct wf_view packed, float *all,
                    struct wf_err *err)
{
    const int rank = wf_comm_rank(comm);
    if (rank == 0)
        wf_export_view(value, &packed, all);
    for (int r = 1; r < wf_comm_size(comm); r++) {
        const struct wf_view theirs = wf_view_dense(packed.data, packed.dtype, boxes[r]);
        const size_t bytes = wf_view_bytes(&theirs);
        if (bytes == 0 || (rank != 0 && rank != r))
            continue;
        const struct wf_message send = {
            .peer = 0, .tag = TAG, .send = packed.data, .bytes = bytes
        };
        const struct wf_message receive = {
            .peer = r, .tag = TAG, .recv = packed.data, .bytes = bytes
        };
        if (!wf_comm_exchange(comm, 1, rank == 0 ? &receive : &send, err))
            return false;
        if (rank == 0)
            wf_export_view(value, &theirs, all);
    }
    return true;
}

bool wf_gather(const struct wf_run *run, struct wf_comm *comm, const struct wf_value *value,
               float *all, struct wf_err *err)
{
    struct wf_host host = { 0 };
    if (!wf_comm_agree(comm, wf_run_get_owned(run, value, &host, err), err)) {
        wf_host_release(&host);
        return false;
    }
    const struct wf_view owned = host.view;
    const struct wf_region nothing = { { 0 }, { 0 } };
    const struct wf_region mine =
        owned.data && !wf_region_is_empty(owned.box) ? owned.box : nothing;
    struct wf_arena arena = { 0 };
    const struct wf_region *const boxes = share_boxes(&arena, comm, mine, err);
    size_t room = 1;
    for (int r = 0; boxes && r < wf_comm_size(comm); r++) {
        const size_t bytes = (size_t)wf_region_count(boxes[r]) * wf_dtype_size(value->dtype);
        room = bytes > room ? bytes : room;
    }
    void *const data = malloc(room);
    if (!data)
        (void)wf_err_set(err, WF_ERR_FIT, "no memory to gather '%s'", value->name);
    bool ok = boxes && wf_comm_agree(comm, data != NULL, err) && data;
    if (ok) {
        const struct wf_view packed = wf_view_dense(data, value->dtype, mine);
        if (!wf_region_is_empty(mine))
            wf_view_copy(&packed, &owned);
        ok = collect(comm, value, boxes, packed, all, err);
    }
    free(data);
    wf_host_release(&host);
    wf_arena_release(&arena);
    return ok;
}
