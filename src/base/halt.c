#include "base/halt.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILES = 64, SECONDS = 10, STATUS = 3 /* that of WF_ERR_FIT */ };

/* There is one process to end, whichever thread finds out, and then nothing can be taken any more. */
static _Atomic pid_t halting;                            /* arch-ok: the process's end */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* arch-ok: the process's end */
static const char *files[FILES];                         /* arch-ok: the process's end */
static struct {
    const char *who;
    void (*tell)(const char *text);
    void (*instead)(const char *text);
} listener; /* arch-ok: the process's end */

void wf_halt_tell(const char *who, void (*tell)(const char *text))
{
    (void)pthread_mutex_lock(&lock);
    listener.who = who;
    listener.tell = tell;
    (void)pthread_mutex_unlock(&lock);
}

void wf_halt_to(void (*halt)(const char *text))
{
    (void)pthread_mutex_lock(&lock);
    listener.instead = halt;
    (void)pthread_mutex_unlock(&lock);
}

/* The first `from` in the list becomes `to`. */
static void replace_locked(const char *from, const char *to)
{
    int i = 0;
    while (i < FILES && files[i] != from)
        i++;
    if (i < FILES)
        files[i] = to;
}

static void replace(const char *from, const char *to)
{
    (void)pthread_mutex_lock(&lock);
    replace_locked(from, to);
    (void)pthread_mutex_unlock(&lock);
}

void wf_halt_remove(const char *path)
{
    replace(NULL, path);
}

int wf_halt_create(const char *path)
{
    (void)pthread_mutex_lock(&lock);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0)
        replace_locked(NULL, path);
    (void)pthread_mutex_unlock(&lock);
    return fd;
}

void wf_halt_keep(const char *path)
{
    if (path)
        replace(path, NULL);
}

static void end(int)
{
    _exit(STATUS);
}

void wf_halt(const char *format, ...)
{
    pid_t other = 0;
    if (!atomic_compare_exchange_strong(&halting, &other, gettid())) {
        if (other == gettid())
            end(0); /* `tell` has come here again */
        for (;;)
            (void)pause();
    }
    char text[1024], line[sizeof text + 64];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (listener.instead)
        listener.instead(text);
    (void)pthread_mutex_lock(&lock); /* for good: nothing is added any more */
    for (int i = 0; i < FILES; i++)
        if (files[i])
            (void)unlink(files[i]);
    (void)snprintf(line, sizeof line, "widefield: error: %s%s\n", listener.who ? listener.who : "",
                   text);
    (void)!write(STDERR_FILENO, line, strlen(line));
    if (listener.tell) {
        (void)signal(SIGALRM, end);
        (void)alarm(SECONDS);
        listener.tell(text);
    }
    end(0);
    for (;;) /* end() does not return */
        (void)pause();
}
