#include "train/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/memory.h"
#include "device/choices.h"
#ifdef WF_HAVE_CUDA
#include "device/cuda/about.h"
#endif

enum { FILE_MOST = 64 << 20 };

/* Made by the build from share/figures/: what 'check --calibrate --out' wrote. A table without kernels is none. */
extern const char wf_figures_cpu[], wf_figures_cuda[];

static const struct {
    const char *device, *text;
} shipped[] = { { "cpu", wf_figures_cpu }, { "cuda", wf_figures_cuda } };

/* --- which machine it is --- */

/* A line of /proc/cpuinfo, such as "model name : AMD EPYC". */
static const char *cpu_fact(struct wf_arena *arena, const char *name)
{
    char line[512];
    const char *fact = NULL;
    FILE *const f = fopen("/proc/cpuinfo", "r");
    while (f && !fact && fgets(line, sizeof line, f)) {
        char *const colon = strchr(line, ':');
        if (!colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        *colon = '\0';
        line[strcspn(line, "\t")] = '\0';
        if (strcmp(line, name) == 0)
            fact = wf_arena_copy(arena, colon + 1 + strspn(colon + 1, " "));
    }
    if (f)
        (void)fclose(f);
    return fact;
}

/* Virtual machines keep back which one of a maker's processors it is, but for its family and model. */
static const char *cpu_name(struct wf_arena *arena)
{
    const char *const name = cpu_fact(arena, "model name"),
                      *const family = cpu_fact(arena, "cpu family"),
                      *const model = cpu_fact(arena, "model");
    if (!name)
        return "a processor without a name";
    if (strpbrk(name, "0123456789") || !family || !model)
        return name;
    return wf_arena_printf(arena, "%s of family %s, model %s", name, family, model);
}

const char *wf_machine_about(struct wf_arena *arena, const struct wf_device *device)
{
    if (wf_device_is_host(device))
        return wf_arena_printf(arena, "%s, %d cores", cpu_name(arena), wf_settings_cores());
#ifdef WF_HAVE_CUDA
    char text[256];
    if (wf_cuda_about_count(text, sizeof text) > 0)
        wf_cuda_about_gpu(0, text, sizeof text);
    text[strcspn(text, ",")] = '\0'; /* its name alone */
    return wf_arena_copy(arena, text);
#else
    return "no GPU";
#endif
}

const char *wf_machine_path(struct wf_arena *arena, const struct wf_settings *s,
                            const struct wf_device *device)
{
    const char *const kernels = wf_choices_path(arena, s->cache);
    if (!kernels)
        return NULL;
    const char *const about = wf_machine_about(arena, device);
    const char *const slash = strrchr(kernels, '/');
    return wf_arena_printf(arena, "%.*sfigures-%s-%08" PRIx32,
                           slash ? (int)(slash + 1 - kernels) : 0, kernels, device->name,
                           XXH32(about, strlen(about), 0));
}

/* --- its figures --- */

/* NULL: there is no such file. Figures only save a guess, so a file that cannot be read is none. */
static char *read_text(const char *path)
{
    struct wf_err ignored = { 0 };
    struct wf_infile in;
    if (!wf_path_is_file(path, &ignored) || !wf_infile_open(&in, path, &ignored))
        return NULL;
    char *text = NULL;
    if (in.size < FILE_MOST) {
        text = wf_take_zeroed(in.size + 1, 1);
        if (!wf_infile_read(&in, 0, text, in.size, &ignored)) {
            free(text);
            text = NULL;
        }
    }
    wf_infile_close(&in);
    return text;
}

bool wf_machine_figures(const struct wf_launch *l, const struct wf_settings *s,
                        const struct wf_device *device, struct wf_figures **figures,
                        struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const path = wf_machine_path(&arena, s, device);
    char *const own = path ? read_text(path) : NULL;
    const char *text = own, *from = path;
    *figures = NULL;
    if (l->world) {
        text = wf_launch_share(&arena, l, own ? own : "", own ? strlen(own) : 0, err);
        from = "the figures of rank 0";
    }
    bool ok = text || !l->world;
    for (size_t i = 0; ok && (!text || !*text) && i < sizeof shipped / sizeof *shipped; i++)
        if (strcmp(shipped[i].device, device->name) == 0) {
            text = shipped[i].text;
            from = "shipped figures";
        }
    if (ok && text && *text) {
        *figures = wf_figures_parse(text, from, err);
        ok = *figures != NULL;
        if (ok && wf_figures_count(*figures) == 0) {
            wf_figures_free(*figures);
            *figures = NULL;
        }
    }
    free(own);
    wf_arena_release(&arena);
    return ok;
}
