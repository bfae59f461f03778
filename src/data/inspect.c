#include "data/inspect.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset_inside.h"

static void warn(struct wf_inspection *in, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void warn(struct wf_inspection *in, const char *format, ...)
{
    char text[1100];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    WF_GROW(in->warnings, in->room, in->n_warnings + 1);
    in->warnings[in->n_warnings++] = wf_arena_copy(&in->arena, text);
}

static int by_extent(const void *a, const void *b)
{
    return memcmp(*(const int64_t *const *)a, *(const int64_t *const *)b,
                  WF_AXES * sizeof(int64_t));
}

static void look_at_sizes(const struct wf_dataset *ds, struct wf_inspection *in,
                          const int64_t *good)
{
    const int64_t **const extents = wf_take_zeroed((size_t)in->good + 1, sizeof *extents);
    for (int64_t i = 0; i < in->good; i++) {
        const struct wf_data_sample *const s = wf_dataset_sample(ds, good[i]);
        extents[i] = s->extent;
        in->held_out += s->held_out;
        double pixels = 1;
        for (int a = WF_D; a <= WF_W; a++) {
            in->smallest[a] = i ? wf_min(in->smallest[a], s->extent[a]) : s->extent[a];
            in->largest[a] = wf_max(in->largest[a], s->extent[a]);
            pixels *= (double)s->extent[a];
        }
        in->pixels += pixels;
    }
    qsort(extents, (size_t)in->good, sizeof *extents, by_extent);
    for (int64_t i = 0; i < in->good; i++)
        in->sizes += i == 0 || by_extent(&extents[i], &extents[i - 1]) != 0;
    free(extents);
    if (in->sizes > 1 && !wf_dataset_info(ds)->is_cloud)
        warn(in, "images have %" PRId64 " different sizes: set data.crop, at most %s", in->sizes,
             wf_extent_text(&in->arena, in->smallest));
}

static void look_at_classes(const struct wf_dataset *ds, struct wf_inspection *in)
{
    const struct wf_dataset_info *const info = wf_dataset_info(ds);
    const char *const image = info->is_cloud ? "clouds" : "images";
    const char *const pixel = info->is_cloud ? "points" : "pixels";
    const char *const what = info->labels == WF_LABELS_IMAGE ? image : pixel;
    if (info->labels == WF_LABELS_NONE)
        warn(in, "there are no masks: good for predicting, not for training");
    for (int c = 0; c < info->n_classes; c++) {
        const struct wf_data_class *const k = &info->classes[c];
        const double part = info->scanned ? (double)k->found / (double)info->scanned : 0;
        if (k->found == 0)
            warn(in, "class %d '%s' was not seen%s", c, k->name,
                 info->scanned_all ? "" : " (not all labels were looked at)");
        else if (info->labels == WF_LABELS_PIXEL && part < 0.01)
            warn(in, "class %d '%s' is rare, %.2g%% of the %s%s", c, k->name, 100 * part, what,
                 info->is_cloud ? "" : ": data.balance=true may help");
    }
    if (info->other > 0)
        warn(in,
             "%" PRId64 " %s have a label that is no class: training stops there, unless "
             "train.ignore is that label",
             info->other, what);
}

void wf_inspect(const struct wf_dataset *ds, struct wf_inspection *in)
{
    const struct wf_dataset_info *const info = wf_dataset_info(ds);
    *in = (struct wf_inspection){ 0 };
    int64_t *const good = wf_take_zeroed((size_t)info->samples + 1, sizeof *good);
    for (int64_t i = 0; i < info->samples; i++)
        if (!wf_dataset_sample(ds, i)->problem)
            good[in->good++] = i;
    look_at_sizes(ds, in, good);
    look_at_classes(ds, in);
    for (const char *const *note = info->notes; *note; note++)
        warn(in, "%s", *note);
    if (in->good > 0) {
        struct wf_err bad = { 0 };
        in->measured = wf_normal_measure(ds, good, in->good, 1, &in->normal, &bad);
        if (!in->measured)
            in->unreadable = wf_arena_copy(&in->arena, bad.text);
    }
    free(good);
}

void wf_inspection_release(struct wf_inspection *in)
{
    free(in->warnings);
    wf_arena_release(&in->arena);
    *in = (struct wf_inspection){ 0 };
}
