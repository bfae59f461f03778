#include "train/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/cores.h"
#include "base/file.h"
#include "base/memory.h"
#include "device/choices.h"
#ifdef WF_HAVE_CUDA
#include "device/cuda/about.h"
#endif

enum { FILE_MOST = 64 << 20 };

/* Tables of share/figures/: what 'check --calibrate --out' wrote. Made by the build. */
extern const char *const wf_figures_shipped[];

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

const char *wf_machine_about(struct wf_arena *arena, const struct wf_device *device, int cores)
{
    if (wf_device_is_host(device))
        return wf_arena_printf(arena, "%s, %d cores", cpu_name(arena), cores);
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
                            const struct wf_device *device, int cores)
{
    const char *const kernels = wf_choices_path(arena, s->cache);
    if (!kernels)
        return NULL;
    const char *const about = wf_machine_about(arena, device, cores);
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

/* The rest of a line of the table's head, "device cpu", or "". */
static const char *head_of(const char *text, const char *key, size_t *length)
{
    const char *const kernels = strstr(text, "\nkernel ");
    const char *const at = strstr(text, key);
    const char *const value = at && (!kernels || at < kernels) ? at + strlen(key) : "";
    *length = strcspn(value, "\n");
    return value;
}

/* Without ", 2 cores", which are those that the process may use. */
static size_t processor_length(const char *machine, size_t length)
{
    size_t end = length;
    while (end > 0 && machine[end - 1] != ',')
        end--;
    return end > 0 ? end - 1 : length;
}

/* How well a table suits this machine: 0, it is of another device; 1, of the device; 2, of the processor; 3, of the machine. */
static int suits(const char *text, const char *device, const char *about)
{
    size_t length;
    const char *const of = head_of(text, "\ndevice ", &length);
    if (length != strlen(device) || strncmp(of, device, length) != 0)
        return 0;
    const char *const machine = head_of(text, "\nmachine ", &length);
    const size_t all = strlen(about), processor = processor_length(about, all);
    if (length == all && strncmp(machine, about, all) == 0)
        return 3;
    return processor_length(machine, length) == processor && strncmp(machine, about, processor) == 0
               ? 2
               : 1;
}

/* Of this machine; else the first of its processor, else of its device, which the plan names; or NULL. */
static const char *shipped_for(const struct wf_device *device, const char *about)
{
    const char *best = NULL;
    int most = 0;
    for (const char *const *text = wf_figures_shipped; *text; text++) {
        const int how = suits(*text, device->name, about);
        best = how > most ? *text : best;
        most = how > most ? how : most;
    }
    return best;
}

struct wf_figures *wf_machine_older(const char *path, const struct wf_device *device, bool shipped)
{
    struct wf_arena arena = { 0 };
    struct wf_err ignored = { 0 };
    const char *const about = wf_machine_about(&arena, device, wf_cores());
    char *const own = read_text(path);
    const char *const text = own ? own : shipped ? shipped_for(device, about) : NULL;
    struct wf_figures *figures = text ? wf_figures_parse(text, path, &ignored) : NULL;
    if (figures && (strcmp(wf_figures_device(figures), device->name) != 0 ||
                    strcmp(wf_figures_machine(figures), about) != 0)) {
        wf_figures_free(figures);
        figures = NULL;
    }
    free(own);
    wf_arena_release(&arena);
    return figures;
}

bool wf_machine_figures(const struct wf_launch *l, const struct wf_settings *s,
                        const struct wf_device *device, struct wf_figures **figures,
                        struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const int cores = wf_launch_cores(l);
    const char *const path = wf_machine_path(&arena, s, device, cores);
    char *const own = path ? read_text(path) : NULL;
    const char *text = own, *from = path;
    *figures = NULL;
    if (l->world) {
        text = wf_launch_share(&arena, l, own ? own : "", own ? strlen(own) : 0, err);
        from = "the figures of rank 0";
    }
    bool ok = text || !l->world;
    if (ok && (!text || !*text)) {
        const char *about = wf_machine_about(&arena, device, cores);
        if (l->world) /* machines may differ */
            about = wf_launch_share(&arena, l, about, strlen(about), err);
        ok = about != NULL;
        text = ok ? shipped_for(device, about) : NULL;
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
