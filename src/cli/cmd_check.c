/* check: what this machine has. Nothing runs but for --calibrate, and nothing that is missing is a failure. */
#include <cjson/cJSON.h>
#include <libfyaml.h>
#include <sched.h>
#include <string.h>
#include <xxhash.h>

#ifdef WF_HAVE_OPENMP
#include <omp.h>
#endif
#ifdef WF_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#endif

#include "base/cores.h"
#include "cli/check.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "cloud/cloud_las.h"
#include "comm/comm.h"
#include "comm/mpi.h"
#include "device/choices.h"
#include "train/device.h"
#include "train/job.h"
#ifdef WF_HAVE_DNNL
#include "device/cpu/dnnl.h"
#endif
#ifdef WF_HAVE_NCCL
#include "comm/nccl.h"
#endif
#ifdef WF_HAVE_CUDA
#include "device/cuda/about.h"
#endif

enum { FACTS = 48, GPUS = 8 };

struct fact {
    const char *topic, *name, *text;
    bool there;
};

struct facts {
    struct wf_arena *arena;
    struct fact at[FACTS];
    int count;
};

static void add(struct facts *f, const char *topic, const char *name, bool there, const char *text)
{
    WF_BUG_ON(f->count == FACTS, "'%s'", name);
    f->at[f->count++] = (struct fact){ topic, name, text, there };
}

/* The vector instructions that kernels ask for. */
static const char *cpu_features(struct wf_arena *arena)
{
    const char *text = "";
#if defined(__x86_64__)
    const struct {
        const char *name;
        bool there;
    } all[] = {
        { "avx2", __builtin_cpu_supports("avx2") },
        { "fma", __builtin_cpu_supports("fma") },
        { "avx512f", __builtin_cpu_supports("avx512f") },
        { "avx512vnni", __builtin_cpu_supports("avx512vnni") },
        { "avx512bf16", __builtin_cpu_supports("avx512bf16") },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].there)
            text = wf_arena_printf(arena, "%s%s%s", text, *text ? " " : "", all[i].name);
#endif
    return *text ? text : wf_arena_copy(arena, "no vector instructions that we look for");
}

#ifdef WF_HAVE_CUDA
/* Plans with one of them are refused on the device. */
static const char *not_on_cuda(struct wf_arena *arena)
{
    const char *text = "";
    for (const struct wf_op *const *op = wf_op_table; *op; op++)
        if (!wf_kernels_have(wf_cuda_kernels, *op) && !((*op)->flags & WF_OP_COLLECTS))
            text = wf_arena_printf(arena, "%s%s%s", text, *text ? " " : "", (*op)->name);
    return *text ? text : "none";
}
#endif

static void add_gpus(struct facts *f)
{
#ifdef WF_HAVE_CUDA
    char text[512];
    const int count = wf_cuda_about_count(text, sizeof text);
    if (count == 0)
        add(f, "device", "cuda", false, wf_arena_copy(f->arena, text));
    for (int i = 0; i < count && i < GPUS; i++) {
        wf_cuda_about_gpu(i, text, sizeof text);
        add(f, "device", wf_arena_printf(f->arena, "cuda:%d", i), true,
            wf_arena_copy(f->arena, text));
    }
    wf_cuda_about_versions(text, sizeof text);
    struct wf_choices *const verdicts = wf_choices_new(NULL);
    const size_t wrong = wf_choices_count(verdicts, "", WF_CHOICE_WRONG) -
                         wf_choices_count(verdicts, "oneDNN", WF_CHOICE_WRONG);
    wf_choices_free(verdicts);
    add(f, "compute", "CUDA", true,
        wf_arena_printf(f->arena, "%s, kernels of cuDNN that were wrong and are not used: %zu",
                        text, wrong));
    const bool cudnn = wf_cuda_about_cudnn(text, sizeof text);
    add(f, "compute", "cuDNN", cudnn, wf_arena_copy(f->arena, text));
    const bool cublas = wf_cuda_about_cublas(text, sizeof text);
    add(f, "compute", "cuBLASLt", cublas, wf_arena_copy(f->arena, text));
    add(f, "compute", "not on CUDA", true, not_on_cuda(f->arena));
#else
    add(f, "device", "cuda", false, "not in this build: build it with 'make cuda'");
#endif
}

static void add_devices(struct facts *f)
{
    struct wf_arena *const arena = f->arena;
    add(f, "device", "cpu", true,
        wf_arena_printf(arena, "%d cores, %s, %s", wf_cores(),
                        wf_text_bytes(arena, wf_machine_bytes()), cpu_features(arena)));
    add(f, "device", "reference", true, "every operator's slow, right kernel");
    add_gpus(f);
}

#ifdef WF_HAVE_DNNL
/* The version, and what runs on this machine have found out about its primitives. */
static const char *about_dnnl(struct wf_arena *arena)
{
    char about[WF_DNNL_ABOUT];
    const dnnl_version_t *const v = dnnl_version();
    struct wf_choices *const verdicts = wf_choices_new(NULL);
    wf_dnnl_about(about);
    const size_t right = wf_choices_count(verdicts, about, WF_CHOICE_RIGHT);
    const size_t wrong = wf_choices_count(verdicts, about, WF_CHOICE_WRONG);
    wf_choices_free(verdicts);
    return wf_arena_printf(arena, "%d.%d.%d, primitives checked here: %zu, wrong and not used: %zu",
                           v->major, v->minor, v->patch, right + wrong, wrong);
}
#endif

static void add_compute(struct facts *f)
{
#ifdef WF_HAVE_DNNL
    add(f, "compute", "oneDNN", true, about_dnnl(f->arena));
#else
    add(f, "compute", "oneDNN", false,
        "not in this build: install libdnnl-dev and configure again; until then the CPU is slow");
#endif
#ifdef WF_HAVE_OPENMP
    add(f, "compute", "OpenMP", true,
        wf_arena_printf(f->arena, "%d threads at most", omp_get_max_threads()));
#else
    add(f, "compute", "OpenMP", false, "not in this build: each rank computes on one thread");
#endif
}

static void add_comm(struct facts *f)
{
    add(f, "comm", "threads", true, "ranks as threads of one process (--ranks, --mesh)");
    char text[512];
    struct wf_err err = { 0 };
    const bool mpi = wf_comm_mpi_about(text, sizeof text, &err);
    add(f, "comm", "MPI", mpi,
        wf_arena_printf(f->arena, "%s%s", mpi ? text : err.text,
                        mpi && wf_comm_mpi_launched() ? ", and a launcher has started us" : ""));
#ifdef WF_HAVE_NCCL
    const bool nccl = wf_nccl_about(text, sizeof text);
    add(f, "comm", "NCCL", nccl, wf_arena_copy(f->arena, text));
#else
    add(f, "comm", "NCCL", false, "not in this build");
#endif
}

static void add_libraries(struct facts *f)
{
    add(f, "library", "libfyaml", true, fy_library_version());
    add(f, "library", "cJSON", true, cJSON_Version());
    const unsigned v = XXH_versionNumber();
    add(f, "library", "xxHash", true,
        wf_arena_printf(f->arena, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100));
}

static void add_format(struct facts *f, const char *topic, const char *name, bool there,
                       const char *package)
{
    add(f, topic, name, there,
        there ? ""
              : wf_arena_printf(f->arena, "not in this build: install %s and configure again",
                                package));
}

static void add_formats(struct facts *f)
{
    bool png = false, jpeg = false, tiff = false, zlib = false, expat = false, fonts = false;
    bool inflate = false, onnx = false;
#ifdef WF_HAVE_PNG
    png = true;
#endif
#ifdef WF_HAVE_JPEG
    jpeg = true;
#endif
#ifdef WF_HAVE_TIFF
    tiff = true;
#endif
#ifdef WF_HAVE_ZLIB
    zlib = true;
#endif
#ifdef WF_HAVE_EXPAT
    expat = true;
#endif
#ifdef WF_HAVE_FREETYPE
    fonts = true;
#endif
#ifdef WF_HAVE_DEFLATE
    inflate = true;
#endif
#ifdef WF_HAVE_ONNX
    onnx = true;
#endif
    add_format(f, "images", "PNG", png, "libpng-dev");
    add_format(f, "images", "PNG inflated at once", inflate, "libdeflate-dev");
    add_format(f, "images", "JPEG", jpeg, "libjpeg62-turbo-dev");
    add_format(f, "images", "TIFF", tiff, "libtiff-dev");
    add_format(f, "images", ".nii.gz, packed HDF5", zlib, "zlib1g-dev");
    add_format(f, "images", "OME-TIFF stacks", expat, "libexpat1-dev");
    add_format(f, "images", "digits from fonts", fonts, "libfreetype-dev");
    add(f, "images", ".nii, .npy, plain HDF5", true, "");
    struct wf_err err = { 0 };
    const bool laz = wf_laz_is_here("LAZ", &err);
    add(f, "points", "LAZ", laz,
        laz ? "" : "LASzip is not here: install liblaszip8, or conda's laszip");
    add(f, "points", ".ply, .las, .off, .npz, .npy, .bin", true, "");
    add_format(f, "networks", "ONNX", onnx, "libprotobuf-c-dev and protobuf-c-compiler");
}

static bool print_json(struct wf_cli *cli, const struct facts *f, struct wf_err *err)
{
    cJSON *const all = cJSON_CreateObject();
    cJSON_AddStringToObject(all, "version", WF_VERSION_STRING);
    cJSON_AddNumberToObject(all, "cores", wf_cores());
    for (int i = 0; i < f->count; i++) {
        cJSON *topic = cJSON_GetObjectItemCaseSensitive(all, f->at[i].topic);
        if (!topic)
            topic = cJSON_AddObjectToObject(all, f->at[i].topic);
        cJSON *const one = cJSON_AddObjectToObject(topic, f->at[i].name);
        cJSON_AddBoolToObject(one, "available", f->at[i].there);
        cJSON_AddStringToObject(one, "text", f->at[i].text);
    }
    return wf_cli_print_json(cli, all, err);
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments > 0)
        return wf_err_set(err, WF_ERR_USAGE, "'check' takes no '%s'", cli->arguments[0]);
    if (wf_cli_flag(cli, "calibrate"))
        return wf_check_calibrate(cli, err);
    static const char *const of_calibrate[] = { "out", "seconds" };
    for (size_t i = 0; i < sizeof of_calibrate / sizeof *of_calibrate; i++)
        if (wf_cli_flag(cli, of_calibrate[i]))
            return wf_err_set(err, WF_ERR_USAGE, "option '--%s' is for --calibrate: give that too",
                              of_calibrate[i]);
    struct facts f = { .arena = &cli->arena };
    add_devices(&f);
    add_compute(&f);
    add_comm(&f);
    add_formats(&f);
    add_libraries(&f);
    if (cli->json)
        return print_json(cli, &f, err);
    if (!cli->launch.is_root)
        return true;
    (void)printf("widefield %s\n\n", WF_VERSION_STRING);
    struct wf_table t = { .arena = &cli->arena };
    wf_table_row(&t, 4, (const char *[]){ "what", "name", "", "" });
    for (int i = 0; i < f.count; i++)
        wf_table_row(&t, 4,
                     (const char *[]){ f.at[i].topic, f.at[i].name, f.at[i].there ? "yes" : "no",
                                       f.at[i].text });
    wf_table_print(&t, stdout);
    return true;
}

static const struct wf_command_flag flags[] = {
    { "calibrate", NULL,
      "measure kernels and links of --device for the cost model; takes minutes" },
    { "out", "FILE", "with --calibrate: where to write, in place of the folder of run.cache" },
    { "seconds", "N", "with --calibrate: end after about so many, with what was measured by then" },
    { .name = NULL },
};

const struct wf_command wf_command_check = {
    .name = "check",
    .summary = "print what this machine has: devices, MPI, image formats, libraries",
    .usage = "check [--calibrate [--device NAME] [--precision TYPE] [--seconds N]\n"
             "                 [--out FILE]] [--json]",
    .notes =
        "With --calibrate small networks run a few steps each, and what their kernels took is kept\n"
        "beside the file of run.cache. 'plan', 'train' and '--mesh auto' reckon with it; before that\n"
        "with figures that are shipped for the device. Let the machine be idle meanwhile. The file is written\n"
        "as kernels are measured, so a run that is cut off is of use: what it did not reach, or was not asked\n"
        "to, stays from an older file of the same machine, or from what is shipped for it. A whole calibration\n"
        "replaces the file.",
    .flags = flags,
    .run = run,
};
