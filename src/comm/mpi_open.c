/* Opens libwidefield-mpi.so: see mpi.h. */
#define _GNU_SOURCE /* dladdr1 */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/halt.h"
#include "comm/comm.h"
#include "comm/mpi.h"

#define MODULE "libwidefield-mpi.so"

/* Open MPI's own plugins look for its symbols among the global ones. */
enum { HOW = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE };

static void halt(const char *text)
{
    wf_halt("%s", text);
}

/* The file that this code is part of: a library, or the program, whose own name may be a bare word. */
static bool find_us(char path[PATH_MAX])
{
    Dl_info info;
    struct link_map *us = NULL;
    if (!dladdr1(WF_BIN_TO_LIB, &info, (void **)&us, RTLD_DL_LINKMAP) || !us)
        return false;
    if (us->l_name[0] != '\0')
        return snprintf(path, PATH_MAX, "%s", us->l_name) < PATH_MAX;
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Where the module may lie: where WF_MPI_MODULE says, or else beside us, from an installed command in
 * the folder of libraries, and wherever the system looks. False: no more places. */
static bool place(int i, char path[PATH_MAX])
{
    static const char *const beside[] = { MODULE, WF_BIN_TO_LIB "/" MODULE };
    enum { FOLDERS = sizeof beside / sizeof *beside };
    const char *const given = getenv("WF_MPI_MODULE");
    if (given && *given)
        return i == 0 && snprintf(path, PATH_MAX, "%s", given) < PATH_MAX;
    if (i >= FOLDERS || !find_us(path))
        return i <= FOLDERS && snprintf(path, PATH_MAX, MODULE) < PATH_MAX;
    char *const slash = strrchr(path, '/');
    char *const name = slash ? slash + 1 : path;
    const size_t room = PATH_MAX - (size_t)(name - path);
    return (size_t)snprintf(name, room, "%s", beside[i]) < room;
}

static bool refuse(struct wf_err *err, const char *why)
{
    return wf_err_set(err, WF_ERR_USAGE,
                      "MPI cannot be used, which a start by mpirun or srun needs: %s: run without "
                      "them (ranks are then threads), or install %s",
                      why,
                      strstr(why, "libmpi")
                          ? "the MPI that widefield was built with (Debian: libopenmpi3)"
                          : "widefield with its module " MODULE
                            " (it is built where libopenmpi-dev is installed)");
}

/* The handle of the module that is in the process, or can be opened. */
static void *find(int how, char why[PATH_MAX])
{
    char path[PATH_MAX];
    for (int i = 0; place(i, path); i++) {
        void *const module = dlopen(path, how);
        if (module)
            return module;
        const char *const error = dlerror();
        (void)snprintf(why, PATH_MAX, "%s", error ? error : path);
        if (strchr(path, '/') && access(path, F_OK) == 0)
            break; /* the right one: something that it needs is not there */
    }
    return NULL;
}

static const struct wf_mpi_module *open_module(struct wf_err *err)
{
    char why[PATH_MAX] = "";
    void *const handle = find(HOW, why);
    const struct wf_mpi_module *const module = handle ? dlsym(handle, "wf_mpi_module") : NULL;
    if (handle && (!module || strcmp(module->version, WF_VERSION_STRING) != 0))
        (void)snprintf(why, sizeof why, MODULE " is %s, this is " WF_VERSION_STRING,
                       module ? module->version : "none of ours");
    else if (module) {
        module->halt_to(halt);
        return module;
    }
    (void)refuse(err, why);
    return NULL;
}

struct wf_comm *wf_comm_mpi(struct wf_err *err)
{
    const struct wf_mpi_module *const module = open_module(err);
    return module ? module->comm(err) : NULL;
}

/* It may be that MPI began and the comm failed; where the module was not opened, nothing began. */
void wf_comm_mpi_finish(void)
{
    char why[PATH_MAX] = "";
    void *const handle = find(HOW | RTLD_NOLOAD, why);
    const struct wf_mpi_module *const module = handle ? dlsym(handle, "wf_mpi_module") : NULL;
    if (module)
        module->finish();
}

bool wf_comm_mpi_about(char *text, size_t room, struct wf_err *err)
{
    const struct wf_mpi_module *const module = open_module(err);
    if (module)
        module->about(text, room);
    return module != NULL;
}

void wf_comm_mpi_set_piece(struct wf_comm *comm, size_t bytes)
{
    struct wf_err err = { 0 };
    const struct wf_mpi_module *const module = open_module(&err);
    WF_BUG_ON(!module, "%s", err.text);
    module->set_piece(comm, bytes);
}
