/* mpirun: 1 2 3 5 */
/* The contract of comm/comm.h, kept by all who carry it: `self`, `threads` with 1, 2, 3, 5 and
 * 7 ranks, and, under mpirun with WIDEFIELD_TEST_COMM=mpi, `mpi`. (Sums: test_comm_sum.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef WF_HAVE_MPI
#include "comm/mpi.h"
#endif
#include "support_comm.h"

/* --- exchange --- */

/* On a torus of 1 x n or 2 x n ranks everyone gets the corner of each of its diagonal neighbours. */
static bool corners(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const int size = wf_comm_size(comm), rank = wf_comm_rank(comm);
    const int rows = size % 2 == 0 ? 2 : 1, columns = size / rows;
    const int y = rank / columns, x = rank % columns;
    int out[4], in[4], peers[4], count = 0;
    struct wf_message m[8];
    for (int i = 0; i < 4; i++) {
        const int dy = i / 2 ? 1 : rows - 1, dx = i % 2 ? 1 : columns - 1;
        peers[i] = (y + dy) % rows * columns + (x + dx) % columns;
        out[i] = 100 * rank + i;
        in[i] = -1;
        m[count++] = to(peers[i], i, &out[i], sizeof out[i]);
        m[count++] = from(peers[i], 3 - i, &in[i], sizeof in[i]);
    }
    if (!exchange(comm, count, m, err))
        return false;
    for (int i = 0; i < 4; i++)
        if (!is(in[i], 100 * peers[i] + 3 - i, "corner", err))
            return false;
    return true;
}

static void exchange__corner_comes_from_the_diagonal_peer(void **state)
{
    on_every_comm(corners, NULL);
}

static bool to_myself(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const int me = wf_comm_rank(comm);
    int out = 7 + me, in = 0, early = 8 + me, late = 0;
    const struct wf_message both[] = { from(me, 1, &in, sizeof in), to(me, 1, &out, sizeof out) };
    const struct wf_message first = to(me, 2, &early, sizeof early);
    const struct wf_message second = from(me, 2, &late, sizeof late);
    struct wf_request *r;
    return exchange(comm, 2, both, err) && is(in, 7 + me, "in one batch", err) &&
           wf_comm_exchange_begin(comm, 1, &first, &r, err) && exchange(comm, 1, &second, err) &&
           wf_comm_exchange_end(comm, r, err) && is(late, 8 + me, "in two batches", err);
}

static void exchange__a_rank_may_write_to_itself(void **state)
{
    on_every_comm(to_myself, NULL);
}

static bool nothing_to_all(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct wf_message m[2 * RANKS_MOST];
    char out = 1, in = 2;
    int count = 0;
    for (int r = 0; r < wf_comm_size(comm); r++) {
        m[count++] = from(r, 0, &in, 0);
        m[count++] = to(r, 0, &out, 0);
    }
    struct wf_request *none = (struct wf_request *)&in;
    return exchange(comm, count, m, err) && is(in, 2, "untouched", err) &&
           wf_comm_exchange_begin(comm, 0, NULL, &none, err) &&
           is(none == NULL, true, "an empty batch has no request", err) &&
           wf_comm_exchange_end(comm, none, err);
}

static void exchange__messages_of_zero_bytes_and_empty_batches_are_fine(void **state)
{
    on_every_comm(nothing_to_all, NULL);
}

static bool keeps_order(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    enum { MANY = 60, BATCHES = 3, EACH = MANY / BATCHES };
    int out[MANY], in[MANY];
    struct wf_message sends[MANY], receives[MANY];
    struct wf_request *r[1 + BATCHES];
    for (int i = 0; i < MANY; i++) {
        out[i] = 1000 * wf_comm_rank(comm) + i;
        sends[i] = to(right_of(comm), 32000, &out[i], sizeof out[i]);
        receives[i] = from(left_of(comm), 32000, &in[i], sizeof in[i]);
    }
    if (!wf_comm_exchange_begin(comm, MANY, sends, &r[0], err))
        return false;
    for (int b = 0; b < BATCHES; b++)
        if (!wf_comm_exchange_begin(comm, EACH, receives + (ptrdiff_t)b * EACH, &r[1 + b], err))
            return false;
    for (int b = BATCHES; b >= 0; b--)
        if (!wf_comm_exchange_end(comm, r[b], err))
            return false;
    for (int i = 0; i < MANY; i++)
        if (!is(in[i], 1000 * left_of(comm) + i, "in order", err))
            return false;
    return true;
}

static void exchange__messages_with_one_tag_keep_their_order(void **state)
{
    on_every_comm(keeps_order, NULL);
}

static bool any_order_of_tags(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const int sent[] = { 1, 2, 3 }, received[] = { 3, 1, 2 };
    int out[4], in[4] = { 0 };
    struct wf_request *r[6];
    for (int i = 0; i < 3; i++) {
        out[i] = 10 * wf_comm_rank(comm) + sent[i];
        const struct wf_message m = to(right_of(comm), sent[i], &out[i], sizeof out[i]);
        if (!wf_comm_exchange_begin(comm, 1, &m, &r[i], err))
            return false;
    }
    for (int i = 0; i < 3; i++) {
        const struct wf_message m = from(left_of(comm), received[i], &in[i], sizeof in[i]);
        if (!wf_comm_exchange_begin(comm, 1, &m, &r[3 + i], err))
            return false;
    }
    for (int i = 0; i < 6; i++)
        if (!wf_comm_exchange_end(comm, r[5 - i], err))
            return false;
    for (int i = 0; i < 3; i++)
        if (!is(in[i], 10 * left_of(comm) + received[i], "by tag", err))
            return false;
    return true;
}

static void exchange__different_tags_may_be_begun_in_different_order(void **state)
{
    on_every_comm(any_order_of_tags, NULL);
}

static bool sizes_differ(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const size_t *sizes = arg; /* sent, expected, in pieces? */
    char *out = calloc(1, sizes[0]), *in = calloc(1, sizes[1]);
    const struct wf_message m[] = { from(left_of(comm), 9, in, sizes[1]),
                                    to(right_of(comm), 9, out, sizes[0]) };
    struct wf_err seen = { 0 };
    char want[128];
    const bool went_well = exchange(comm, 2, m, &seen);
    free(out);
    free(in);
    (void)snprintf(want, sizeof want, "message from rank %d with tag 9: expected %zu bytes, got",
                   left_of(comm), sizes[1]);
    bool ok =
        is(went_well, false, "a message of another size is refused", err) && says(&seen, want, err);
    if (ok && !sizes[2]) { /* otherwise only the size of a piece is known */
        (void)snprintf(want, sizeof want, "got %zu", sizes[0]);
        ok = says(&seen, want, err);
    }
    return ok && wf_comm_barrier(comm, err); /* and life goes on */
}

static void exchange__a_message_of_another_size_is_an_error_on_the_receiver(void **state)
{
    size_t shorter[] = { 8, 16, 0 }, longer[] = { 16, 8, 0 };
    size_t huge[] = { 300'000, 200'000, 0 }, none[] = { 4, 0, 0 };
    on_every_comm_and_way(sizes_differ, shorter);
    on_every_comm_and_way(sizes_differ, longer);
    on_every_comm_and_way(sizes_differ, huge);
    on_every_comm_and_way(sizes_differ, none);
}

/* Exchange i sends i + 1 blocks to everybody; all are begun before the first is ended. */
static bool overlapping(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    enum { FLIGHTS = 4, BLOCK = 20'000 };
    const int size = wf_comm_size(comm), me = wf_comm_rank(comm);
    const size_t all = (size_t)size * FLIGHTS * FLIGHTS * BLOCK;
    char *out = malloc(all), *in = calloc(1, all);
    struct wf_request *r[FLIGHTS];
    bool ok = true;
    for (int f = 0; f < FLIGHTS && ok; f++) {
        struct wf_message m[2 * RANKS_MOST];
        const size_t bytes = (size_t)(f + 1) * BLOCK;
        for (int p = 0; p < size; p++) {
            const size_t at = ((size_t)p * FLIGHTS + (size_t)f) * FLIGHTS * BLOCK;
            memset(out + at, 16 * f + me + p, bytes);
            m[2 * p] = to(p, f % 2, out + at, bytes);
            m[2 * p + 1] = from(p, f % 2, in + at, bytes);
        }
        ok = wf_comm_exchange_begin(comm, 2 * size, m, &r[f], err);
        wf_comm_progress(comm);
    }
    for (int f = FLIGHTS - 1; f >= 0 && ok; f--)
        ok = wf_comm_exchange_end(comm, r[f], err);
    for (int f = 0; f < FLIGHTS && ok; f++)
        for (int p = 0; p < size && ok; p++) {
            const size_t at = ((size_t)p * FLIGHTS + (size_t)f) * FLIGHTS * BLOCK;
            ok = is(in[at], 16 * f + me + p, "first byte", err) &&
                 is(in[at + (size_t)(f + 1) * BLOCK - 1], 16 * f + me + p, "last byte", err);
        }
    free(out);
    free(in);
    return ok;
}

static void exchange__many_may_be_in_flight_and_end_in_any_order(void **state)
{
    on_every_comm(overlapping, NULL);
}

/* --- broadcast, split --- */

static bool casts(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const size_t sizes[] = { 1, 4097, 2'000'001 };
    char *data = malloc(sizes[2]);
    bool ok = wf_comm_broadcast(comm, 0, NULL, 0, err);
    for (int root = 0; root < wf_comm_size(comm) && ok; root++)
        for (int s = 0; s < 3 && ok; s++) {
            memset(data, wf_comm_rank(comm) == root ? 65 + root : 0, sizes[s]);
            ok = wf_comm_broadcast(comm, root, data, sizes[s], err) &&
                 is(data[0], 65 + root, "first byte", err) &&
                 is(data[sizes[s] - 1], 65 + root, "last byte", err);
        }
    free(data);
    return ok;
}

static void broadcast__from_each_root_reaches_all(void **state)
{
    on_every_comm(casts, NULL);
}

/* Ranks 0 2 4 and 1 3; then in each of them the first alone and the others. Higher ranks in the old
 * are higher ranks in the new. */
static bool splits(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const int me = wf_comm_rank(comm), size = wf_comm_size(comm);
    struct wf_comm *parity = NULL, *part = NULL;
    if (!wf_comm_split(comm, me % 2, &parity, err))
        return false;
    int64_t total = 0, want = 0;
    for (int r = me % 2; r < size; r += 2)
        want += r;
    total = me;
    bool ok = is(wf_comm_rank(parity), me / 2, "rank", err) &&
              is(strcmp(wf_comm_name(parity), wf_comm_name(comm)), 0, "name", err) &&
              sum(parity, &total, 1, WF_I64, err) && is(total, want, "sum of one colour", err) &&
              corners(parity, NULL, err) &&
              wf_comm_split(parity, wf_comm_rank(parity) > 0 ? 17 : 3, &part, err);
    if (ok) {
        total = me;
        want = me < 2 ? me : want - me % 2;
        ok = is(wf_comm_rank(part), me < 2 ? 0 : me / 2 - 1, "rank in the nested", err) &&
             sum(part, &total, 1, WF_I64, err) && is(total, want, "sum in the nested", err);
    }
    wf_comm_free(part);
    wf_comm_free(parity);
    return ok && wf_comm_barrier(comm, err);
}

static void split__by_colour_and_again(void **state)
{
    on_every_comm_and_way(splits, NULL);
}

/* --- agreement --- */

static bool agrees(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const int me = wf_comm_rank(comm), size = wf_comm_size(comm);
    struct wf_err seen = { 0 };
    char want[64];
    bool ok = is(wf_comm_agree(comm, true, &seen), true, "all well", err) &&
              is(seen.code, WF_OK, "no error", err);
    /* The last one fails, then the last two. */
    for (int failing = 1; failing <= 2 && failing <= size && ok; failing++) {
        const bool well = me < size - failing;
        seen = (struct wf_err){ 0 };
        if (!well)
            (void)wf_err_set(&seen, WF_ERR_INPUT, "shard %d is torn", me);
        (void)snprintf(want, sizeof want, "rank %d: shard %d is torn", size - failing,
                       size - failing);
        ok = is(wf_comm_agree(comm, well, &seen), false, "not all well", err) &&
             is(seen.code, WF_ERR_INPUT, "code", err) &&
             is(strcmp(seen.text, size > 1 ? want : "shard 0 is torn"), 0, seen.text, err);
    }
    return ok && wf_comm_barrier(comm, err);
}

static void agree__gives_everyone_the_error_of_the_lowest_failing_rank(void **state)
{
    on_every_comm_and_way(agrees, NULL);
}

/* --- all of it at once --- */

/* Traffic of changing size, tag and order that every rank can predict, with sums and broadcasts
 * between, and up to three batches in flight. Byte i of what rank r sends in round n is r + n + i. */
enum { STRESS_ROUNDS = 60, STRESS_MOST = 3000 };

static size_t stress_bytes(int round, int source, int target)
{
    return (size_t)(round * 37 + source * 101 + target * 59) % STRESS_MOST;
}

static bool stress_arrived(struct wf_comm *comm, int round, const unsigned char *in,
                           struct wf_err *err)
{
    for (int p = 0; p < wf_comm_size(comm); p++)
        for (size_t i = 0; i < stress_bytes(round, p, wf_comm_rank(comm)); i++)
            if (!is(in[(size_t)p * STRESS_MOST + i], (unsigned char)((size_t)(p + round) + i),
                    "byte", err))
                return false;
    return true;
}

static bool stress(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const int size = wf_comm_size(comm), me = wf_comm_rank(comm);
    unsigned char ramp[STRESS_MOST + 256];
    for (size_t i = 0; i < sizeof ramp; i++)
        ramp[i] = (unsigned char)i;
    unsigned char *in = malloc((size_t)3 * RANKS_MOST * STRESS_MOST);
    struct wf_request *flight[3] = { NULL, NULL, NULL };
    bool ok = true;
    for (int round = 0; round < STRESS_ROUNDS + 3 && ok; round++) {
        unsigned char *slot = in + (ptrdiff_t)(round % 3) * RANKS_MOST * STRESS_MOST;
        struct wf_message m[2 * RANKS_MOST];
        int count = 0;
        ok = wf_comm_exchange_end(comm, flight[round % 3], err) &&
             (round < 3 || stress_arrived(comm, round - 3, slot, err));
        for (int p = 0; p < size && round < STRESS_ROUNDS; p++) {
            const int tag = (round + me + p) % 5;
            m[count++] = to(p, tag, ramp + (me + round) % 256, stress_bytes(round, me, p));
            m[count++] =
                from(p, tag, slot + (ptrdiff_t)p * STRESS_MOST, stress_bytes(round, p, me));
        }
        ok = ok && wf_comm_exchange_begin(comm, count, m, &flight[round % 3], err);
        int64_t here = round + me;
        if (round % 4 == 0)
            ok = ok && sum(comm, &here, 1, WF_I64, err) &&
                 is(here, (int64_t)size * round + size * (size - 1) / 2, "sum", err);
        if (round % 7 == 0)
            ok = ok && wf_comm_broadcast(comm, round % size, &here, sizeof here, err);
    }
    free(in);
    return ok;
}

static void comm__much_traffic_of_all_kinds_arrives(void **state)
{
    on_every_comm_and_way(stress, NULL);
}

#ifdef WF_HAVE_MPI
static bool in_pieces(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    wf_comm_mpi_set_piece(comm, 1024);
    size_t longer[] = { 2050, 2048, true }, shorter[] = { 2048, 3200, true };
    return overlapping(comm, NULL, err) && keeps_order(comm, NULL, err) && casts(comm, NULL, err) &&
           sizes_differ(comm, shorter, err) && sizes_differ(comm, longer, err);
}

static void mpi__what_is_too_large_for_an_int_travels_in_pieces(void **state)
{
    if (!under_mpi())
        skip();
    run_on_mpi(in_pieces, NULL);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchange__corner_comes_from_the_diagonal_peer),
        cmocka_unit_test(exchange__a_rank_may_write_to_itself),
        cmocka_unit_test(exchange__messages_of_zero_bytes_and_empty_batches_are_fine),
        cmocka_unit_test(exchange__messages_with_one_tag_keep_their_order),
        cmocka_unit_test(exchange__different_tags_may_be_begun_in_different_order),
        cmocka_unit_test(exchange__a_message_of_another_size_is_an_error_on_the_receiver),
        cmocka_unit_test(exchange__many_may_be_in_flight_and_end_in_any_order),
        cmocka_unit_test(broadcast__from_each_root_reaches_all),
        cmocka_unit_test(split__by_colour_and_again),
        cmocka_unit_test(agree__gives_everyone_the_error_of_the_lowest_failing_rank),
        cmocka_unit_test(comm__much_traffic_of_all_kinds_arrives),
#ifdef WF_HAVE_MPI
        cmocka_unit_test(mpi__what_is_too_large_for_an_int_travels_in_pieces),
#endif
    };
    const int failed = cmocka_run_group_tests_name("comm", tests, NULL, NULL);
    wf_comm_mpi_finish();
    return failed;
}
