#include "image/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* numpy wants the data at a multiple of 64 bytes. */
size_t wf_npy_head(char head[WF_NPY_HEAD], enum wf_dtype dtype, int rank, const int64_t shape[])
{
    static const char *const descr[WF_DTYPES] = {
        [WF_F32] = "<f4", [WF_F16] = "<f2", [WF_F64] = "<f8",
        [WF_I32] = "<i4", [WF_I64] = "<i8", [WF_U8] = "|u1",
    };
    enum { LEAD = 10 };
    if (!descr[dtype])
        return 0;
    int at = LEAD + snprintf(head + LEAD, WF_NPY_HEAD - LEAD,
                             "{'descr': '%s', 'fortran_order': False, 'shape': (", descr[dtype]);
    for (int i = 0; i < rank; i++)
        at += snprintf(head + at, (size_t)(WF_NPY_HEAD - at), i ? ", %" PRId64 : "%" PRId64,
                       shape[i]);
    at += snprintf(head + at, (size_t)(WF_NPY_HEAD - at), rank == 1 ? ",), }" : "), }");
    const int end = (at + 1 + 63) / 64 * 64;
    WF_BUG_ON(end > WF_NPY_HEAD, "header of %d bytes", end);
    memset(head + at, ' ', (size_t)(end - at));
    head[end - 1] = '\n';
    const int length = end - LEAD;
    memcpy(head, "\x93NUMPY\x01", 7);
    head[7] = 0;
    head[8] = (char)(length & 0xff);
    head[9] = (char)(length >> 8);
    return (size_t)end;
}

bool wf_npy_begin(struct wf_npy_writer *w, const char *path, enum wf_dtype dtype, int rank,
                  const int64_t shape[], struct wf_err *err)
{
    *w = (struct wf_npy_writer){ .file = { .fd = -1 }, .dtype = dtype, .left = -1 };
    WF_BUG_ON(rank < 0 || rank > WF_NPY_RANK, "rank %d", rank);
    char head[WF_NPY_HEAD];
    const size_t bytes = wf_npy_head(head, dtype, rank, shape);
    if (!bytes)
        return wf_err_set(err, WF_ERR_USAGE, "cannot write '%s': .npy has no %s: write f32", path,
                          wf_dtype_name(dtype));
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(count, shape[i], &count))
            return wf_err_set(err, WF_ERR_USAGE,
                              "cannot write '%s': its shape is negative or overflows", path);
    if (!wf_outfile_begin(&w->file, path, err) || !wf_outfile_write(&w->file, head, bytes, err))
        return false;
    w->left = count;
    return true;
}

bool wf_npy_put(struct wf_npy_writer *w, const void *data, int64_t count, struct wf_err *err)
{
    WF_BUG_ON(count < 0 || count > w->left, "%" PRId64 " elements, %" PRId64 " left", count,
              w->left);
    if (!wf_outfile_write(&w->file, data, (size_t)count * wf_dtype_size(w->dtype), err)) {
        w->left = -1;
        return false;
    }
    w->left -= count;
    return true;
}

bool wf_npy_end(struct wf_npy_writer *w, bool ok, struct wf_err *err)
{
    WF_BUG_ON(ok && w->left > 0, "%" PRId64 " elements did not come", w->left);
    ok = ok && w->left == 0 && wf_outfile_commit(&w->file, err);
    wf_outfile_drop(&w->file);
    return ok;
}

bool wf_npy_write(const char *path, enum wf_dtype dtype, int rank, const int64_t shape[],
                  const void *data, struct wf_err *err)
{
    struct wf_npy_writer w;
    const bool ok =
        wf_npy_begin(&w, path, dtype, rank, shape, err) && wf_npy_put(&w, data, w.left, err);
    return wf_npy_end(&w, ok, err);
}
