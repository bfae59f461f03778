#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

/* GNU OpenMP's threads spin for milliseconds between two kernels. On a machine that others use, each of
 * them keeps a core from whoever has work: ten tiny epochs took 9 s so, and 1.4 s with threads that sleep
 * soon. The library reads its settings before main(), so the command starts itself anew with them; it
 * takes 6 ms. Whoever has set one of them has decided. */
static void wait_politely(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ||
        setenv("GOMP_SPINCOUNT", "3000", 0) != 0)
        return;
    (void)execv("/proc/self/exe", argv); /* returns only where that fails: then as it was */
}

int main(int argc, char **argv)
{
#ifdef WF_HAVE_OPENMP
    wait_politely(argv);
#endif
    return wf_cli_main(argc, argv);
}
