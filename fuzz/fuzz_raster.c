/* Any bytes as an image file: it is refused with words, or windows of it can be read or are refused
 * with words. The format is the one that the first bytes say. */
#include <stdint.h>
#include <stdlib.h>

#include "image/raster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIDE = 40, CHANNELS = 5 };

/* At most SIDE of [0, extent), at a place that depends on `turn`. */
static void choose(struct wf_region *window, enum wf_axis axis, int64_t extent, int turn)
{
    const int64_t side = wf_min(extent, SIDE);
    window->lo[axis] = turn == 0 ? 0 : turn == 1 ? extent - side : (extent - side) / 3;
    window->hi[axis] = window->lo[axis] + side;
}

static void read_some(struct wf_raster *r, int turn)
{
    const struct wf_raster_info *info = wf_raster_info(r);
    struct wf_region window = { 0 };
    choose(&window, WF_D, wf_min(info->depth, 3), turn);
    choose(&window, WF_H, info->height, turn);
    choose(&window, WF_W, info->width, turn);
    const int channels = (int)wf_min(info->channels, CHANNELS);
    const int first = turn == 1 ? info->channels - channels : 0;
    window.hi[WF_N] = 1;
    window.hi[WF_C] = channels;
    const enum wf_dtype as = turn == 2 ? WF_I32 : WF_F32;
    /* Exactly the room that the caller would give it. */
    void *room = malloc((size_t)wf_region_count(window) * wf_dtype_size(as));
    struct wf_err err = { 0 };
    const bool ok = wf_raster_read_window(r, &window, first, channels, as, room, &err);
    WF_BUG_ON(ok != (err.code == WF_OK) || (!ok && !err.text[0]), "read without words");
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_err err = { 0 };
    struct wf_raster *r = wf_raster_parse("input", data, size, &err);
    WF_BUG_ON(!r != (err.code != WF_OK) || (!r && !err.text[0]), "error without words");
    for (int turn = 0; r && turn < 3; turn++)
        read_some(r, turn);
    wf_raster_close(r);
    return 0;
}
