/* Any bytes as a network file: it is refused with words, or it is printed and read back to the same network, and
 * built or refused with words. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/net_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_arena arena = { 0 };
    struct wf_err err = { 0 };
    char *const text = wf_arena_take(&arena, size + 1);
    if (size)
        memcpy(text, data, size);
    struct wf_net *const net = wf_net_parse(text, "net.yaml", &err);
    WF_BUG_ON(!net != (err.code != WF_OK) || (!net && !err.text[0]), "error without words");
    if (net) {
        const char *const printed = wf_net_print(&arena, net);
        struct wf_net *const back = wf_net_parse(printed, "printed", &err);
        WF_BUG_ON(!back, "%s: %s", err.text, printed);
        WF_BUG_ON(strcmp(wf_net_print(&arena, back), printed) != 0, "%s", printed);
        wf_net_free(back);
        struct wf_net_model *const m = wf_net_model_new(net, &err); /* takes the network */
        WF_BUG_ON(!m && (err.code == WF_OK || !err.text[0]), "error without words");
        wf_net_model_free(m);
    }
    wf_arena_release(&arena);
    return 0;
}
