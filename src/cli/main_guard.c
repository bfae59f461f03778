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
 * its new-handler ends the process for every size. Threads of ours are the same: who starts them takes
 * the failure, while libgomp would end the process with a message of its own.
 *
 * Only with glibc, and not with sanitizers, which stand in this place themselves.
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* --- threads --- */

static bool is_ours(const void *code)
{
    extern const char __executable_start, etext; /* the linker's: the ends of our own code */
    return (const char *)code >= &__executable_start && (const char *)code < &etext;
}

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
