/* Fibers for emulate.h. A thread of a block is a stack and a saved stack pointer; switching costs a
 * few instructions, because tests start hundreds of thousands of them. */
#include "emulate.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define WF_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WF_ADDRESS_SANITIZER
#endif
#endif
#ifdef WF_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

struct wf_emulate wf_emulate;
dim3 threadIdx, blockIdx, gridDim, blockDim;

namespace
{

enum State { READY, AT_BLOCK, AT_WARP, DONE };
/* Not a power of two apart: all stacks in the same few lines of the cache would cost three times. */
enum { WARP = 32, MOST = 1024, STACK = (128 << 10) + 4096 + 192 };

struct Fiber {
    State state;
    int turn; /* which of the two words of an exchange is being given */
    uint64_t word[2];
    void *fake;
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
};

Fiber fibers[MOST];
char *stacks;
int current;
const std::function<void()> *job;
#ifdef __x86_64__
void *home;
#else
ucontext_t home;
#endif
#ifdef WF_ADDRESS_SANITIZER
void *home_fake;
const void *home_bottom;
size_t home_size;
#endif

[[noreturn]] void stop(const char *why)
{
    fprintf(stderr, "emulated kernel: %s (block %u,%u,%u of %u,%u,%u)\n", why, blockIdx.x,
            blockIdx.y, blockIdx.z, gridDim.x, gridDim.y, gridDim.z);
    abort();
}

#ifdef __x86_64__
/* Saves what a call must keep, changes stacks, and goes on where the other one stopped. */
extern "C" void wf_emulate_switch(void **save, void *load);
asm(".text\n.globl wf_emulate_switch\n.type wf_emulate_switch,@function\n"
    "wf_emulate_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size wf_emulate_switch,.-wf_emulate_switch\n");
#endif

void to_home(bool forever)
{
    Fiber &f = fibers[current];
    (void)forever;
#ifdef WF_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(forever ? nullptr : &f.fake, home_bottom, home_size);
#endif
#ifdef __x86_64__
    wf_emulate_switch(&f.sp, home);
#else
    swapcontext(&f.context, &home);
#endif
#ifdef WF_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(f.fake, nullptr, nullptr);
#endif
}

void begin()
{
#ifdef WF_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(nullptr, &home_bottom, &home_size);
#endif
    (*job)();
    fibers[current].state = DONE;
    to_home(true);
    stop("a finished thread was run again");
}

void prepare(int i)
{
    Fiber &f = fibers[i];
    f.state = READY;
    f.turn = 0;
    f.fake = nullptr;
    char *const bottom = stacks + (size_t)i * STACK;
#ifdef __x86_64__
    /* As if begin() had been called: its return address stands where a call leaves it. */
    void **top = (void **)(bottom + STACK - 64);
    *--top = nullptr;
    *--top = (void *)begin;
    f.sp = top - 6;
#else
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = bottom;
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = nullptr;
    makecontext(&f.context, begin, 0);
#endif
}

void resume(int i)
{
    current = i;
    threadIdx = dim3((unsigned)i, 0, 0);
#ifdef WF_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(&home_fake, stacks + (size_t)i * STACK, STACK);
#endif
#ifdef __x86_64__
    wf_emulate_switch(&home, fibers[i].sp);
#else
    swapcontext(&home, &fibers[i].context);
#endif
#ifdef WF_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(home_fake, nullptr, nullptr);
#endif
}

/* Lets those go on that have all met. False when nobody can. */
bool release(int threads)
{
    int at_block = 0, done = 0;
    bool any = false;
    for (int w = 0; w < threads; w += WARP) {
        int here = 0, finished = 0;
        const int lanes = threads - w < WARP ? threads - w : WARP;
        for (int i = w; i < w + lanes; i++) {
            here += fibers[i].state == AT_WARP;
            at_block += fibers[i].state == AT_BLOCK;
            finished += fibers[i].state == DONE;
        }
        done += finished;
        if (here == 0)
            continue;
        if (finished > 0 || lanes < WARP)
            stop("a shuffle in a warp that is not whole");
        if (here < lanes)
            continue;
        for (int i = w; i < w + lanes; i++)
            fibers[i].state = READY;
        any = true;
    }
    if (at_block > 0 && done > 0)
        stop("a barrier that some threads of the block never reach");
    if (at_block == threads) {
        for (int i = 0; i < threads; i++)
            fibers[i].state = READY;
        any = true;
    }
    return any;
}

void run_block(int threads)
{
    for (int i = 0; i < threads; i++)
        prepare(i);
    do {
        for (int k = 0; k < threads; k++) {
            const int i = wf_emulate.reversed ? threads - 1 - k : k;
            if (fibers[i].state == READY)
                resume(i);
        }
    } while (release(threads));
    for (int i = 0; i < threads; i++)
        if (fibers[i].state != DONE)
            stop("threads of a warp wait at different places");
}

} // namespace

void wf_emulate_sync(bool whole_block)
{
    fibers[current].state = whole_block ? AT_BLOCK : AT_WARP;
    to_home(false);
}

uint64_t wf_emulate_exchange(uint64_t word, int lane_mask)
{
    /* Nobody comes here a second time before all have read: two words are enough. */
    Fiber &f = fibers[current];
    const int turn = f.turn;
    f.turn = !turn;
    f.word[turn] = word;
    wf_emulate_sync(false);
    return fibers[current ^ lane_mask].word[turn];
}

void wf_emulate_run(dim3 grid, int threads, const std::function<void()> &kernel)
{
    static std::mutex one_at_a_time; /* ranks may be threads */
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    if (threads < 1 || threads > MOST || grid.x < 1 || grid.y < 1 || grid.z < 1 ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        stop("a grid or block that a GPU refuses");
    if (!stacks) {
        void *const memory = mmap(nullptr, (size_t)MOST * STACK, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            stop("no memory for stacks");
        stacks = (char *)memory;
    }
    job = &kernel;
    gridDim = grid;
    blockDim = dim3((unsigned)threads);
    const int64_t blocks = (int64_t)grid.x * grid.y * grid.z;
    for (int64_t k = 0; k < blocks; k++) {
        const int64_t b = wf_emulate.reversed ? blocks - 1 - k : k;
        blockIdx.x = (unsigned)(b % grid.x);
        blockIdx.y = (unsigned)(b / grid.x % grid.y);
        blockIdx.z = (unsigned)(b / grid.x / grid.y);
        run_block(threads);
    }
    wf_emulate.launches++;
    wf_emulate.threads += blocks * threads;
}
