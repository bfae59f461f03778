/* What there is: version, options as texts, networks, devices. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/memory.h"
#include "config/options_settings.h"
#include "net/net_model.h"
#include "net/record.h"
#include "train/device.h"
#ifdef WF_HAVE_CUDA
#include "device/cuda/about.h"
#endif

const char *wf_version(void)
{
    return WF_VERSION_STRING;
}

/* --- options --- */

const char *wf_options_value(const struct wf_options *o, const char *key)
{
    return wf_option_find(key) ? wf_options_text(o, key) : NULL;
}

const char *wf_options_key(int index)
{
    const struct wf_option *o = index >= 0 ? wf_option_next(NULL) : NULL;
    for (int i = 0; o && i < index; i++)
        o = wf_option_next(o);
    return o ? o->key : NULL;
}

#ifndef WF_HAVE_FYAML
static bool no_yaml(const char *name, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_USAGE,
                      "'%s': this build reads no YAML: configure it with WF_COMMAND=ON", name);
}

bool wf_options_read_file(struct wf_options *o, const char *path, struct wf_err *err)
{
    (void)o;
    return no_yaml(path, err);
}

bool wf_options_read_text(struct wf_options *o, const char *name, const char *text,
                          struct wf_err *err)
{
    (void)o, (void)text;
    return no_yaml(name, err);
}
#endif

/* --- networks --- */

int wf_model_count(void)
{
    int count = 0;
    while (wf_model_table[count])
        count++;
    return count;
}

const char *wf_model_name(int index)
{
    return index >= 0 && index < wf_model_count() ? wf_model_table[index]->name : NULL;
}

const char *wf_model_about(int index)
{
    return index >= 0 && index < wf_model_count() ? wf_model_table[index]->what : NULL;
}

struct wf_value *wf_model_add(struct wf_graph *g, struct wf_value *image, struct wf_options *o)
{
    struct wf_settings s;
    if (!image || !wf_options_settings(o, &s, &g->err))
        return NULL;
    struct wf_model_config config = s.config;
    config.in = config.in ? config.in : image->shape.at[WF_C];
    config.dims = config.dims ? config.dims : image->border_dims;
    return wf_model_resolve(s.model, &config, &g->err) ? s.model->build(g, &config, image) : NULL;
}

char *wf_model_text(struct wf_options *o, struct wf_err *err)
{
    struct wf_settings s;
    if (!wf_options_settings(o, &s, err) || !wf_model_resolve(s.model, &s.config, err))
        return NULL;
    const struct wf_net *const of_file = wf_net_of_model(s.model, &s.config);
    struct wf_net *const written = of_file ? NULL : wf_net_record(s.model, &s.config, err);
    if (!of_file && !written)
        return NULL;
    struct wf_arena arena = { 0 };
    char *const text = wf_take_text(wf_net_print(&arena, of_file ? of_file : written));
    wf_arena_release(&arena);
    wf_net_free(written);
    return text;
}

/* --- devices --- */

static int count_gpus(void)
{
#ifdef WF_HAVE_CUDA
    char why[256];
    return wf_cuda_about_count(why, sizeof why);
#else
    return 0;
#endif
}

int wf_device_count(void)
{
    return 2 + count_gpus();
}

bool wf_device_get(int index, struct wf_device_info *info)
{
    *info = (struct wf_device_info){ 0 };
    if (index < 0 || index >= wf_device_count())
        return false;
    const char *const name = index == 0 ? "cpu" : index == 1 ? "reference" : "cuda";
    (void)snprintf(info->name, sizeof info->name, "%s", name);
    info->bytes = (size_t)wf_machine_bytes();
    info->free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (index < 2)
        (void)snprintf(info->about, sizeof info->about,
                       index ? "every operator's slow, right kernel" : "%d cores", wf_cores());
#ifdef WF_HAVE_CUDA
    if (index >= 2) {
        info->index = index - 2;
        wf_cuda_about_gpu(info->index, info->about, sizeof info->about);
        wf_cuda_about_memory(info->index, &info->bytes, &info->free_bytes);
    }
#endif
    return true;
}
