/* The CPU as a device, and the reference device, which runs every operator's own slow kernel. */
#include "device/cpu/cpu.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "device/choices.h"
#include "device/update.h"

static struct wf_context *open_device(const struct wf_device_options *options, struct wf_err *)
{
    struct wf_cpu *const cpu = wf_take_zeroed(1, sizeof *cpu);
    cpu->base.device = &wf_device_cpu;
    cpu->verdicts = wf_choices_new(options->cache);
    return &cpu->base;
}

static void close_device(struct wf_context *context)
{
    struct wf_cpu *const cpu = (struct wf_cpu *)context;
    wf_choices_free(cpu->verdicts);
    free(cpu);
}

static void run_reference(const struct wf_call *call)
{
    call->node->op->reference(call);
}

static const struct wf_kernel reference = {
    .op = "reference",
    .run = run_reference,
};

bool wf_kernel_is_reference(const struct wf_kernel *kernel)
{
    return kernel == &reference;
}

static const struct wf_kernel *find_reference(const struct wf_node *)
{
    return &reference;
}

static const struct wf_kernel *find_fast(const struct wf_node *node)
{
    const struct wf_kernel *const best = wf_kernel_find(wf_cpu_kernels, node);
    return best ? best : &reference;
}

/* From here on memory comes in pages of its own, zeroed by the kernel when first touched. */
static const size_t large = (size_t)4 << 20;

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void *take(struct wf_context *, size_t bytes)
{
    if (bytes > SIZE_MAX - 64)
        return NULL;
    if (bytes < large) {
        const size_t room = whole_lines(bytes ? bytes : 1);
        void *memory = aligned_alloc(64, room);
        if (memory)
            memset(memory, 0, room);
        return memory;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    /* Only advice: without huge pages all is well, just slower. */
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

static void give_back(struct wf_context *, void *memory, size_t bytes)
{
    if (!memory)
        return;
    if (bytes < large)
        free(memory);
    else
        WF_BUG_ON(munmap(memory, bytes) != 0, "munmap of %zu bytes", bytes);
}

static void copy(struct wf_context *, const struct wf_view *dst, const struct wf_view *src)
{
    wf_cpu_copy(dst, src);
}

/* What is small against the image: a weight's gradient, a norm's sums. */
static void add(struct wf_context *, const struct wf_view *dst, const struct wf_view *src)
{
    const int64_t n = wf_region_count(dst->box);
    if (dst->dtype == WF_F32)
        for (int64_t i = 0; i < n; i++)
            ((float *)dst->data)[i] += ((const float *)src->data)[i];
    else
        for (int64_t i = 0; i < n; i++)
            wf_dtype_put(dst->dtype, dst->data, i,
                         wf_dtype_get(dst->dtype, dst->data, i) +
                             wf_dtype_get(src->dtype, src->data, i));
}

/* The figures are those of two cores of a server of 2023: only their proportion matters. */
const struct wf_device wf_device_cpu = {
    .name = "cpu",
    .find = find_fast,
    .fallback = &reference,
    .open = open_device,
    .close = close_device,
    .updater = &wf_cpu_updater,
    .memory = { .alloc = take, .free = give_back, .copy = copy, .add = add },
    .cost = { .flops_per_second = 2e11,
              .bytes_per_second = 2e10,
              .links = { .bytes_per_second = 5e9, .seconds = 5e-6 } },
    .threads = 2,
};

const struct wf_device wf_device_reference = {
    .name = "reference",
    .find = find_reference,
    .fallback = &reference,
    .updater = &wf_cpu_updater,
    .memory = { .alloc = take, .free = give_back, .copy = copy, .add = add },
    .cost = { .flops_per_second = 1e8,
              .bytes_per_second = 2e10,
              .links = { .bytes_per_second = 5e9, .seconds = 5e-6 } },
    .threads = 2,
};
