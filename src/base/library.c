#define _GNU_SOURCE /* dladdr */
#include "base/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static void *open_library(const char *soname)
{
    void *const found = dlopen(soname, RTLD_NOW | RTLD_LOCAL); /* also one that is loaded */
    if (found)
        return found;
    const char *folder = getenv("CUDA_HOME");
    if (!folder)
        folder = getenv("CUDA_PATH");
    if (!folder)
        folder = "/usr/local/cuda";
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/lib64/%s", folder, soname);
    return length < PATH_MAX ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
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
