/*
 * Signals that ask a run to stop: SIGTERM, SIGINT, SIGUSR1, SIGUSR2 (schedulers send the last two
 * some time before they kill). The handler only records the signal; the loop checks it at its next
 * step, on all ranks together. A second SIGINT ends the process at once, as users expect.
 */
#pragma once

void wf_signals_catch(void);
/* Forgets recorded signals and restores the previous handlers. */
void wf_signals_release(void);
/* The last signal since wf_signals_catch(), or 0. */
int wf_signals_seen(void);
const char *wf_signals_name(int signal); /* "SIGTERM" */
