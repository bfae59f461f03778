/* Writing: every record has the fields for sizes past 4 GB, whether they are needed or not. */
#include "image/npz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"

static void add(struct wf_buffer *b, uint64_t value, int bytes)
{
    char text[8];
    for (int i = 0; i < bytes; i++)
        text[i] = (char)(value >> 8 * i & 0xff);
    wf_buffer_add(b, text, (size_t)bytes);
}

enum {
    VERSION = 45,
    EXTRA = 1,
    DOS_DATE = 33 /* 1 January 1980: the file depends on its data only */
};

/* From the version needed to the length of the name, which all headers have alike. */
static void add_common(struct wf_buffer *b, const struct wf_npz_member *m)
{
    add(b, VERSION, 2);
    add(b, 0, 2); /* flags */
    add(b, 0, 2); /* stored */
    add(b, 0, 2); /* time */
    add(b, DOS_DATE, 2);
    add(b, m->crc, 4);
    add(b, UINT32_MAX, 4); /* both sizes are in the extra field */
    add(b, UINT32_MAX, 4);
    add(b, strlen(m->name) + 4, 2);
}

bool wf_npz_begin(struct wf_npz_writer *w, const char *path, struct wf_err *err)
{
    *w = (struct wf_npz_writer){ .file.fd = -1 };
    return wf_outfile_begin(&w->file, path, err);
}

bool wf_npz_put(struct wf_npz_writer *w, const struct wf_npz_data *d, struct wf_err *err)
{
    char head[WF_NPY_HEAD];
    const size_t front = wf_npy_head(head, d->dtype, d->rank, d->shape);
    WF_BUG_ON(!front, "no %s in .npz", wf_dtype_name(d->dtype));
    uint64_t bytes = wf_dtype_size(d->dtype);
    for (int i = 0; i < d->rank; i++)
        bytes *= (uint64_t)d->shape[i];
    WF_GROW(w->members, w->room, w->count + 1);
    struct wf_npz_member *const m = &w->members[w->count++];
    (void)snprintf(m->name, sizeof m->name, "%s", d->name);
    m->at = w->file.written;
    m->packed = m->bytes = front + bytes;
    m->crc = wf_npz_crc(wf_npz_crc(0, head, front), d->data, (size_t)bytes);
    struct wf_buffer b = { 0 };
    wf_buffer_add(&b, "PK\3\4", 4);
    add_common(&b, m);
    add(&b, 20, 2); /* bytes of the extra field */
    wf_buffer_printf(&b, "%s.npy", m->name);
    add(&b, EXTRA, 2);
    add(&b, 16, 2);
    add(&b, m->bytes, 8);
    add(&b, m->packed, 8);
    const bool ok = wf_outfile_write(&w->file, b.data, b.size, err) &&
                    wf_outfile_write(&w->file, head, front, err) &&
                    wf_outfile_write(&w->file, d->data, (size_t)bytes, err);
    wf_buffer_release(&b);
    return ok;
}

static void add_entry(struct wf_buffer *b, const struct wf_npz_member *m)
{
    wf_buffer_add(b, "PK\1\2", 4);
    add(b, VERSION, 2); /* made by */
    add_common(b, m);
    add(b, 28, 2); /* bytes of the extra field */
    add(b, 0, 2);  /* of the comment */
    add(b, 0, 2);  /* disk */
    add(b, 0, 2);  /* attributes */
    add(b, 0644u << 16, 4);
    add(b, UINT32_MAX, 4); /* where it is, in the extra field too */
    wf_buffer_printf(b, "%s.npy", m->name);
    add(b, EXTRA, 2);
    add(b, 24, 2);
    add(b, m->bytes, 8);
    add(b, m->packed, 8);
    add(b, m->at, 8);
}

static bool write_directory(struct wf_npz_writer *w, struct wf_err *err)
{
    struct wf_buffer b = { 0 };
    const uint64_t at = w->file.written;
    for (size_t i = 0; i < w->count; i++)
        add_entry(&b, &w->members[i]);
    const uint64_t bytes = b.size;
    wf_buffer_add(&b, "PK\6\6", 4);
    add(&b, 44, 8); /* bytes of this record that follow */
    add(&b, VERSION, 2);
    add(&b, VERSION, 2);
    add(&b, 0, 8); /* disks */
    add(&b, w->count, 8);
    add(&b, w->count, 8);
    add(&b, bytes, 8);
    add(&b, at, 8);
    wf_buffer_add(&b, "PK\6\7", 4);
    add(&b, 0, 4);
    add(&b, at + bytes, 8); /* of the record above */
    add(&b, 1, 4);
    wf_buffer_add(&b, "PK\5\6", 4);
    add(&b, 0, 4); /* disks */
    add(&b, UINT16_MAX, 2);
    add(&b, UINT16_MAX, 2);
    add(&b, UINT32_MAX, 4);
    add(&b, UINT32_MAX, 4);
    add(&b, 0, 2); /* bytes of the comment */
    const bool ok = wf_outfile_write(&w->file, b.data, b.size, err);
    wf_buffer_release(&b);
    return ok;
}

bool wf_npz_end(struct wf_npz_writer *w, bool ok, struct wf_err *err)
{
    ok = ok && write_directory(w, err) && wf_outfile_commit(&w->file, err);
    wf_outfile_drop(&w->file);
    free(w->members);
    *w = (struct wf_npz_writer){ .file.fd = -1 };
    return ok;
}
