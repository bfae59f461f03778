/* What the messages of an object header say of a dataset. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "image/hdf5.h"

enum { SHARED = 2 };
enum {
    MESSAGE_SPACE = 1,
    MESSAGE_TYPE = 3,
    MESSAGE_FILL_OLD = 4,
    MESSAGE_FILL = 5,
    MESSAGE_EXTERNAL = 7,
    MESSAGE_LAYOUT = 8,
    MESSAGE_FILTERS = 11
};

__attribute__((format(printf, 3, 4))) static bool refuse(const struct wf_h5_dataset *set,
                                                         struct wf_err *err, const char *format,
                                                         ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return wf_err_set(err, WF_ERR_INPUT, "'%s': %s", set->file->name, what);
}

static bool take_space(struct wf_h5_dataset *set, struct wf_h5_cursor *c, struct wf_err *err)
{
    const int version = (int)wf_h5_take(c, 1), rank = (int)wf_h5_take(c, 1);
    wf_h5_skip(c, version == 1 ? 6 : 2);
    if (version != 1 && version != 2)
        return wf_h5_damaged(set->file, "a shape of an unknown kind", err);
    if (rank < 2 || rank > WF_H5_RANK)
        return refuse(
            set, err,
            "an array of rank %d is no image: save it as (H, W), (H, W, C) or (D, H, W, C)", rank);
    set->rank = rank;
    for (int i = 0; i < rank; i++) {
        const uint64_t extent = wf_h5_take(c, 8);
        if (extent > INT32_MAX)
            return refuse(set, err, "extent %d of the dataset is %" PRIu64 ": too large, cut it", i,
                          extent);
        set->shape[i] = (int64_t)extent;
    }
    return !c->bad || wf_h5_damaged(set->file, "a shape without an end", err);
}

static bool is_ieee(struct wf_h5_cursor *c, uint32_t size)
{
    static const struct {
        uint32_t size;
        unsigned char exponent, wide, mantissa;
    } known[] = { { 2, 10, 5, 10 }, { 4, 23, 8, 23 }, { 8, 52, 11, 52 } };
    const int exponent = (int)wf_h5_take(c, 1), wide = (int)wf_h5_take(c, 1);
    const int from = (int)wf_h5_take(c, 1), mantissa = (int)wf_h5_take(c, 1);
    for (int i = 0; i < 3; i++)
        if (known[i].size == size)
            return exponent == known[i].exponent && wide == known[i].wide && from == 0 &&
                   mantissa == known[i].mantissa;
    return false;
}

static bool take_type(struct wf_h5_dataset *set, struct wf_h5_cursor *c, struct wf_err *err)
{
    enum { WHOLE = 0, REAL = 1, ENUMERATION = 8 };
    int kind = (int)wf_h5_take(c, 1) & 15;
    uint32_t bits = (uint32_t)wf_h5_take(c, 3), size = (uint32_t)wf_h5_take(c, 4);
    if (kind == ENUMERATION) { /* h5py's bool; the numbers' own type follows */
        kind = (int)wf_h5_take(c, 1) & 15;
        bits = (uint32_t)wf_h5_take(c, 3);
        size = (uint32_t)wf_h5_take(c, 4);
    }
    const uint32_t shift = (uint32_t)wf_h5_take(c, 2), precision = (uint32_t)wf_h5_take(c, 2);
    const int step = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
    static const enum wf_sample whole[4][2] = {
        { WF_SAMPLE_U8, WF_SAMPLE_I8 },
        { WF_SAMPLE_U16, WF_SAMPLE_I16 },
        { WF_SAMPLE_U32, WF_SAMPLE_I32 },
        { WF_SAMPLE_U64, WF_SAMPLE_I64 },
    };
    static const enum wf_sample real[4] = { WF_SAMPLES, WF_SAMPLE_F16, WF_SAMPLE_F32,
                                            WF_SAMPLE_F64 };
    enum wf_sample sample = WF_SAMPLES;
    if (!c->bad && step >= 0 && shift == 0 && precision == 8 * size) {
        if (kind == WHOLE)
            sample = whole[step][bits >> 3 & 1];
        else if (kind == REAL && !(bits & 0x40) && is_ieee(c, size))
            sample = real[step];
    }
    if (sample == WF_SAMPLES)
        return refuse(set, err, "a dataset that is not of numbers: save it as plain numbers");
    set->sample = sample;
    set->swapped = bits & 1;
    return true;
}

static bool take_fill(struct wf_h5_dataset *set, int type, struct wf_h5_cursor *c,
                      struct wf_err *err)
{
    bool defined = true;
    if (type == MESSAGE_FILL) {
        const int version = (int)wf_h5_take(c, 1);
        if (version == 3) {
            defined = wf_h5_take(c, 1) & 0x20;
        } else {
            wf_h5_skip(c, 2);
            defined = wf_h5_take(c, 1) != 0;
        }
    }
    const uint64_t size = defined ? wf_h5_take(c, 4) : 0;
    memset(set->fill, 0, sizeof set->fill);
    for (uint64_t i = 0; i < size && i < sizeof set->fill; i++)
        set->fill[i] = (unsigned char)wf_h5_take(c, 1);
    return !c->bad || wf_h5_damaged(set->file, "a fill value without an end", err);
}

/* --- layout --- */
static bool take_dims(struct wf_h5_dataset *set, struct wf_h5_cursor *c, int rank, int width,
                      struct wf_err *err)
{
    /* The last one is the size of an element. */
    if (rank < 3 || rank > WF_H5_RANK + 1)
        return refuse(
            set, err,
            "an array of rank %d is no image: save it as (H, W), (H, W, C) or (D, H, W, C)",
            rank - 1);
    for (int i = 0; i < rank; i++) {
        const uint64_t extent = wf_h5_take(c, width);
        if (extent < 1 || extent > INT32_MAX)
            return wf_h5_damaged(set->file, "chunks without a size", err);
        if (i < rank - 1)
            set->chunk[i] = (int64_t)extent;
    }
    set->rank = set->rank ? set->rank : rank - 1;
    return set->rank == rank - 1 || wf_h5_damaged(set->file, "chunks of another shape", err);
}

static bool take_new_index(struct wf_h5_dataset *set, struct wf_h5_cursor *c, int flags,
                           struct wf_err *err)
{
    const int index = (int)wf_h5_take(c, 1);
    if (index < WF_H5_SINGLE || index > WF_H5_FIXED)
        return refuse(set, err,
                      "a dataset that can grow, in a form that is not read here: write the "
                      "file again with h5py and its default libver");
    set->index = (enum wf_h5_index)index;
    if (index == WF_H5_SINGLE && (flags & 2)) {
        set->single_bytes = wf_h5_take(c, 8);
        set->single_mask = (uint32_t)wf_h5_take(c, 4);
    }
    wf_h5_skip(c, index == WF_H5_FIXED ? 1 : 0);
    return true;
}

static bool take_layout(struct wf_h5_dataset *set, const struct wf_h5_message *m,
                        struct wf_h5_cursor *c, struct wf_err *err)
{
    enum { COMPACT = 0, CONTIGUOUS = 1, CHUNKED = 2 };
    const int version = (int)wf_h5_take(c, 1), kind = (int)wf_h5_take(c, 1);
    if (version < 3 || version > 5)
        return refuse(set, err,
                      "a layout of version %d is not read here: write the file again with "
                      "h5py and its default libver",
                      version);
    if (kind > CHUNKED)
        return refuse(set, err, "a dataset that lies in other files: save its values in this one");
    set->layout = kind == CHUNKED ? WF_H5_CHUNKED : WF_H5_CONTIGUOUS;
    if (kind == COMPACT) {
        set->bytes = wf_h5_take(c, 2);
        set->address = m->where + (uint64_t)(c->at - m->data);
        set->written = true;
        wf_h5_skip(c, set->bytes);
    } else {
        if (kind == CHUNKED) {
            const int flags = version > 3 ? (int)wf_h5_take(c, 1) : 0;
            const int rank = (int)wf_h5_take(c, 1);
            const uint64_t early = version == 3 ? wf_h5_take(c, 8) : 0;
            const int width = version > 3 ? (int)wf_h5_take(c, 1) : 4;
            if (width < 1 || width > 8 || !take_dims(set, c, rank, width, err) ||
                (version > 3 && !take_new_index(set, c, flags, err)))
                return wf_h5_damaged(set->file, "chunks without a size", err);
            set->address = version == 3 ? early : wf_h5_take(c, 8);
        } else {
            set->address = wf_h5_take(c, 8);
            set->bytes = wf_h5_take(c, 8);
        }
        set->written = set->address != UINT64_MAX;
        if (set->written && set->address > set->file->size - set->base)
            return wf_h5_damaged(set->file, "its values lie past its end", err);
        set->address += set->written ? set->base : 0;
    }
    return !c->bad || wf_h5_damaged(set->file, "a layout without an end", err);
}

static bool take_filters(struct wf_h5_dataset *set, struct wf_h5_cursor *c, struct wf_err *err)
{
    const int version = (int)wf_h5_take(c, 1), count = (int)wf_h5_take(c, 1);
    wf_h5_skip(c, version == 1 ? 6 : 0);
    if (count > WF_H5_FILTERS || version < 1 || version > 2)
        return wf_h5_damaged(set->file, "filters of an unknown kind", err);
    set->filter_count = count;
    for (int i = 0; i < count && !c->bad; i++) {
        const int id = (int)wf_h5_take(c, 2);
        const uint64_t name = version == 1 || id >= 256 ? wf_h5_take(c, 2) : 0;
        wf_h5_skip(c, 2);
        const uint64_t values = wf_h5_take(c, 2);
        wf_h5_skip(c, version == 1 ? (name + 7) / 8 * 8 : name);
        wf_h5_skip(c, values * 4 + (version == 1 && values % 2 ? 4 : 0));
        if (id < WF_H5_DEFLATE || id > WF_H5_FLETCHER)
            return refuse(set, err,
                          "a dataset packed by filter %d, which is not read here: write it "
                          "again with gzip ('h5repack -f GZIP=4')",
                          id);
        set->filters[i] = (enum wf_h5_filter)id;
    }
    return !c->bad || wf_h5_damaged(set->file, "filters without an end", err);
}

bool wf_h5_describe(struct wf_h5_dataset *set, const struct wf_h5_message *m, unsigned *seen,
                    struct wf_err *err)
{
    struct wf_h5_cursor c = { m->data, m->data + m->size, false };
    const bool known = m->type == MESSAGE_SPACE || m->type == MESSAGE_TYPE ||
                       m->type == MESSAGE_FILL || m->type == MESSAGE_LAYOUT ||
                       m->type == MESSAGE_FILTERS;
    if (known && (m->flags & SHARED))
        return refuse(set, err,
                      "a dataset whose type has a name of its own: save it as plain numbers");
    switch (m->type) {
    case MESSAGE_SPACE:
        *seen |= WF_H5_SPACE;
        return take_space(set, &c, err);
    case MESSAGE_TYPE:
        *seen |= WF_H5_TYPE;
        return take_type(set, &c, err);
    case MESSAGE_FILL_OLD:
    case MESSAGE_FILL:
        return take_fill(set, m->type, &c, err);
    case MESSAGE_EXTERNAL:
        return refuse(set, err, "a dataset that lies in other files: save its values in this one");
    case MESSAGE_LAYOUT:
        *seen |= WF_H5_LAYOUT;
        return take_layout(set, m, &c, err);
    case MESSAGE_FILTERS:
        return take_filters(set, &c, err);
    default:
        return true;
    }
}
