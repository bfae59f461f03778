#include "tensor/border.h"

#include <inttypes.h>
#include <string.h>

int wf_border_shape(struct wf_shape shape, int dims, int64_t outside[WF_AXES])
{
    WF_BUG_ON(dims < -1 || dims > 3, "%d dims", dims);
    for (int a = WF_N; a < WF_C; a++) {
        const bool shown = a == WF_N ? dims >= 0 : a >= WF_C - dims;
        WF_BUG_ON(!shown && shape.at[a] != 1, "axis %d has extent %" PRId64 " but %d dims", a,
                  shape.at[a], dims);
    }
    int rank = 0;
    if (dims >= 0)
        outside[rank++] = shape.at[WF_N];
    outside[rank++] = shape.at[WF_C];
    for (int a = WF_C - dims; dims > 0 && a < WF_C; a++)
        outside[rank++] = shape.at[a];
    return rank;
}

bool wf_border_inside(int rank, const int64_t outside[], struct wf_shape *shape, int *dims,
                      struct wf_err *err)
{
    if (rank < 1 || rank > WF_AXES)
        return wf_err_set(err, WF_ERR_INPUT,
                          "%d axes, wanted 1 to 5: [C], [N, C] or [N, C, *spatial]", rank);
    *shape = WF_SHAPE(1, 1, 1, 1, outside[rank > 1]);
    if (rank > 1)
        shape->at[WF_N] = outside[0];
    for (int i = 2; i < rank; i++)
        shape->at[WF_C - rank + i] = outside[i];
    *dims = rank - 2;
    if (!wf_shape_is_valid(*shape))
        return wf_err_set(err, WF_ERR_INPUT,
                          "an extent below one, or more elements than can be counted");
    return true;
}

/* rows x columns -> columns x rows. In blocks that stay in the cache until their lines are used up: squares, or, where one
 * side is as short as a kernel is, all of that side, so that writing runs along memory. */
static void transpose(int64_t rows, int64_t columns, const float *from, float *to)
{
    enum { SIDE = 32, LONG = 512 };
    if (rows == 1 || columns == 1) {
        memcpy(to, from, (size_t)(rows * columns) * sizeof *to);
        return;
    }
    const int64_t wide = rows <= SIDE ? LONG : SIDE, high = columns <= SIDE ? LONG : SIDE;
    for (int64_t r0 = 0; r0 < rows; r0 += high)
        for (int64_t c0 = 0; c0 < columns; c0 += wide) {
            const int64_t r1 = wf_min(rows, r0 + high), c1 = wf_min(columns, c0 + wide);
            for (int64_t c = c0; c < c1; c++)
                for (int64_t r = r0; r < r1; r++)
                    to[c * rows + r] = from[r * columns + c];
        }
}

static void each_image(struct wf_shape shape, bool out, const float *from, float *to)
{
    const int64_t pixels = shape.at[WF_D] * shape.at[WF_H] * shape.at[WF_W];
    const int64_t channels = shape.at[WF_C], step = pixels * channels;
#pragma omp parallel for schedule(static) if (shape.at[WF_N] * step > 1 << 20)
    for (int64_t n = 0; n < shape.at[WF_N]; n++)
        transpose(out ? pixels : channels, out ? channels : pixels, from + n * step, to + n * step);
}

void wf_border_export(struct wf_shape shape, const float *ours, float *theirs)
{
    each_image(shape, true, ours, theirs);
}

void wf_border_import(struct wf_shape shape, const float *theirs, float *ours)
{
    each_image(shape, false, theirs, ours);
}
