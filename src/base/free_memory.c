#define _POSIX_C_SOURCE 200809L
#include "base/free_memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A number behind a name in a file of such lines; 0: there is none. */
static size_t line_of(const char *path, const char *name)
{
    char line[256];
    unsigned long long value = 0;
    FILE *const file = fopen(path, "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 &&
            sscanf(line + strlen(name), "%llu", &value) == 1)
            break;
    (void)fclose(file);
    return (size_t)value;
}

struct wf_free_memory wf_free_memory(void)
{
    struct wf_free_memory m = {
        .all = 1024 * line_of("/proc/meminfo", "MemTotal:"),
        .free = 1024 * line_of("/proc/meminfo", "MemAvailable:"),
    };
    if (m.all == 0)
        m.all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    /* Version 2 of control groups, and version 1. */
    static const char *const groups[][2] = {
        { "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current" },
        { "/sys/fs/cgroup/memory/memory.limit_in_bytes",
          "/sys/fs/cgroup/memory/memory.usage_in_bytes" },
    };
    for (int i = 0; i < 2; i++) {
        const size_t most = line_of(groups[i][0], ""), used = line_of(groups[i][1], "");
        if (most == 0 || most >= m.all)
            continue;
        m.all = most;
        m.free = used >= most ? 0 : most - used < m.free ? most - used : m.free;
    }
    return m;
}
