/* Data of a program: a dataset by another name. */
#include "api/session.h"

#include <stdlib.h>

#include "base/memory.h"

static struct wf_data *data_of(struct wf_dataset *dataset)
{
    if (!dataset)
        return NULL;
    struct wf_data *const d = wf_take_zeroed(1, sizeof *d);
    d->dataset = dataset;
    return d;
}

struct wf_data *wf_data_open(const char *path, const struct wf_options *o, struct wf_err *err)
{
    struct wf_options *const copy = wf_options_copy(o);
    const struct wf_dataset_options options = {
        .layout = (enum wf_data_layout)wf_options_int(copy, "data.format"),
        .align = (enum wf_data_align)wf_options_int(copy, "data.align"),
        .alpha = (enum wf_data_alpha)wf_options_int(copy, "data.alpha"),
        .channels = wf_options_int(copy, "model.in"),
    };
    wf_options_free(copy);
    return data_of(wf_dataset_open(path, &options, err));
}

struct wf_data *wf_data_arrays(const struct wf_arrays *arrays, struct wf_err *err)
{
    return data_of(wf_dataset_of_arrays(arrays, err));
}

void wf_data_free(struct wf_data *d)
{
    if (!d)
        return;
    wf_dataset_free(d->dataset);
    free(d);
}

void wf_data_describe(const struct wf_data *d, struct wf_data_info *info)
{
    const struct wf_dataset_info *const i = wf_dataset_info(d->dataset);
    *info = (struct wf_data_info){ .samples = i->samples,
                                   .dims = i->dims,
                                   .channels = i->channels,
                                   .classes = i->n_classes,
                                   .per_image = i->labels == WF_LABELS_IMAGE };
}

const char *wf_data_class(const struct wf_data *d, int label)
{
    const struct wf_dataset_info *const i = wf_dataset_info(d->dataset);
    return label >= 0 && label < i->n_classes ? i->classes[label].name : NULL;
}
