#include "support_corpus.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

void support_check_corpus(const char *folder, bool (*reads)(const char *path, struct wf_err *err),
                          int good, int lies)
{
    DIR *const dir = opendir(folder);
    if (!dir)
        fail_msg("no folder '%s'", folder);
    for (const struct dirent *at; (at = readdir(dir));) {
        const bool is_good = begins(at->d_name, "good-");
        if (!is_good && !begins(at->d_name, "lie-"))
            continue;
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", folder, at->d_name);
        struct wf_err err = { 0 };
        if (reads(path, &err) != is_good)
            fail_msg("%s: %s", at->d_name, err.text);
        good -= is_good;
        lies -= !is_good;
    }
    (void)closedir(dir);
    assert_true(good <= 0 && lies <= 0);
}
