/*
 * Rows into Z order: by keys of interleaved bits where they fit into 64, as many for each axis as it needs,
 * and a radix sort; otherwise by comparing. Both give the same order.
 */

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/sparse.h"

struct keyed {
    uint64_t key;
    int64_t row;
};

struct box {
    int bits
        [1 +
         WF_SPARSE_AXES]; /* of batch and axes, the lowest ones: those above are the same in all rows */
    bool has_sign[1 + WF_SPARSE_AXES]; /* but for the sign */
    int total;
};

static struct box box_of(const int32_t *rows, int64_t n, int dims)
{
    struct box b = { .total = 0 };
    for (int d = 0; d <= dims; d++) {
        int64_t lo = INT32_MAX, hi = INT32_MIN;
        for (int64_t i = 0; i < n; i++) {
            lo = wf_min(lo, rows[i * (1 + dims) + d]);
            hi = wf_max(hi, rows[i * (1 + dims) + d]);
        }
        int bits = 0;
        b.has_sign[d] = lo < 0 && hi >= 0;
        while (wf_floor_div(lo, INT64_C(1) << bits) + b.has_sign[d] !=
               wf_floor_div(hi, INT64_C(1) << bits))
            bits++;
        b.bits[d] = bits;
        b.total += bits + b.has_sign[d];
    }
    return b;
}

/* The batch index leads; then signs, then bit by bit from the highest, in each round the axes that have one. */
static uint64_t key_of(const struct box *b, const int32_t *row, int dims)
{
    uint64_t key = b->has_sign[0] && row[0] >= 0;
    int most = 0;
    key = key << b->bits[0] | ((uint64_t)row[0] & ((UINT64_C(1) << b->bits[0]) - 1));
    for (int d = 1; d <= dims; d++) {
        most = b->bits[d] > most ? b->bits[d] : most;
        if (b->has_sign[d])
            key = key << 1 | (row[d] >= 0);
    }
    for (int bit = most - 1; bit >= 0; bit--)
        for (int d = 1; d <= dims; d++)
            if (bit < b->bits[d])
                key = key << 1 | ((uint64_t)row[d] >> bit & 1);
    return key;
}

static void sort_keys(struct keyed *at, int64_t n, int bits)
{
    struct keyed *from = at, *const spare = wf_take((size_t)(n + 1) * sizeof *at), *to = spare;
    for (int shift = 0; shift < bits; shift += 8) {
        int64_t start[257] = { 0 };
        for (int64_t i = 0; i < n; i++)
            start[(from[i].key >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++)
            start[i + 1] += start[i];
        for (int64_t i = 0; i < n; i++)
            to[start[from[i].key >> shift & 255]++] = from[i];
        struct keyed *const other = from;
        from = to;
        to = other;
    }
    if (from != at)
        memcpy(at, from, (size_t)n * sizeof *at);
    free(spare);
}

struct comparing {
    const int32_t *rows;
    int dims;
};

static int by_row(const void *a, const void *b, void *of)
{
    static const int64_t stride[WF_SPARSE_AXES] = { 1, 1, 1, 1, 1, 1 };
    const struct comparing *const c = of;
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    const int order = wf_coords_compare(c->rows + x * (1 + c->dims), c->rows + y * (1 + c->dims),
                                        c->dims, stride);
    return order ? order : (x > y) - (x < y);
}

void wf_coords_sort(const int32_t *rows, int64_t n, int dims, int64_t order[])
{
    const struct box b = n > 0 ? box_of(rows, n, dims) : (struct box){ 0 };
    if (b.total > 64) {
        struct comparing c = { .rows = rows, .dims = dims };
        for (int64_t i = 0; i < n; i++)
            order[i] = i;
        qsort_r(order, (size_t)n, sizeof *order, by_row, &c);
        return;
    }
    struct keyed *const keys = wf_take((size_t)(n + 1) * sizeof *keys);
    for (int64_t i = 0; i < n; i++)
        keys[i] = (struct keyed){ key_of(&b, rows + i * (1 + dims), dims), i };
    sort_keys(keys, n, b.total);
    for (int64_t i = 0; i < n; i++)
        order[i] = keys[i].row;
    free(keys);
}
