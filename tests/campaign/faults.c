/*
 * Calls that fail: a library for LD_PRELOAD, built by tests/campaign/faults.
 *
 *     FAULTS_COUNT=FILE         when main() has returned, FILE has a line "CLASS CALLS" for every class
 *     FAULTS_FAIL=CLASS:K       the K-th call of the class since main() began fails, once
 *     FAULTS_FAIL=CLASS:K+      it and all that follow
 *     FAULTS_FIRED=FILE         is made when a call was failed
 *
 * Calls of all threads are counted together. Classes are the sections below.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum class { MEMORY, OPEN, READ, WRITE, SYNC, NAME, STAT, MAP, THREAD, CLASSES };
static const char *const class_names[CLASSES] = { "memory", "open", "read", "write", "sync",
                                                  "name",   "stat", "map",  "thread" };
static const int class_errors[CLASSES] = {
    ENOMEM, EIO, EIO, ENOSPC, EIO, EIO, EIO, ENOMEM, EAGAIN
};

static atomic_bool counts; /* between main()'s begin and its end */
static atomic_long calls[CLASSES];
static enum class fails = CLASSES;
static long first;
static bool all;

static bool fault(enum class class)
{
    if (!atomic_load_explicit(&counts, memory_order_relaxed))
        return false;
    const long k = atomic_fetch_add(&calls[class], 1) + 1;
    if (class != fails || (all ? k < first : k != first))
        return false;
    const char *const fired = getenv("FAULTS_FIRED");
    if (fired) {
        const long fd = syscall(SYS_openat, AT_FDCWD, fired, O_WRONLY | O_CREAT, 0666);
        (void)syscall(SYS_close, fd);
    }
    errno = class_errors[class];
    return true;
}

/* What libc has under that name. While it is looked for, `real` is NULL. */
#define REAL(function)                                                                             \
    static __typeof__(&function) real;                                                             \
    if (!real)                                                                                     \
    real = (__typeof__(&function))(uintptr_t)dlsym(RTLD_NEXT, #function)

/* --- main --- */

static int (*real_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **environment)
{
    const char *const fail = getenv("FAULTS_FAIL"), *const colon = fail ? strchr(fail, ':') : NULL;
    for (int c = 0; colon && c < CLASSES; c++)
        if (strncmp(fail, class_names[c], (size_t)(colon - fail)) == 0) {
            fails = (enum class)c;
            first = atol(colon + 1);
            all = strchr(colon, '+') != NULL;
        }
    atomic_store(&counts, true);
    const int status = real_main(argc, argv, environment);
    atomic_store(&counts, false);
    const char *const path = getenv("FAULTS_COUNT");
    FILE *const file = path ? fopen(path, "w") : NULL;
    for (int c = 0; file && c < CLASSES; c++)
        (void)fprintf(file, "%s %ld\n", class_names[c], atomic_load(&calls[c]));
    if (file)
        (void)fclose(file);
    return status;
}

int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                      void (*)(void), void *);
int __libc_start_main(int (*given)(int, char **, char **), int argc, char **argv,
                      void (*init)(void), void (*fini)(void), void (*rtld_fini)(void), void *stack)
{
    REAL(__libc_start_main);
    real_main = given;
    return real(counted_main, argc, argv, init, fini, rtld_fini, stack);
}

/* --- memory --- */

void *malloc(size_t bytes)
{
    REAL(malloc);
    return fault(MEMORY) ? NULL : real(bytes);
}

void *calloc(size_t count, size_t size)
{
    REAL(calloc);
    return fault(MEMORY) ? NULL : real(count, size);
}

void *realloc(void *old, size_t bytes)
{
    REAL(realloc);
    return bytes && fault(MEMORY) ? NULL : real(old, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    REAL(aligned_alloc);
    return fault(MEMORY) ? NULL : real(align, bytes);
}

int posix_memalign(void **taken, size_t align, size_t bytes)
{
    REAL(posix_memalign);
    return fault(MEMORY) ? ENOMEM : real(taken, align, bytes);
}

/* --- open --- */

#define OPEN(function)                                                                             \
    int function(const char *path, int flags, ...)                                                 \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;                            \
        va_end(args);                                                                              \
        REAL(function);                                                                            \
        return fault(OPEN) ? -1 : real(path, flags, mode);                                         \
    }
OPEN(open)
OPEN(open64)

#define FOPEN(function)                                                                            \
    FILE *function(const char *path, const char *mode)                                             \
    {                                                                                              \
        REAL(function);                                                                            \
        return fault(OPEN) ? NULL : real(path, mode);                                              \
    }
FOPEN(fopen)
FOPEN(fopen64)

DIR *opendir(const char *path)
{
    REAL(opendir);
    return fault(OPEN) ? NULL : real(path);
}

/* --- read --- */

ssize_t read(int fd, void *data, size_t bytes)
{
    REAL(read);
    return fault(READ) ? -1 : real(fd, data, bytes);
}

#define PREAD(function)                                                                            \
    ssize_t function(int fd, void *data, size_t bytes, off_t offset)                               \
    {                                                                                              \
        REAL(function);                                                                            \
        return fault(READ) ? -1 : real(fd, data, bytes, offset);                                   \
    }
PREAD(pread)
PREAD(pread64)

static const int error_flag = 0x20; /* glibc's _IO_ERR_SEEN: what ferror() tells of */

size_t fread(void *data, size_t size, size_t count, FILE *file)
{
    REAL(fread);
    if (!fault(READ))
        return real(data, size, count, file);
    file->_flags |= error_flag;
    return 0;
}

char *fgets(char *text, int size, FILE *file)
{
    REAL(fgets);
    if (!fault(READ))
        return real(text, size, file);
    file->_flags |= error_flag;
    return NULL;
}

ssize_t getline(char **line, size_t *room, FILE *file)
{
    REAL(getline);
    if (!fault(READ))
        return real(line, room, file);
    file->_flags |= error_flag;
    return -1;
}

#define READDIR(function, type)                                                                    \
    struct type *function(DIR *dir)                                                                \
    {                                                                                              \
        REAL(function);                                                                            \
        return fault(READ) ? NULL : real(dir);                                                     \
    }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

/* --- write --- */

ssize_t write(int fd, const void *data, size_t bytes)
{
    REAL(write);
    return fd != STDERR_FILENO && fault(WRITE) ? -1 : real(fd, data, bytes);
}

#define PWRITE(function)                                                                           \
    ssize_t function(int fd, const void *data, size_t bytes, off_t offset)                         \
    {                                                                                              \
        REAL(function);                                                                            \
        return fault(WRITE) ? -1 : real(fd, data, bytes, offset);                                  \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

int fflush(FILE *file)
{
    REAL(fflush);
    return fault(WRITE) ? EOF : real(file);
}

/* --- sync --- */

#define SYNC(function)                                                                             \
    int function(int fd)                                                                           \
    {                                                                                              \
        REAL(function);                                                                            \
        return fault(SYNC) ? -1 : real(fd);                                                        \
    }
SYNC(fsync)
SYNC(fdatasync)

/* --- name --- */

#define TWO(function)                                                                              \
    int function(const char *from, const char *to)                                                 \
    {                                                                                              \
        REAL(function);                                                                            \
        return fault(NAME) ? -1 : real(from, to);                                                  \
    }
TWO(rename)
TWO(link)

int unlink(const char *path)
{
    REAL(unlink);
    return fault(NAME) ? -1 : real(path);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    return fault(NAME) ? -1 : real(path, mode);
}

#define TRUNCATE(function)                                                                         \
    int function(int fd, off_t length)                                                             \
    {                                                                                              \
        REAL(function);                                                                            \
        return fault(NAME) ? -1 : real(fd, length);                                                \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

/* --- stat --- */

int stat(const char *restrict path, struct stat *restrict info)
{
    REAL(stat);
    return fault(STAT) ? -1 : real(path, info);
}

int lstat(const char *restrict path, struct stat *restrict info)
{
    REAL(lstat);
    return fault(STAT) ? -1 : real(path, info);
}

int fstat(int fd, struct stat *info)
{
    REAL(fstat);
    return fault(STAT) ? -1 : real(fd, info);
}

int fstatat(int folder, const char *restrict path, struct stat *restrict info, int flags)
{
    REAL(fstatat);
    return fault(STAT) ? -1 : real(folder, path, info, flags);
}

int access(const char *path, int mode)
{
    REAL(access);
    return fault(STAT) ? -1 : real(path, mode);
}

/* --- map --- */

#define MMAP(function)                                                                             \
    void *function(void *at, size_t bytes, int rights, int flags, int fd, off_t offset)            \
    {                                                                                              \
        REAL(function);                                                                            \
        return fault(MAP) ? MAP_FAILED : real(at, bytes, rights, flags, fd, offset);               \
    }
MMAP(mmap)
MMAP(mmap64)

int mprotect(void *at, size_t bytes, int rights)
{
    REAL(mprotect);
    return fault(MAP) ? -1 : real(at, bytes, rights);
}

/* --- thread --- */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *arg)
{
    REAL(pthread_create);
    return fault(THREAD) ? EAGAIN : real(thread, attributes, body, arg);
}
