/* Inside of the reader of network files: read.c walks the file, read_attrs.c reads values. */
#pragma once

#include "net/net.h"

struct fy_node;

#ifdef WF_HAVE_FYAML
#include <libfyaml.h>
#endif

struct wf_raw_layer {
    const char *name;
    struct fy_node *node;
};

struct wf_net_reader {
    struct wf_net *net;
    struct wf_err *err;
    struct wf_arena arena; /* texts, until the file is read */
    struct wf_raw_layer *raw;
    const struct wf_raw_layer **sorted; /* by name */
    int n_raw;
    /* Where it is: the layer, NULL between them, and its place. */
    int index, line, column;
    const char *layer;
};

/* Sets the error with file, line, column and layer; false. NULL: at the layer. */
bool wf_net_reader_refuse(struct wf_net_reader *r, struct fy_node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *wf_net_reader_text(struct wf_net_reader *r, struct fy_node *node);
[[nodiscard]] bool wf_net_reader_int(struct wf_net_reader *r, const char *key, struct fy_node *node,
                                     int64_t least, int64_t most, int64_t *value);
[[nodiscard]] bool wf_net_reader_real(struct wf_net_reader *r, const char *key,
                                      struct fy_node *node, double least, double most,
                                      double *value);
[[nodiscard]] bool wf_net_reader_bool(struct wf_net_reader *r, const char *key,
                                      struct fy_node *node, bool *value);
/* Puts an attribute where it belongs. */
[[nodiscard]] bool wf_net_reader_attribute(struct wf_net_reader *r, const struct wf_layer_attr *a,
                                           struct fy_node *node, struct wf_layer *l);
