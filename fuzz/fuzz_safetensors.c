/* Any bytes as a safetensors file: it is refused with words, or every tensor in it can be read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_err err = { 0 };
    struct wf_safetensors *s = wf_safetensors_parse("input", data, size, &err);
    WF_BUG_ON(!s != (err.code != WF_OK) || (!s && !err.text[0]), "error without words");
    for (int64_t i = 0; s && i < wf_safetensors_count(s); i++) {
        const struct wf_safetensor *t = wf_safetensors_at(s, i);
        WF_BUG_ON(wf_safetensors_find(s, t->name) != t, "'%s' not found", t->name);
        WF_BUG_ON(t->end - t->begin > size, "more bytes than the file");
        for (int type = 0; type < WF_DTYPES; type++) {
            /* Exactly the room that the caller would give it. */
            const size_t bytes = (size_t)t->count * wf_dtype_size((enum wf_dtype)type);
            const bool fits = t->dtype != WF_DTYPES && (type == (int)t->dtype || type == WF_F32);
            void *room = malloc(fits && bytes ? bytes : 1);
            struct wf_err why = { 0 };
            const bool ok = wf_safetensors_read(s, t, (enum wf_dtype)type, room, &why);
            WF_BUG_ON(ok != (why.code == WF_OK) || (ok && !fits), "read of '%s'", t->name);
            free(room);
        }
    }
    if (s)
        (void)wf_safetensors_metadata(s, "format");
    wf_safetensors_free(s);
    return 0;
}
