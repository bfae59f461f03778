/* The files of fuzz/corpus/ that say by their names what they are. */
#ifndef WF_TESTS_SUPPORT_CORPUS_H
#define WF_TESTS_SUPPORT_CORPUS_H

#include "base/err.h"

/* Each good-* of `folder` is read, no lie-* is; there are at least so many of them. */
void support_check_corpus(const char *folder, bool (*reads)(const char *path, struct wf_err *err),
                          int good, int lies);

#endif
