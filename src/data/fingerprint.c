#include "data/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "data/dataset_inside.h"
#include "tensor/dtype.h"

enum { BLOCK = 4096, RECORD = 64, PRINTED = 4096 /* samples */, DIGITS = 8 /* of a sample */ };

/* --- hashing --- */

static void add_text(XXH64_state_t *hash, const char *text)
{
    (void)XXH64_update(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_number(XXH64_state_t *hash, int64_t number)
{
    (void)XXH64_update(hash, &number, sizeof number);
}

/* The name of a file from the dataset's folder on. */
static const char *within(const struct wf_dataset *ds, const char *path)
{
    const size_t n = strlen(ds->info.path);
    if (strncmp(path, ds->info.path, n) != 0)
        return path;
    path += n;
    while (*path == '/')
        path++;
    return path;
}

/* The last file is kept open: records share theirs. */
struct look {
    const struct wf_dataset *ds;
    XXH64_state_t *hash;
    struct wf_infile file;
    const char *path; /* of it, or NULL */
};

static bool open_file(struct look *l, const char *path, struct wf_err *err)
{
    if (l->path && strcmp(l->path, path) == 0)
        return true;
    if (l->path)
        wf_infile_close(&l->file);
    l->path = wf_infile_open(&l->file, path, err) ? path : NULL;
    return l->path != NULL;
}

static bool add_bytes(struct look *l, uint64_t from, uint64_t bytes, struct wf_err *err)
{
    unsigned char block[BLOCK];
    if (!wf_infile_read(&l->file, from, block, (size_t)bytes, err))
        return false;
    (void)XXH64_update(l->hash, block, (size_t)bytes);
    return true;
}

static bool add_file(struct look *l, const char *path, struct wf_err *err)
{
    if (!open_file(l, path, err))
        return false;
    const uint64_t size = l->file.size, bytes = size < BLOCK ? size : BLOCK;
    add_number(l->hash, (int64_t)size);
    return add_bytes(l, 0, bytes, err) && add_bytes(l, size - bytes, bytes, err);
}

static bool add_record(struct look *l, const struct wf_entry *e, struct wf_err *err)
{
    if (!open_file(l, e->files[0], err))
        return false;
    if (e->pixels) { /* its offset is one in the unpacked file */
        const int64_t bytes = e->sample.extent[WF_H] * e->sample.extent[WF_W];
        (void)XXH64_update(l->hash, e->pixels, (size_t)wf_min(RECORD, bytes));
        return true;
    }
    const uint64_t size = l->file.size, left = e->offset < size ? size - e->offset : 0;
    add_number(l->hash, (int64_t)size);
    return add_bytes(l, e->offset, left < RECORD ? left : RECORD, err);
}

static void add_arrays(XXH64_state_t *hash, const struct wf_arrays *a, const struct wf_entry *e)
{
    const int64_t *const x = e->sample.extent;
    const size_t pixels = (size_t)(x[WF_D] * x[WF_H] * x[WF_W]);
    (void)XXH64_update(hash, e->pixels, pixels * (size_t)x[WF_C] * wf_dtype_size(a->image_dtype));
    if (e->labels)
        (void)XXH64_update(hash, e->labels, pixels * wf_dtype_size(a->label_dtype));
}

static bool add_sample(struct look *l, const struct wf_entry *e, bool looks, struct wf_err *err)
{
    const struct wf_data_sample *const s = &e->sample;
    add_text(l->hash, s->name);
    for (int a = 0; a < WF_AXES; a++)
        add_number(l->hash, s->extent[a]);
    add_number(l->hash, s->label);
    add_number(l->hash, s->held_out);
    add_number(l->hash, (int64_t)e->offset);
    for (int i = 0; i < e->n_files; i++)
        add_text(l->hash, within(l->ds, e->files[i]));
    add_text(l->hash, s->mask ? within(l->ds, s->mask) : NULL);
    if (!looks)
        return true;
    if (l->ds->arrays) {
        add_arrays(l->hash, l->ds->arrays, e);
        return true;
    }
    if (l->ds->kind->read)
        return add_record(l, e, err);
    bool ok = true;
    for (int i = 0; ok && i < e->n_files; i++)
        ok = add_file(l, e->files[i], err);
    return ok && (!s->mask || add_file(l, s->mask, err));
}

/* What the labels mean. */
static void add_classes(XXH64_state_t *hash, const struct wf_dataset_info *info)
{
    const int64_t facts[] = { info->labels, info->channels, info->codes, info->n_classes,
                              info->has_ignore ? info->ignore : -1 };
    (void)XXH64_update(hash, facts, sizeof facts);
    for (int i = 0; i < info->n_classes; i++) {
        add_text(hash, info->classes[i].name);
        add_number(hash, info->classes[i].first);
        add_number(hash, info->classes[i].last);
    }
}

bool wf_dataset_fingerprint(struct wf_arena *arena, const struct wf_dataset *ds,
                            struct wf_fingerprint *f, struct wf_err *err)
{
    const int64_t n = ds->info.samples, stride = wf_ceil_div(n, WF_FINGERPRINT_LOOKS);
    uint64_t *const each = wf_arena_array(arena, n + 1, uint64_t);
    struct look l = { .ds = ds, .hash = XXH64_createState() };
    if (!l.hash)
        wf_no_memory(0);
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) {
        (void)XXH64_reset(l.hash, 0);
        ok = add_sample(&l, &ds->entries[i], i % stride == 0, err);
        each[i] = XXH64_digest(l.hash);
    }
    (void)XXH64_reset(l.hash, 0);
    add_classes(l.hash, &ds->info);
    (void)XXH64_update(l.hash, each, (size_t)n * sizeof *each);
    *f = (struct wf_fingerprint){ .all = XXH64_digest(l.hash), .samples = n, .each = each };
    (void)XXH64_freeState(l.hash);
    if (l.path)
        wf_infile_close(&l.file);
    return ok;
}

int64_t wf_fingerprint_differs(const struct wf_fingerprint *a, const struct wf_fingerprint *b)
{
    const int64_t both = wf_min(a->samples, b->samples);
    for (int64_t i = 0; i < both; i++)
        if (a->each[i] != b->each[i])
            return i;
    return a->samples == b->samples ? -1 : both;
}

/* --- as a text: "ALL SAMPLES DIGITS..." --- */

static uint32_t digits_of(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

const char *wf_fingerprint_print(struct wf_arena *arena, const struct wf_fingerprint *f)
{
    const int64_t printed = f->samples <= PRINTED ? f->samples : 0;
    const size_t room = 64 + (size_t)printed * DIGITS;
    char *const text = wf_arena_array(arena, room, char);
    size_t used = (size_t)snprintf(text, room, "%016" PRIx64 " %" PRId64 " ", f->all, f->samples);
    for (int64_t i = 0; i < printed; i++)
        used += (size_t)snprintf(text + used, room - used, "%08" PRIx32, digits_of(f->each[i]));
    return text;
}

bool wf_fingerprint_matches(const struct wf_fingerprint *f, const char *text, int64_t *samples,
                            int64_t *first)
{
    uint64_t all = 0;
    int used = 0;
    *samples = 0;
    *first = WF_FINGERPRINT_UNKNOWN;
    // NOLINTNEXTLINE(cert-err34-c): a text that is none matches nothing
    if (sscanf(text, "%" SCNx64 " %" SCNd64 " %n", &all, samples, &used) < 2)
        return false;
    if (all == f->all && *samples == f->samples)
        return true;
    const char *at = text + used;
    if (strlen(at) != (size_t)wf_min(wf_max(*samples, 0), PRINTED) * DIGITS)
        return false;
    const int64_t both = wf_min(*samples, f->samples);
    for (int64_t i = 0; i < both; i++, at += DIGITS) {
        char digits[DIGITS + 1];
        (void)snprintf(digits, sizeof digits, "%08" PRIx32, digits_of(f->each[i]));
        if (strncmp(at, digits, DIGITS) != 0) {
            *first = i;
            return false;
        }
    }
    *first = *samples != f->samples ? both : -1;
    return false;
}
