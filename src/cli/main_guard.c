/*
 * No memory and no threads, for the libraries in the command's process.
 *
 * What they do when malloc() returns NULL is theirs and seldom tested: oneDNN and libfyaml crash, C++
 * throws through our frames, cJSON leaves a member out and says nothing. So the executable has
 * allocation functions of its own, in front of all others. They do nothing but call the next ones (those
 * of libc, or of a library that the user has loaded before it), and a failure of less than LARGE ends
 * the process with a message (base/halt.h). A caller with something better to say about a small piece
 * of memory does not exist.
 *
 * What is LARGE is data: its callers get the NULL and say what did not fit. C++ has no such callers;
 * its new-handler ends the process for every size. With threads it is the same: who starts them among
 * us takes the failure, while libgomp would end the process with a message of its own. Pages for
 * code that oneDNN makes, and a stack that cannot grow, are memory too.
 *
 * Only with glibc, and not with sanitizers, which stand in this place themselves.
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/halt.h"
#include "base/memory.h"

#ifdef __GLIBC__

static const size_t LARGE = (size_t)1 << 20;

/* dlsym() may ask for memory itself, and can do without. */
static _Thread_local bool looking;

/* The function that is called when this file is not there; NULL while it is looked for. */
static uintptr_t next(_Atomic uintptr_t *kept, const char *name)
{
    uintptr_t found = atomic_load_explicit(kept, memory_order_relaxed);
    if (!found && !looking) {
        looking = true;
        found = (uintptr_t)dlsym(RTLD_NEXT, name);
        looking = false;
        atomic_store_explicit(kept, found, memory_order_relaxed);
    }
    return found;
}

#define NEXT(function)                                                                             \
    static _Atomic uintptr_t kept;                                                                 \
    __typeof__(&function) const real = (__typeof__(&function))next(&kept, #function)

static void *checked(void *taken, size_t bytes)
{
    if (!taken && bytes > 0 && bytes < LARGE && !looking)
        wf_no_memory(bytes);
    return taken;
}

void *malloc(size_t bytes)
{
    NEXT(malloc);
    return checked(real ? real(bytes) : NULL, bytes);
}

void *calloc(size_t count, size_t size)
{
    NEXT(calloc);
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX;
    return checked(real ? real(count, size) : NULL, bytes);
}

void *realloc(void *old, size_t bytes)
{
    NEXT(realloc);
    return checked(real ? real(old, bytes) : NULL, bytes);
}

void *reallocarray(void *old, size_t count, size_t size)
{
    NEXT(reallocarray);
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX;
    return checked(real ? real(old, count, size) : NULL, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    NEXT(aligned_alloc);
    return checked(real ? real(align, bytes) : NULL, bytes);
}

void *memalign(size_t align, size_t bytes)
{
    NEXT(memalign);
    return checked(real ? real(align, bytes) : NULL, bytes);
}

int posix_memalign(void **taken, size_t align, size_t bytes)
{
    NEXT(posix_memalign);
    const int failed = real ? real(taken, align, bytes) : ENOMEM;
    if (failed == ENOMEM && bytes < LARGE)
        wf_no_memory(bytes);
    return failed;
}

/* --- pages --- */

static bool is_ours(const void *code)
{
    extern const char __executable_start, etext; /* the linker's: the ends of our own code */
    return (const char *)code >= &__executable_start && (const char *)code < &etext;
}

/* For what is small, of no file, and not ours: no memory is no answer. */
static bool is_answer(size_t bytes, const void *code)
{
    return errno != ENOMEM || bytes >= LARGE || is_ours(code);
}

void *mmap(void *at, size_t bytes, int rights, int flags, int fd, off_t offset)
{
    NEXT(mmap);
    void *const pages = real(at, bytes, rights, flags, fd, offset);
    if (pages == MAP_FAILED && (flags & MAP_ANONYMOUS) && (flags & MAP_PRIVATE) &&
        !is_answer(bytes, __builtin_return_address(0)))
        wf_no_memory(bytes);
    return pages;
}

void *mmap64(void *at, size_t bytes, int rights, int flags, int fd, off64_t offset)
    __attribute__((alias("mmap"))); /* the same where pointers have 64 bits */

int mprotect(void *at, size_t bytes, int rights)
{
    NEXT(mprotect);
    const int failed = real(at, bytes, rights);
    if (failed && !is_answer(bytes, __builtin_return_address(0)))
        wf_no_memory(bytes);
    return failed;
}

/* --- threads --- */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *arg)
{
    NEXT(pthread_create);
    const int failed = real(thread, attributes, body, arg);
    if (failed && !is_ours(__builtin_return_address(0)))
        wf_halt("cannot start a thread to compute with: %s: use fewer ranks or OMP_NUM_THREADS, or "
                "raise the limits ('ulimit -u unlimited', 'ulimit -v unlimited')",
                strerror(failed));
    return failed;
}

/* --- the stack --- */

static const char *stack_low, *stack_high; /* of the main thread, at its largest */

static void no_page(int number, siginfo_t *info, void *)
{
    const char *const at = info->si_addr;
    if (at >= stack_low && at < stack_high)
        wf_halt("out of memory: the stack cannot grow: end other programs, or raise the limits "
                "('ulimit -s unlimited', 'ulimit -v unlimited')");
    (void)raise(number); /* somebody's mistake, and the default is back (SA_RESETHAND) */
}

__attribute__((constructor)) static void watch_stack(void)
{
    static char room[1 << 16];
    static const size_t most = (size_t)64 << 20;
    struct rlimit limit = { .rlim_cur = RLIM_INFINITY };
    (void)getrlimit(RLIMIT_STACK, &limit);
    stack_high = (const char *)__builtin_frame_address(0);
    stack_low = stack_high - (limit.rlim_cur < most ? (size_t)limit.rlim_cur : most);
    const struct sigaction act = { .sa_sigaction = no_page,
                                   .sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND };
    if (sigaltstack(&(stack_t){ .ss_sp = room, .ss_size = sizeof room }, NULL) == 0)
        (void)sigaction(SIGSEGV, &act, NULL);
}

/* --- C++ --- */

static void no_memory_for_new(void)
{
    wf_no_memory(LARGE); /* at least: a smaller piece has ended the process before */
}

/* std::set_new_handler, where a library has brought C++ with it. */
__attribute__((constructor)) static void set_new_handler(void)
{
    void (*(*const set)(void (*)(void)))(void) = (void (*(*)(void (*)(void)))(void))(
        uintptr_t)dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE");
    if (set)
        (void)set(no_memory_for_new);
}

#endif
