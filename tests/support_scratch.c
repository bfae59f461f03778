#include "support_scratch.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int support_scratch_enter(void **state)
{
    const char *const parent = getenv("TMPDIR");
    char *folder = NULL;
    if (asprintf(&folder, "%s/widefield-test.XXXXXX", parent && *parent ? parent : P_tmpdir) < 0)
        return -1;
    *state = folder;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

int support_scratch_leave(void **state)
{
    enum { OPEN_FOLDERS = 16 };
    char *const folder = *state;
    const int failed =
        chdir("/") != 0 || nftw(folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) != 0;
    free(folder);
    return failed ? -1 : 0;
}
