#define _GNU_SOURCE /* dladdr */
#include "base/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static void *open_in(const char *folder, const char *soname)
{
    char path[PATH_MAX];
    if (!folder || snprintf(path, sizeof path, "%s/lib64/%s", folder, soname) >= PATH_MAX)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_library(const char *soname)
{
    void *found =
        dlopen(soname, RTLD_NOW | RTLD_LOCAL); /* also one that is loaded, by its soname */
    const char *const folders[] = { getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda" };
    for (size_t i = 0; !found && i < sizeof folders / sizeof *folders; i++)
        found = open_in(folders[i], soname);
    return found;
}

bool wf_library_open(const struct wf_library *library, const char *const names[], void *table,
                     struct wf_err *err)
{
    void *const handle = open_library(library->soname);
    if (!handle)
        return wf_err_set(err, WF_ERR_FAILED,
                          "%s (%s) was not found: install %s, or name its "
                          "folder in LD_LIBRARY_PATH",
                          library->title, library->soname, library->install);
    for (int i = 0; names[i]; i++) {
        void *const function = dlsym(handle, names[i]);
        if (!function)
            return wf_err_set(err, WF_ERR_FAILED, "%s (%s) is too old, it has no %s: install %s",
                              library->title, library->soname, names[i], library->install);
        memcpy((char *)table + (size_t)i * sizeof function, &function, sizeof function);
    }
    return true;
}

const char *wf_library_path(const void *table)
{
    void *function;
    Dl_info info;
    memcpy(&function, table, sizeof function);
    return dladdr(function, &info) && info.dli_fname ? info.dli_fname : "";
}
