/* Any bytes as an ONNX file: it is refused with words, or is a network that prints, and reads back. */
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef WF_HAVE_ONNX

#include "onnx/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_err err = { 0 };
    struct wf_onnx_report report = { 0 };
    struct wf_net *const net = wf_onnx_import_memory("input", data, size, NULL, &report, &err);
    WF_BUG_ON(!net && (err.code == WF_OK || !err.text[0]), "error without words");
    if (net) {
        WF_BUG_ON(err.code != WF_OK, "a network and an error: %s", err.text);
        struct wf_arena arena = { 0 };
        struct wf_err why = { 0 };
        WF_BUG_ON(!wf_net_check(net, &why), "%s", why.text);
        (void)wf_net_print(&arena, net);
        wf_arena_release(&arena);
    }
    wf_net_free(net);
    wf_onnx_report_release(&report);
    return 0;
}

#else

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data;
    (void)size;
    return 0;
}

#endif
