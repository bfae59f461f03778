#include "base/process.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* FNV-1a: a short name for a long one. */
static uint32_t hash_text(uint32_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

enum { FNV = (int)2166136261u };

static uint32_t kernel_of(const char *host)
{
    char boot[64] = "";
    FILE *const file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (!fgets(boot, sizeof boot, file))
            boot[0] = '\0';
        (void)fclose(file);
    }
    return hash_text((uint32_t)FNV, boot[0] ? boot : host);
}

static uint32_t numbers_of(void)
{
    char space[64] = "";
    const ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[n > 0 ? n : 0] = '\0';
    return hash_text((uint32_t)FNV, space);
}

/* Field 22 of /proc/PID/stat; the name before it may hold anything, but ends with the last ')'. */
static uint64_t start_of(long pid)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *const file = fopen(path, "re");
    if (!file)
        return 0;
    const size_t n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[n] = '\0';
    const char *const end = strrchr(text, ')');
    uint64_t started = 0;
    const int got = end ? sscanf(end + 1, // NOLINT(cert-err34-c): the kernel's own number
                                 " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                 "%*s %*s %*s %" SCNu64,
                                 &started)
                        : 0;
    return got == 1 ? started : 0;
}

struct wf_process wf_process_self(void)
{
    struct wf_process me = { .pid = (long)getpid(), .numbers = numbers_of() };
    if (gethostname(me.host, sizeof me.host - 1) != 0 || !me.host[0])
        (void)snprintf(me.host, sizeof me.host, "unknown");
    me.kernel = kernel_of(me.host);
    me.started = start_of(me.pid);
    return me;
}

enum wf_process_state wf_process_look(const struct wf_process *p)
{
    const struct wf_process me = wf_process_self();
    if (p->kernel != me.kernel || p->numbers != me.numbers || p->pid <= 0)
        return WF_PROCESS_UNKNOWN;
    if (kill((pid_t)p->pid, 0) != 0 && errno == ESRCH)
        return WF_PROCESS_GONE;
    const uint64_t started = start_of(p->pid);
    return started && p->started && started != p->started ? WF_PROCESS_GONE : WF_PROCESS_RUNS;
}
