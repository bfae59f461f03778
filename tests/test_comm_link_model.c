/* mpirun: 2 */
/* The clock of an emulated link (comm/link_model.h: L1 to L3). That it carries whatever a comm carries is
 * shown by test_comm.c. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "comm/link_model.h"
#include "support_comm.h"

/* 20 ms for each message and 100 ms for its bytes. */
enum { BYTES = 1 << 20 };
static const struct wf_link_model slow_link = { .seconds = 0.02, .bytes_per_second = 10.0 * BYTES };

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void compute(double seconds)
{
    for (const double end = now() + seconds; now() < end;)
        (void)nanosleep(&(struct timespec){ .tv_nsec = 1'000'000 }, NULL);
}

static bool at_least(double got, double want, const char *what, struct wf_err *err)
{
    return got >= want ||
           wf_err_set(err, WF_ERR_FAILED, "%s: took %.4f s, not %.4f", what, got, want);
}

/* `start` is a time before which no rank has begun anything. */
typedef bool timed_body(struct wf_comm *slow, struct wf_comm *fast, double start, char *data,
                        struct wf_err *err);

static bool with_link(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    timed_body *const *const b = arg;
    char *const data = calloc(4, BYTES);
    struct wf_comm *fast = NULL;
    if (!wf_comm_split(comm, 0, &fast, err))
        return false;
    struct wf_comm *const slow = wf_comm_link_model(comm, &slow_link);
    const double start = now();
    const bool ok = wf_comm_barrier(fast, err) && (*b)(slow, fast, start, data, err);
    wf_comm_free(slow);
    wf_comm_free(fast);
    free(data);
    return ok;
}

static void on_two_ranks(timed_body *b)
{
    if (under_mpi())
        run_on_mpi(with_link, &b);
    else
        run_on_threads(2, with_link, &b);
}

static bool one_each_way(struct wf_comm *slow, struct wf_comm *fast, double start, char *data,
                         struct wf_err *err)
{
    const int peer = 1 - wf_comm_rank(slow);
    const struct wf_message m[] = { to(peer, 1, data, BYTES), from(peer, 1, data + BYTES, BYTES) };
    memset(data, 7 + peer, BYTES);
    return exchange(slow, 2, m, err) && at_least(now() - start, 0.12, "a message", err) &&
           is(data[2 * BYTES - 1], 7 + wf_comm_rank(slow), "what came", err);
}

static void link__a_message_takes_latency_and_bytes_over_bandwidth(void **state)
{
    on_two_ranks(one_each_way);
}

/* 2 x 100 ms to leave, in two batches, and a latency. */
static bool two_in_turn(struct wf_comm *slow, struct wf_comm *fast, double start, char *data,
                        struct wf_err *err)
{
    const bool sends = wf_comm_rank(slow) == 0;
    struct wf_request *r[2];
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        const struct wf_message m = sends ? to(1, i, data, BYTES) : from(0, i, data, BYTES);
        ok = ok && wf_comm_exchange_begin(slow, 1, &m, &r[i], err);
    }
    ok = ok && wf_comm_exchange_end(slow, r[1], err);
    ok = ok && at_least(now() - start, sends ? 0.2 : 0.22, "two messages", err);
    return ok && wf_comm_exchange_end(slow, r[0], err);
}

static void link__carries_one_message_at_a_time(void **state)
{
    on_two_ranks(two_in_turn);
}

/* A short message behind a long one of 400 ms: it is there when the latency is over. */
static bool short_one_first(struct wf_comm *slow, struct wf_comm *fast, double start, char *data,
                            struct wf_err *err)
{
    const bool sends = wf_comm_rank(slow) == 0;
    const struct wf_message m[] = { sends ? to(1, 1, data, 4 * (size_t)BYTES)
                                          : from(0, 1, data, 4 * (size_t)BYTES),
                                    sends ? to(1, 2, data, 1000) : from(0, 2, data, 1000) };
    struct wf_request *r[2];
    bool ok = wf_comm_exchange_begin(slow, 1, &m[0], &r[0], err) &&
              wf_comm_exchange_begin(slow, 1, &m[1], &r[1], err) &&
              wf_comm_exchange_end(slow, r[1], err);
    ok = ok && (sends || at_least(now() - start, 0.02, "a short message", err));
    ok = ok && is(slow->vtable->exchange_test(slow, r[0]) && now() - start < 0.4, false,
                  "the long one is there as well", err);
    return ok && wf_comm_exchange_end(slow, r[0], err);
}

static void link__lets_short_messages_pass(void **state)
{
    on_two_ranks(short_one_first);
}

/* Ten messages take a second, during which nobody looks after them; what is left is copying. */
static bool beside_computing(struct wf_comm *slow, struct wf_comm *fast, double start, char *data,
                             struct wf_err *err)
{
    enum { TIMES = 10 };
    const int peer = 1 - wf_comm_rank(slow);
    struct wf_message m[2 * TIMES];
    for (int i = 0; i < TIMES; i++) {
        m[2 * i] = to(peer, i, data, BYTES);
        m[2 * i + 1] = from(peer, i, data + BYTES, BYTES);
    }
    struct wf_request *r;
    bool ok = wf_comm_exchange_begin(slow, 2 * TIMES, m, &r, err) && wf_comm_barrier(fast, err);
    const bool there = ok && slow->vtable->exchange_test(slow, r);
    ok = ok && is(there && now() - start < 1.02, false, "there too soon", err);
    compute(1.03);
    const double waits = now();
    ok = ok && wf_comm_exchange_end(slow, r, err);
    return ok && is(now() - waits < 0.8, true, "there after computing", err);
}

static void link__works_while_ranks_compute(void **state)
{
    on_two_ranks(beside_computing);
}

/* By a tree of two: half there, half back. */
static bool sum_over(struct wf_comm *slow, struct wf_comm *fast, double start, char *data,
                     struct wf_err *err)
{
    const struct wf_sum_options library = { .way = WF_SUM_LIBRARY };
    const size_t count = BYTES / sizeof(int32_t);
    int32_t *const numbers = (int32_t *)(void *)data;
    for (size_t i = 0; i < count; i++)
        numbers[i] = (int32_t)i + wf_comm_rank(slow);
    if (!wf_comm_set_sums(slow, &library, err))
        return false;
    return is(wf_comm_sum_way(slow, BYTES), WF_SUM_TREE, "way", err) &&
           sum(slow, numbers, count, WF_I32, err) && at_least(now() - start, 0.14, "a sum", err) &&
           is(numbers[count - 1], 2 * ((int64_t)count - 1) + 1, "the sum", err);
}

static void link__sums_do_not_go_past_it(void **state)
{
    on_two_ranks(sum_over);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(link__a_message_takes_latency_and_bytes_over_bandwidth),
        cmocka_unit_test(link__carries_one_message_at_a_time),
        cmocka_unit_test(link__lets_short_messages_pass),
        cmocka_unit_test(link__works_while_ranks_compute),
        cmocka_unit_test(link__sums_do_not_go_past_it),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (under_mpi())
        wf_comm_mpi_finish();
    return failed;
}
