/* mpirun: 1 2 3 5 */
/* The contract of comm/comm.h, kept by all who carry it: `self`, `threads` with 1, 2, 3, 5 and
 * 7 ranks, with every way to sum, and, under mpirun with WIDEFIELD_TEST_COMM=mpi, `mpi`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#ifdef WF_HAVE_MPI
#include "comm/mpi.h"
#endif
#include "comm/sums.h"
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
    on_every_comm(sizes_differ, shorter);
    on_every_comm(sizes_differ, longer);
    on_every_comm(sizes_differ, huge);
    on_every_comm(sizes_differ, none);
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

/* --- sums --- */

/* The same bits as on rank 0? */
static bool is_same_everywhere(struct wf_comm *comm, const void *data, size_t bytes,
                               struct wf_err *err)
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
    on_every_comm(sums_each_dtype, NULL);
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
              is_same_everywhere(comm, data, count * sizeof *data, err);
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
    options.wire = WF_BF16;
    float *data = malloc(COUNT * sizeof *data);
    for (size_t i = 0; i < COUNT; i++)
        data[i] = noise(wf_comm_rank(comm), i);
    struct wf_request *request = NULL;
    bool ok = wf_comm_set_sums(comm, &options, err) &&
              wf_comm_sum_rounded_begin(comm, data, COUNT, &request, err) &&
              wf_comm_sum_end(comm, request, err) &&
              is_same_everywhere(comm, data, COUNT * sizeof *data, err);
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
    on_every_comm(sums_rounded, NULL);
}

static void sum__of_several_megabytes_has_the_same_bits_on_every_rank(void **state)
{
    on_every_comm(sums_much, NULL);
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
    on_every_comm(sum_amid_exchange, NULL);
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
    on_every_comm(sum_while_waiting, NULL);
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
    on_every_comm(many_sums, NULL);
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
    on_every_comm(sums_in_pieces, NULL);
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
    on_every_comm(splits, NULL);
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
    on_every_comm(agrees, NULL);
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
    on_every_comm(stress, NULL);
}

#ifdef WF_HAVE_MPI
static bool in_pieces(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    wf_comm_mpi_set_piece(comm, 1024);
    size_t longer[] = { 2050, 2048, true }, shorter[] = { 2048, 3200, true };
    return overlapping(comm, NULL, err) && keeps_order(comm, NULL, err) &&
           sums_each_dtype(comm, NULL, err) && casts(comm, NULL, err) &&
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
        cmocka_unit_test(sum__of_every_dtype_is_right),
        cmocka_unit_test(sum__of_several_megabytes_has_the_same_bits_on_every_rank),
        cmocka_unit_test(sum__of_gradients_may_travel_as_bf16),
        cmocka_unit_test(sum__may_be_in_flight_together_with_an_exchange),
        cmocka_unit_test(sum__goes_on_while_a_rank_waits_for_something_else),
        cmocka_unit_test(sum__several_may_be_in_flight),
        cmocka_unit_test(sum__of_many_pieces_leaves_room_for_short_ones),
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
