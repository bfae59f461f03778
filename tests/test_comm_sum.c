/* mpirun: 1 2 3 5 */
/* Sums as comm/comm.h promises them, by every way to sum, on all who carry it: `self`, `threads` with 1,
 * 2, 3, 5 and 7 ranks, and, under mpirun with WIDEFIELD_TEST_COMM=mpi, `mpi`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#ifdef WF_HAVE_MPI
#include "comm/mpi.h"
#endif
#include "comm/sums.h"
#include "support_comm.h"

/* The same bits as on rank 0? */
static bool is_same_on_all(struct wf_comm *comm, const void *data, size_t bytes, struct wf_err *err)
{
    void *first = malloc(bytes);
    memcpy(first, data, bytes);
    bool ok = wf_comm_broadcast(comm, 0, first, bytes, err);
    if (ok && memcmp(first, data, bytes) != 0)
        ok = wf_err_set(err, WF_ERR_FAILED, "other bits on rank %d than on rank 0",
                        wf_comm_rank(comm));
    free(first);
    return ok;
}

static const enum wf_dtype summable[] = { WF_F32, WF_BF16, WF_F16, WF_F64, WF_I32, WF_I64 };
enum { SUMMABLE = 6 };

/* Element i of rank r is 1 + r / 128 + i % 4: exact in bf16, and its sums are exact in f32 in any
 * order, so the expected value of a half is that sum rounded once. */
static bool sums_each_dtype(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    enum { COUNT = 1037 };
    for (int d = 0; d < SUMMABLE; d++) {
        const enum wf_dtype dtype = summable[d];
        const bool whole = dtype == WF_I32 || dtype == WF_I64;
        char data[COUNT * 8], want[COUNT * 8];
        for (int64_t i = 0; i < COUNT; i++) {
            double total = 0;
            for (int r = 0; r < wf_comm_size(comm); r++) {
                const double value =
                    1 + (whole ? r : (i % 4 == 0 ? r / 128.0 : 0)) + (double)(i % 4);
                total += value;
                if (r == wf_comm_rank(comm))
                    wf_dtype_put(dtype, data, i, value);
            }
            wf_dtype_put(dtype, want, i, total);
        }
        if (!sum(comm, data, COUNT, dtype, err))
            return false;
        if (memcmp(data, want, COUNT * wf_dtype_size(dtype)) != 0)
            return wf_err_set(err, WF_ERR_FAILED, "wrong sum of %s", wf_dtype_name(dtype));
    }
    return true;
}

static void sum__of_every_dtype_is_right(void **state)
{
    on_every_comm_and_way(sums_each_dtype, NULL);
}

static float noise(int rank, size_t i)
{
    const uint32_t bits = (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank * 40503u + 977u) * 69069u;
    return ((float)(bits >> 8) / 8388608.0f - 1.0f) * (0.3f + 0.1f * (float)rank);
}

/* Numbers whose sum depends on the order of adding. */
static bool sums_much(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const size_t count = 1'000'003; /* 4 MB, no multiple of anything */
    const bool rank_order = strcmp(wf_comm_name(comm), "mpi") != 0 &&
                            wf_comm_sum_way(comm, count * sizeof(float)) == WF_SUM_LIBRARY;
    float *data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = noise(wf_comm_rank(comm), i);
    bool ok = sum(comm, data, count, WF_F32, err) &&
              is_same_on_all(comm, data, count * sizeof *data, err);
    for (size_t i = 0; i < count && ok; i++) {
        float want = noise(0, i);
        for (int r = 1; r < wf_comm_size(comm); r++)
            want += noise(r, i);
        const float off = data[i] - want;
        if (rank_order ? data[i] != want : off * off > 1e-10f)
            ok = wf_err_set(err, WF_ERR_FAILED, "element %zu: expected %.9g, got %.9g", i,
                            (double)want, (double)data[i]);
    }
    free(data);
    return ok;
}

/* Each number is rounded to bf16 at most once for each of the ways' hops, and added in f32. */
static bool sums_rounded(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    enum { COUNT = 20'011 };
    const int size = wf_comm_size(comm);
    struct wf_sum_options options = comm->sums->options;
    options.sent_dtype = WF_BF16;
    float *data = malloc(COUNT * sizeof *data);
    for (size_t i = 0; i < COUNT; i++)
        data[i] = noise(wf_comm_rank(comm), i);
    struct wf_request *request = NULL;
    bool ok = wf_comm_set_sums(comm, &options, err) &&
              wf_comm_sum_rounded_begin(comm, data, COUNT, &request, err) &&
              wf_comm_sum_end(comm, request, err) &&
              is_same_on_all(comm, data, COUNT * sizeof *data, err);
    int exact = 0;
    for (size_t i = 0; i < COUNT && ok; i++) {
        double want = 0, magnitude = 0;
        for (int r = 0; r < size; r++) {
            want += (double)noise(r, i);
            magnitude += fabs((double)noise(r, i));
        }
        exact += fabs((double)data[i] - want) < 1e-7 * magnitude;
        if (fabs((double)data[i] - want) > size * magnitude / 256)
            ok = wf_err_set(err, WF_ERR_FAILED, "element %zu: expected %.9g, got %.9g", i, want,
                            (double)data[i]);
    }
    free(data);
    return ok && is(exact > COUNT / 2, size == 1, "were they sent as bf16", err);
}

static void sum__of_gradients_may_travel_as_bf16(void **state)
{
    on_every_comm_and_way(sums_rounded, NULL);
}

static void sum__of_several_megabytes_has_the_same_bits_on_every_rank(void **state)
{
    on_every_comm_and_way(sums_much, NULL);
}

/* Even ranks end the sum first, odd ones the exchange: neither may wait for the other's end. */
static bool sum_amid_exchange(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    enum { COUNT = 50'000 };
    const int me = wf_comm_rank(comm), size = wf_comm_size(comm);
    int64_t *data = malloc(3 * COUNT * sizeof *data), *out = data + COUNT, *in = out + COUNT;
    for (int i = 0; i < COUNT; i++) {
        data[i] = me + i;
        out[i] = 1000 * me + i;
    }
    const struct wf_message m[] = { to(right_of(comm), 4, out, COUNT * sizeof *out),
                                    from(left_of(comm), 4, in, COUNT * sizeof *in) };
    struct wf_request *s, *e;
    bool ok = wf_comm_sum_begin(comm, data, COUNT, WF_I64, &s, err) &&
              wf_comm_exchange_begin(comm, 2, m, &e, err);
    if (me % 2 == 0)
        ok = ok && wf_comm_sum_end(comm, s, err) && wf_comm_exchange_end(comm, e, err);
    else
        ok = ok && wf_comm_exchange_end(comm, e, err) && wf_comm_sum_end(comm, s, err);
    for (int i = 0; i < COUNT && ok; i++)
        ok = is(data[i], (int64_t)size * (size - 1) / 2 + (int64_t)size * i, "sum", err) &&
             is(in[i], 1000 * left_of(comm) + i, "message", err);
    free(data);
    return ok;
}

static void sum__may_be_in_flight_together_with_an_exchange(void **state)
{
    on_every_comm_and_way(sum_amid_exchange, NULL);
}

/* Everybody but rank 0 ends the sum before it sends what rank 0 waits for before it ends the sum: a
 * rank that waits for anything carries its part of all sums. */
static bool sum_while_waiting(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    enum { COUNT = 50'000 };
    const int me = wf_comm_rank(comm), size = wf_comm_size(comm);
    int32_t *data = malloc(COUNT * sizeof *data);
    for (int i = 0; i < COUNT; i++)
        data[i] = me + i;
    int in[RANKS_MOST] = { 0 };
    struct wf_message m[RANKS_MOST];
    struct wf_request *s = NULL;
    bool ok = wf_comm_sum_begin(comm, data, COUNT, WF_I32, &s, err);
    for (int r = 1; r < size; r++)
        m[r - 1] = from(r, 4, &in[r], sizeof(int));
    const struct wf_message mine = to(0, 4, &me, sizeof me);
    if (me == 0)
        ok = ok && exchange(comm, size - 1, m, err) && wf_comm_sum_end(comm, s, err);
    else
        ok = ok && wf_comm_sum_end(comm, s, err) && exchange(comm, 1, &mine, err);
    for (int i = 0; i < COUNT && ok; i++)
        ok = is(data[i], (int64_t)size * i + size * (size - 1) / 2, "sum", err);
    for (int r = 1; r < size && me == 0 && ok; r++)
        ok = is(in[r], r, "message", err);
    free(data);
    return ok;
}

static void sum__goes_on_while_a_rank_waits_for_something_else(void **state)
{
    on_every_comm_and_way(sum_while_waiting, NULL);
}

static bool many_sums(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    enum { FLIGHTS = 6, COUNT = 9'000 };
    const int size = wf_comm_size(comm), me = wf_comm_rank(comm);
    int32_t *data = malloc(FLIGHTS * COUNT * sizeof *data);
    struct wf_request *r[FLIGHTS];
    bool ok = true;
    for (int f = 0; f < FLIGHTS && ok; f++) {
        for (int i = 0; i < COUNT; i++)
            data[f * COUNT + i] = f * (me + 1);
        ok = wf_comm_sum_begin(comm, data + (ptrdiff_t)f * COUNT, f % 2 ? COUNT : f, WF_I32, &r[f],
                               err);
        wf_comm_progress(comm);
    }
    /* Begun in one order on all; ended in an order of one's own. */
    for (int i = 0; i < FLIGHTS && ok; i++)
        ok = wf_comm_sum_end(comm, r[me % 2 ? i : FLIGHTS - 1 - i], err);
    for (int f = 0; f < FLIGHTS && ok; f++)
        for (int i = 0; i < (f % 2 ? COUNT : f) && ok; i++)
            ok = is(data[f * COUNT + i], (int64_t)f * size * (size + 1) / 2, "sum", err);
    free(data);
    return ok;
}

static void sum__several_may_be_in_flight(void **state)
{
    on_every_comm_and_way(many_sums, NULL);
}

/* Sums of more pieces than there are tags and places in the window, and short ones among them. */
static bool sums_in_pieces(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    enum { LONG = 3, SHORT = 4, COUNT = 300'000, PIECE = 1024, WINDOW = 3 };
    const int size = wf_comm_size(comm), me = wf_comm_rank(comm);
    int32_t *const data = malloc(LONG * COUNT * sizeof *data);
    int32_t few[SHORT];
    struct wf_request *r[LONG], *s[SHORT];
    bool ok = true;
    comm->sums->piece_bytes = PIECE;
    comm->sums->window = WINDOW;
    for (int i = 0; i < LONG * COUNT; i++)
        data[i] = (me + 1) * (i % 1009);
    for (int f = 0; f < LONG && ok; f++) {
        few[f] = me + f;
        ok = wf_comm_sum_begin(comm, data + (ptrdiff_t)f * COUNT, (size_t)COUNT - f, WF_I32, &r[f],
                               err) &&
             wf_comm_sum_begin(comm, &few[f], 1, WF_I32, &s[f], err);
    }
    few[LONG] = me;
    ok = ok && wf_comm_sum_begin(comm, &few[LONG], 1, WF_I32, &s[LONG], err);
    for (int f = SHORT - 1; f >= 0 && ok; f--)
        ok = wf_comm_sum_end(comm, s[f], err) &&
             is(few[f], size * (size - 1) / 2 + size * (f % LONG), "short sum", err);
    for (int f = 0; f < LONG && ok; f++)
        ok = wf_comm_sum_end(comm, r[me % 2 ? f : LONG - 1 - f], err);
    for (int i = 0; i < LONG * COUNT && ok; i++)
        if (i % COUNT < COUNT - i / COUNT)
            ok = is(data[i], (int64_t)size * (size + 1) / 2 * (i % 1009), "long sum", err);
    free(data);
    return ok;
}

static void sum__of_many_pieces_leaves_room_for_short_ones(void **state)
{
    on_every_comm_and_way(sums_in_pieces, NULL);
}

#ifdef WF_HAVE_MPI
static bool in_pieces(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    wf_comm_mpi_set_piece(comm, 1024);
    return sums_each_dtype(comm, NULL, err) && sum_amid_exchange(comm, NULL, err);
}

static void sum__of_what_is_too_large_for_an_int_travels_in_pieces(void **state)
{
    if (!under_mpi())
        skip();
    run_on_mpi(in_pieces, NULL);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum__of_every_dtype_is_right),
        cmocka_unit_test(sum__of_gradients_may_travel_as_bf16),
        cmocka_unit_test(sum__of_several_megabytes_has_the_same_bits_on_every_rank),
        cmocka_unit_test(sum__may_be_in_flight_together_with_an_exchange),
        cmocka_unit_test(sum__goes_on_while_a_rank_waits_for_something_else),
        cmocka_unit_test(sum__several_may_be_in_flight),
        cmocka_unit_test(sum__of_many_pieces_leaves_room_for_short_ones),
#ifdef WF_HAVE_MPI
        cmocka_unit_test(sum__of_what_is_too_large_for_an_int_travels_in_pieces),
#endif
    };
    const int failed = cmocka_run_group_tests_name("comm_sum", tests, NULL, NULL);
    wf_comm_mpi_finish();
    return failed;
}
