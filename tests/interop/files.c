/* Reads a file and writes what it read; files.py compares the two.
 *
 *     files st IN OUT
 *     files npy IN OUT f32|i32|i64
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/safetensors.h"
#include "image/npy.h"

struct source {
    const struct wf_safetensors *file;
    const struct wf_safetensor *tensor;
    void *memory; /* kept until the end, freed there */
};

static const void *give(void *user, struct wf_err *err)
{
    struct source *s = user;
    const bool ok = wf_safetensors_read(s->file, s->tensor, s->tensor->dtype, s->memory, err);
    return ok ? s->memory : NULL;
}

static bool copy_tensors(const char *in, const char *out, struct wf_err *err)
{
    struct wf_safetensors *s = wf_safetensors_open(in, err);
    if (!s)
        return false;
    const int64_t count = wf_safetensors_count(s);
    struct source *sources = calloc((size_t)count + 1, sizeof *sources);
    struct wf_safetensors_writer *w = wf_safetensors_begin();
    if (wf_safetensors_metadata(s, "note"))
        wf_safetensors_add_metadata(w, "note", wf_safetensors_metadata(s, "note"));
    bool ok = true;
    for (int64_t i = 0; ok && i < count; i++) {
        const struct wf_safetensor *t = wf_safetensors_at(s, i);
        sources[i] = (struct source){ s, t, malloc((size_t)(t->end - t->begin) + 1) };
        ok = wf_safetensors_read(s, t, t->dtype, sources[i].memory, err);
        if (!ok)
            break;
        /* Every other one is asked for, to go both ways. */
        wf_safetensors_add(w,
                           &(struct wf_safetensors_item){ .name = t->name,
                                                          .dtype = t->dtype,
                                                          .rank = t->rank,
                                                          .shape = t->shape,
                                                          .data = i % 2 ? sources[i].memory : NULL,
                                                          .give = give,
                                                          .user = &sources[i] });
    }
    ok = ok && wf_safetensors_finish(w, out, err);
    wf_safetensors_writer_free(w);
    for (int64_t i = 0; i < count; i++)
        free(sources[i].memory);
    free(sources);
    wf_safetensors_free(s);
    return ok;
}

static bool copy_array(const char *in, const char *out, const char *type, struct wf_err *err)
{
    struct wf_npy a;
    enum wf_dtype as = WF_F32;
    if (!wf_dtype_parse(type, &as) || !wf_npy_open(&a, in, err))
        return false;
    void *data = malloc((size_t)a.count * wf_dtype_size(as) + 1);
    const bool ok = wf_npy_read(&a, 0, a.count, as, data, err) &&
                    wf_npy_write(out, as, a.rank, a.shape, data, err);
    free(data);
    wf_npy_close(&a);
    return ok;
}

int main(int argc, char **argv)
{
    struct wf_err err = { 0 };
    bool ok = false;
    if (argc == 4 && strcmp(argv[1], "st") == 0)
        ok = copy_tensors(argv[2], argv[3], &err);
    else if (argc == 5 && strcmp(argv[1], "npy") == 0)
        ok = copy_array(argv[2], argv[3], argv[4], &err);
    if (!ok)
        (void)fprintf(stderr, "files: %s\n", err.text);
    return ok ? 0 : 1;
}
