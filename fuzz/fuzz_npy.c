/* Any bytes as a .npy file: it is refused with words, or all its elements can be read. */
#include <stdint.h>
#include <stdlib.h>

#include "image/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum wf_dtype types[] = { WF_F32, WF_I32, WF_I64 };
    struct wf_err err = { 0 };
    struct wf_npy a;
    if (!wf_npy_parse(&a, "input", data, size, &err)) {
        WF_BUG_ON(err.code == WF_OK || !err.text[0], "error without words");
        return 0;
    }
    WF_BUG_ON((uint64_t)a.count > size, "more elements than bytes");
    for (int i = 0; i < 3; i++) {
        /* Exactly the room that the caller would give it. */
        const size_t bytes = (size_t)a.count * wf_dtype_size(types[i]);
        void *room = malloc(bytes ? bytes : 1);
        struct wf_err why = { 0 };
        const bool ok = wf_npy_read(&a, 0, a.count, types[i], room, &why);
        WF_BUG_ON(ok != (why.code == WF_OK), "read as %s", wf_dtype_name(types[i]));
        free(room);
    }
    wf_npy_close(&a);
    return 0;
}
