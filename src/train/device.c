#include "train/device.h"

#include <string.h>
#include <unistd.h>

#include "base/units.h"
#ifdef WF_HAVE_DNNL
#include "device/cpu/dnnl.h"
#endif

const struct wf_device *wf_settings_plan_device(const struct wf_settings *s, struct wf_err *err)
{
#ifndef WF_HAVE_CUDA
    if (strcmp(s->device, wf_device_paper_cuda.name) == 0)
        return &wf_device_paper_cuda;
#endif
    return wf_settings_device(s, err);
}

static bool has_amx(void)
{
#ifdef WF_HAVE_DNNL
    return wf_dnnl_has_amx();
#else
    return false;
#endif
}

size_t wf_settings_library_bytes(const struct wf_settings *s, const struct wf_device *device)
{
    if (!wf_device_is_host(device))
        return WF_HOST_GPU_BYTES;
    const bool tiles = device == &wf_device_cpu && s->train.precision == WF_PRECISION_BF16;
    return tiles && !s->model->sparse && has_amx() ? WF_HOST_AMX_BYTES : 0;
}

static const struct wf_device *find_device(const char *name)
{
    static const struct wf_device *const devices[] = {
        &wf_device_cpu,
        &wf_device_reference,
#ifdef WF_HAVE_CUDA
        &wf_device_cuda,
#endif
    };
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(name, devices[i]->name) == 0)
            return devices[i];
    return NULL;
}

const struct wf_device *wf_settings_device(const struct wf_settings *s, struct wf_err *err)
{
    const struct wf_device *const device = find_device(s->device);
    if (device)
        return device;
    (void)wf_err_set(err, WF_ERR_USAGE,
                     "device '%s' is not in this build: build it with 'make cuda', or use "
                     "--device cpu",
                     s->device);
    return NULL;
}

static void *warm(void *arg)
{
    const struct wf_device_warmup *const w = arg;
    w->device->warm(w->local_rank);
    return NULL;
}

void wf_device_warmup_begin(struct wf_device_warmup *w, const char *name, int local_rank)
{
    *w = (struct wf_device_warmup){ .device = find_device(name), .local_rank = local_rank };
    w->runs = w->device && w->device->warm && pthread_create(&w->thread, NULL, warm, w) == 0;
}

void wf_device_warmup_end(struct wf_device_warmup *w)
{
    if (w->runs)
        (void)pthread_join(w->thread, NULL);
    w->runs = false;
}

bool wf_settings_compute(const struct wf_settings *s, const struct wf_device *device,
                         enum wf_dtype *compute, struct wf_err *err)
{
    const char *const name = wf_precision_names[s->train.precision];
    if (wf_dtype_parse(name, compute))
        return true;
    *compute = WF_F32;
    return !wf_device_is_host(device) ||
           wf_err_set(err, WF_ERR_USAGE,
                      "precision '%s' is a mode of the device 'cuda': use f32 or bf16 on '%s'",
                      name, device->name);
}

size_t wf_settings_workspace(const struct wf_settings *s, const struct wf_device *device)
{
    const size_t limit = s->limit;
    const size_t least = (size_t)4 << 20, most = (size_t)512 << 20;
    if (wf_device_is_host(device) || limit == 0)
        return 0;
    return limit / 128 < least ? least : limit / 128 > most ? most : limit / 128;
}

struct wf_device_options wf_settings_device_options(const struct wf_settings *s,
                                                    const struct wf_device *device)
{
    return (struct wf_device_options){
        .deterministic = s->repeats != WF_REPEATS_NEARLY,
        .exact = s->repeats == WF_REPEATS_ON_ANY_MESH,
        .tf32 = s->train.precision == WF_PRECISION_TF32,
        .workspace = wf_settings_workspace(s, device),
        .path = s->comm.path,
        .cache = s->cache,
    };
}

bool wf_settings_open(const struct wf_settings *s, const struct wf_device *device,
                      struct wf_comm *comm, struct wf_context **context, struct wf_err *err)
{
    struct wf_device_options options = wf_settings_device_options(s, device);
    options.local_rank = wf_comm_local_rank(comm);
    const bool ok = wf_device_open(device, &options, context, err);
    return wf_comm_agree(comm, ok, err);
}

double wf_machine_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* The ranks of this machine share its memory: none of them would get what is taken beyond that, and the
 * system would end one of them. */
static bool check_machine(const struct wf_global_plan *global, struct wf_comm *comm, size_t bytes,
                          struct wf_err *err)
{
    const double all = wf_machine_bytes();
    const int ranks = wf_comm_local_size(comm);
    if (!wf_device_is_host(global->options.device) || (double)bytes * ranks <= all)
        return true;
    struct wf_arena arena = { 0 };
    (void)wf_err_set(
        err, WF_ERR_FIT,
        "a rank needs %s or more, and this machine has %s for %s: use a smaller image or "
        "batch, or ranks on more machines",
        wf_text_bytes(&arena, (double)bytes), wf_text_bytes(&arena, all),
        wf_text_ranks(&arena, ranks));
    wf_arena_release(&arena);
    return false;
}

struct wf_plan *wf_rank_plan(const struct wf_global_plan *global, int rank, struct wf_comm *comm,
                             struct wf_context *context, struct wf_err *err)
{
    /* All ask before one begins: trying kernels takes memory from ranks that share a device. */
    if (!wf_comm_agree(
            comm,
            global && check_machine(global, comm, wf_global_plan_least_bytes(global, rank), err) &&
                wf_plan_fits(global, rank, context, err),
            err) ||
        !global)
        return NULL;
    struct wf_plan *const plan = wf_plan_new_on(global, rank, context, err);
    const bool ok =
        plan && check_machine(global, comm, plan->arena_bytes + wf_plan_param_bytes(plan), err);
    if (wf_comm_agree(comm, ok, err))
        return plan;
    wf_plan_free(plan);
    return NULL;
}
