/* Which ranks share a machine: they have its name in common. */
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "comm/comm.h"

/* FNV-1a, 63 bits: a sum with zeros from the others keeps it. */
static int64_t machine(void)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return (int64_t)(hash >> 1);
}

bool wf_comm_local_rank(struct wf_comm *comm, int *rank, struct wf_err *err)
{
    const int size = wf_comm_size(comm), me = wf_comm_rank(comm);
    struct wf_arena arena = { 0 };
    int64_t *const machines = wf_arena_array(&arena, size, int64_t);
    machines[me] = machine();
    struct wf_request *request = NULL;
    const bool ok = wf_comm_sum_begin(comm, machines, (size_t)size, WF_I64, &request, err) &&
                    wf_comm_sum_end(comm, request, err);
    *rank = 0;
    for (int i = 0; ok && i < me; i++)
        *rank += machines[i] == machines[me];
    wf_arena_release(&arena);
    return ok;
}
