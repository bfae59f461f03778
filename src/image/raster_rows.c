/* What formats that are read from the top share: rows kept for the next window, and a way out of
 * libraries that leave by longjmp. */
#include <stdio.h>
#include <stdlib.h>

#include "image/raster_format.h"

const void *wf_raster_rows_get(struct wf_raster_rows *rows, int64_t row, struct wf_err *err)
{
    WF_BUG_ON(row < 0 || row >= rows->count || !rows->bytes, "row %lld", (long long)row);
    if (!rows->kept) {
        rows->slots = wf_min(rows->count, wf_max(1, WF_RASTER_ROWS_KEPT / (int64_t)rows->bytes));
        rows->kept = malloc((size_t)rows->slots * rows->bytes);
        if (!rows->kept) {
            (void)wf_err_set(err, WF_ERR_FIT, "no memory for %lld rows of an image",
                             (long long)rows->slots);
            return NULL;
        }
    }
    if (row < rows->first)
        rows->first = rows->end = rows->seeks ? row : 0;
    else if (row > rows->end && rows->seeks)
        rows->first = rows->end = row;
    while (rows->end <= row) {
        const int64_t next = rows->end;
        /* The slot's old row is gone, also where decoding fails. */
        if (next - rows->first >= rows->slots)
            rows->first = next - rows->slots + 1;
        if (!rows->next(rows->source, next, rows->kept + (size_t)(next % rows->slots) * rows->bytes,
                        err)) {
            rows->first = rows->end = 0; /* start again if ever asked again */
            return NULL;
        }
        rows->end = next + 1;
    }
    return rows->kept + (size_t)(row % rows->slots) * rows->bytes;
}

bool wf_raster_rows_put(struct wf_raster_rows *rows, const unsigned char *whole,
                        const struct wf_raster_job *job, struct wf_err *err)
{
    const int64_t width = job->raster->info.width, channels = job->raster->info.channels;
    for (int64_t h = job->lo[WF_RASTER_H]; h < job->hi[WF_RASTER_H]; h++) {
        const struct wf_raster_block row = {
            .data = whole ? whole + (size_t)h * rows->bytes : wf_raster_rows_get(rows, h, err),
            .lo = { [WF_RASTER_H] = h },
            .hi = { 1, h + 1, width, channels },
            .stride = { [WF_RASTER_W] = channels, [WF_RASTER_C] = 1 },
        };
        if (!row.data || !wf_raster_put(job, &row, err))
            return false;
    }
    return true;
}

void wf_raster_rows_release(struct wf_raster_rows *rows)
{
    free(rows->kept);
    *rows = (struct wf_raster_rows){ 0 };
}

bool wf_guarded(struct wf_guard *guard, void (*step)(void *arg), void *arg)
{
    guard->message[0] = '\0';
    if (setjmp(guard->jump) != 0)
        return false;
    step(arg);
    return true;
}

void wf_guard_leave(struct wf_guard *guard, const char *message)
{
    (void)snprintf(guard->message, sizeof guard->message, "%s", message);
    wf_raster_printable(guard->message);
    longjmp(guard->jump, 1);
}
