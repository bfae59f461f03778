#define _POSIX_C_SOURCE 200809L
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#ifdef WF_HAVE_OPENMP
/* Not where a loader or an emulator runs us: its file is another. */
static bool is_widefield(const char *path, size_t bytes)
{
    static const char name[] = "widefield";
    size_t at = bytes;
    while (at > 0 && path[at - 1] != '/')
        at--;
    return bytes - at >= sizeof name - 1 && strncmp(path + at, name, sizeof name - 1) == 0;
}

/* GNU OpenMP's threads spin for milliseconds between two kernels. On a machine that others use, each of
 * them keeps a core from whoever has work: beside six busy processes on two cores ten tiny epochs took 9.9
 * and 17.5 s so, and 1.1 and 2.1 s with threads that sleep soon. The library reads its settings before main(), so the command starts itself anew with them; it
 * takes 6 ms. Whoever has set one of them has decided. */
static void wait_politely(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ||
        setenv("GOMP_SPINCOUNT", "3000", 0) != 0)
        return;
    char path[4096]; /* by its own name, as 'top' and 'pkill' know it */
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
    if (bytes <= 0 || !is_widefield(path, (size_t)bytes))
        return;
    path[bytes] = '\0';
    (void)execv(path, argv); /* returns only where that fails: then as it was */
}
#endif

int main(int argc, char **argv)
{
#ifdef WF_HAVE_OPENMP
    wait_politely(argv);
#endif
    return wf_cli_main(argc, argv);
}
