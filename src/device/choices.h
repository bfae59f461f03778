/*
 * What was found out about kernels, kept in memory while a device is open and in a file between runs:
 * which of cuDNN's was the fastest for a problem, and whether a primitive of an external library
 * computes the right numbers. One table for all devices, of texts only.
 *
 * A line of the file is a key, a tab and a choice. A key names everything that the choice depends on:
 * the library and its version, the processor, the problem. Ranks and processes may share the file:
 * each reads it when it opens its device and, when it has found something new, writes a new file in
 * the old one's place that holds what others wrote meanwhile too, under a lock on a file beside it
 * (.lock). Of very many lines the oldest are dropped. Lines that do not read back, and a file that
 * cannot be locked or written, are passed over: it only saves time.
 */
#pragma once

#include <stddef.h>

enum { WF_CHOICE_KEY = 2048, WF_CHOICE_TEXT = 1024 }; /* bytes of a key and a choice, at most */

enum { WF_CHOICES_KEPT = 10'000 }; /* lines of the file, at most */

/* Choices that are verdicts on a primitive. */
#define WF_CHOICE_RIGHT "right"
#define WF_CHOICE_WRONG "wrong"

struct wf_choices;

/* Where the file is, `path` as below, or a folder for it; NULL: there is none. */
struct wf_arena;
const char *wf_choices_path(struct wf_arena *arena, const char *path);
/* Makes the folders that a file of that path lies in, where it can. */
void wf_choices_make_folder(const char *path);
/* `path` NULL: widefield/kernels in $XDG_CACHE_HOME or ~/.cache; "": no file. */
struct wf_choices *wf_choices_new(const char *path);
void wf_choices_free(struct wf_choices *choices); /* writes what is new; NULL is fine */

const char *wf_choices_find(const struct wf_choices *choices, const char *key); /* or NULL */
void wf_choices_put(struct wf_choices *choices, const char *key, const char *choice);
/* Something long that belongs to a key, such as a compiled kernel: a file of its own beside that of the
 * choices (.long/), of which there are at most WF_CHOICES_LONG. NULL where there is none; to be freed. */
enum { WF_CHOICES_LONG = 1000 };
char *wf_choices_load(const struct wf_choices *choices, const char *key, size_t *size);
void wf_choices_store(const struct wf_choices *choices, const char *key, const void *data,
                      size_t size);
/* How many keys that begin with `prefix` have this choice. */
size_t wf_choices_count(const struct wf_choices *choices, const char *prefix, const char *choice);
