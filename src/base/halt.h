/*
 * The end of the process where no error can travel: there is no memory for bookkeeping, or a library
 * cannot start its threads.
 *
 * wf_halt() takes no memory. It removes files that are half written, tells whom wf_halt_tell() named
 * (ranks in other processes wait for this one), writes the one line "widefield: error: ..." to stderr
 * and ends the process with the status of WF_ERR_FIT, 3, whatever other threads do meanwhile. A
 * program that wants another end makes it in its function for wf_halt_tell().
 */
#ifndef WF_BASE_HALT_H
#define WF_BASE_HALT_H

void wf_halt(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* `who` ("rank 3: ") comes before the message, and `tell` is called with it before the process ends; it
 * gets ten seconds. Borrowed until another call; NULL: nobody. */
void wf_halt_tell(const char *who, void (*tell)(const char *text));

/* From now on wf_halt() removes this file; until wf_halt_keep() the text stays the caller's, and as
 * it is. The list is short: what finds no place in it is left to wf_folder_sweep(). */
void wf_halt_remove(const char *path);
/* Makes the file, which must not be there, and does the above, with nothing in between: a file that is
 * made while another thread halts would be left behind. A file descriptor, or -1 with errno. */
int wf_halt_create(const char *path);
void wf_halt_keep(const char *path);

#endif
