#include "train/signals.h"

#include <signal.h>
#include <stddef.h>

/* The one thing that C lets a handler write. */
static volatile sig_atomic_t seen; /* arch-ok: a handler has no argument to hang it on */

static const struct {
    int number;
    const char *name;
} caught[] = {
    { SIGTERM, "SIGTERM" },
    { SIGINT, "SIGINT" },
    { SIGUSR1, "SIGUSR1" },
    { SIGUSR2, "SIGUSR2" },
};

static void note(int number)
{
    seen = number;
}

void wf_signals_catch(void)
{
    seen = 0;
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++) {
        struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
        if (caught[i].number == SIGINT)
            action.sa_flags |= (int)SA_RESETHAND;
        (void)sigemptyset(&action.sa_mask);
        (void)sigaction(caught[i].number, &action, NULL);
    }
}

void wf_signals_release(void)
{
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        (void)signal(caught[i].number, SIG_DFL);
    seen = 0;
}

int wf_signals_seen(void)
{
    return seen;
}

const char *wf_signals_name(int number)
{
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        if (caught[i].number == number)
            return caught[i].name;
    return "a signal";
}
