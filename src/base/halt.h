/*
 * Ends the process where no error can be returned: there is no memory for bookkeeping, or a library
 * cannot start its threads.
 *
 * wf_halt() allocates nothing. It removes half-written files, calls the function of wf_halt_tell()
 * (ranks in other processes wait for this one), writes the one line "widefield: error: ..." to
 * stderr and ends the process with the status of WF_ERR_FIT, 3, whatever other threads do
 * meanwhile. A program that needs another end does it in its function for wf_halt_tell().
 */
#pragma once

void wf_halt(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* `who` ("rank 3: ") comes before the message, and `tell` is called with it before the process
 * ends; it gets ten seconds. Borrowed until another call; NULL: nobody. */
void wf_halt_tell(const char *who, void (*tell)(const char *text));

/* A module with a copy of this file passes its text on to the program's wf_halt(). */
void wf_halt_to(void (*halt)(const char *text));

/* From now on wf_halt() removes this file; until wf_halt_keep() the caller keeps the
 * text unchanged. The list is short: files beyond it are left to wf_folder_sweep(). */
void wf_halt_remove(const char *path);
/* Creates the file, which must not exist, and registers it in one step: a file that is created
 * while another thread halts would be left behind. A file descriptor, or -1 with errno. */
int wf_halt_create(const char *path);
void wf_halt_keep(const char *path);
