#include "support_comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/link_model.h"

bool under_mpi(void)
{
    const char *kind = getenv("WIDEFIELD_TEST_COMM");
    return kind && strcmp(kind, "mpi") == 0;
}

void run_on_mpi(body *b, void *arg)
{
    struct wf_err err = { 0 };
    struct wf_comm *comm = wf_comm_mpi(&err);
    if (!comm)
        fail_msg("mpi: %s", err.text);
    const bool ok = b(comm, arg, &err);
    if (!ok)
        wf_comm_abort(comm, &err);
    wf_comm_free(comm);
    if (!ok)
        fail_msg("mpi: %s", err.text);
}

void run_on_threads(int size, body *b, void *arg)
{
    struct wf_err err = { 0 };
    if (!wf_comm_threads_run(size, b, arg, &err))
        fail_msg("%d threads: %s", size, err.text);
}

/* Ranks that count as one machine in the last two: with 3, 5 and 7 ranks the machines then differ. */
const struct wf_sum_options sum_ways[SUM_WAYS] = {
    { .way = WF_SUM_LIBRARY }, { .way = WF_SUM_RING },
    { .way = WF_SUM_TREE },    { .way = WF_SUM_NODES, .node_ranks = 2 },
    { .way = WF_SUM_NODES },
};
static const char *const way_names[SUM_WAYS] = { "library", "ring", "tree", "nodes of 2", "nodes" };

struct sums_by {
    const struct wf_sum_options *options;
    body *b;
    void *arg;
};

static bool with_sums(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct sums_by *by = arg;
    if (wf_comm_set_sums(comm, by->options, err) && by->b(comm, by->arg, err))
        return true;
    return wf_err_wrap(err, "sums by %s", way_names[by->options - sum_ways]);
}

static bool over_link(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct sums_by *by = arg;
    struct wf_comm *const slow = wf_comm_link_model(comm, &(struct wf_link_model){ 20e-6, 2e9 });
    const bool ok = wf_comm_set_sums(slow, by->options, err) && by->b(slow, by->arg, err);
    wf_comm_free(slow);
    return ok || wf_err_wrap(err, "over a link");
}

static void on_every_link(body *b, void *arg)
{
    struct sums_by by = { &(struct wf_sum_options){ 0 }, b, arg };
    if (under_mpi())
        run_on_mpi(over_link, &by);
    for (int size = 1; size < 6 && !under_mpi(); size += 2)
        run_on_threads(size, over_link, &by);
}

static void on_every_comm_by(const struct wf_sum_options *options, body *b, void *arg)
{
    const int sizes[] = { 1, 2, 3, 5, 7 };
    struct wf_err err = { 0 };
    struct sums_by by = { options, b, arg };
    if (under_mpi()) {
        run_on_mpi(with_sums, &by);
        return;
    }
    struct wf_comm *comm = wf_comm_self();
    const bool ok = with_sums(comm, &by, &err);
    wf_comm_free(comm);
    if (!ok)
        fail_msg("self: %s", err.text);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_on_threads(sizes[i], with_sums, &by);
}

void on_every_comm(body *b, void *arg)
{
    on_every_comm_by(&sum_ways[0], b, arg);
    on_every_link(b, arg);
}

void on_every_comm_and_way(body *b, void *arg)
{
    for (int way = 0; way < SUM_WAYS; way++)
        on_every_comm_by(&sum_ways[way], b, arg);
    on_every_link(b, arg);
}

bool is(int64_t got, int64_t want, const char *what, struct wf_err *err)
{
    return got == want || wf_err_set(err, WF_ERR_FAILED, "%s: expected %lld, got %lld", what,
                                     (long long)want, (long long)got);
}

bool says(const struct wf_err *got, const char *want, struct wf_err *err)
{
    return strstr(got->text, want) ||
           wf_err_set(err, WF_ERR_FAILED, "expected '%s', got '%s'", want, got->text);
}

struct wf_message to(int peer, int tag, const void *data, size_t bytes)
{
    return (struct wf_message){ .peer = peer, .tag = tag, .send = data, .bytes = bytes };
}

struct wf_message from(int peer, int tag, void *data, size_t bytes)
{
    return (struct wf_message){ .peer = peer, .tag = tag, .recv = data, .bytes = bytes };
}

bool exchange(struct wf_comm *comm, int count, const struct wf_message *m, struct wf_err *err)
{
    struct wf_request *r;
    return wf_comm_exchange_begin(comm, count, m, &r, err) && wf_comm_exchange_end(comm, r, err);
}

bool sum(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype, struct wf_err *err)
{
    struct wf_request *r;
    return wf_comm_sum_begin(comm, data, count, dtype, &r, err) && wf_comm_sum_end(comm, r, err);
}

int right_of(const struct wf_comm *comm)
{
    return (wf_comm_rank(comm) + 1) % wf_comm_size(comm);
}

int left_of(const struct wf_comm *comm)
{
    return (wf_comm_rank(comm) + wf_comm_size(comm) - 1) % wf_comm_size(comm);
}
