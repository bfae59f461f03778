/* Values of network files: numbers, names, one for all axes or a list. */
#include "net/read.h"

#ifdef WF_HAVE_FYAML

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"

static const char *scalar(struct wf_net_reader *r, struct fy_node *node)
{
    const bool is_one = node && fy_node_is_scalar(node) && !fy_node_is_alias(node) &&
                        fy_node_get_scalar_length(node) > 0;
    return is_one ? wf_net_reader_text(r, node) : "";
}

bool wf_net_reader_int(struct wf_net_reader *r, const char *key, struct fy_node *node,
                       int64_t least, int64_t most, int64_t *value)
{
    const char *const text = scalar(r, node);
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (!*text || *end || errno)
        return wf_net_reader_refuse(r, node, "'%s' takes a whole number, got '%s'", key, text);
    if (number < least || number > most)
        return wf_net_reader_refuse(r, node,
                                    "'%s' is %lld, it must be from %" PRId64 " to %" PRId64, key,
                                    number, least, most);
    *value = number;
    return true;
}

bool wf_net_reader_real(struct wf_net_reader *r, const char *key, struct fy_node *node,
                        double least, double most, double *value)
{
    const char *const text = scalar(r, node);
    char *end = NULL;
    const double number = strtod(text, &end);
    if (!*text || *end || !isfinite(number))
        return wf_net_reader_refuse(r, node, "'%s' takes a number, got '%s'", key, text);
    if (number < least || number > most)
        return wf_net_reader_refuse(r, node, "'%s' is %s, it must be from %g to %g", key, text,
                                    least, most);
    *value = number;
    return true;
}

bool wf_net_reader_bool(struct wf_net_reader *r, const char *key, struct fy_node *node, bool *value)
{
    const char *const text = scalar(r, node);
    *value = strcmp(text, "true") == 0;
    return *value || strcmp(text, "false") == 0 ||
           wf_net_reader_refuse(r, node, "'%s' is true or false, got '%s'", key, text);
}

static bool read_name(struct wf_net_reader *r, const struct wf_layer_attr *a, struct fy_node *node,
                      int64_t *value)
{
    const char *const text = scalar(r, node);
    struct wf_suggest near = { .typed = text };
    const char *all = "";
    for (int i = 0; a->names[i]; i++) {
        if (strcmp(a->names[i], text) == 0) {
            *value = i;
            return true;
        }
        wf_suggest_offer(&near, a->names[i]);
        all = wf_arena_printf(&r->arena, "%s%s%s", all, i ? ", " : "", a->names[i]);
    }
    if (near.best)
        return wf_net_reader_refuse(r, node, "'%s': there is no '%s': did you mean '%s'?", a->name,
                                    text, near.best);
    return wf_net_reader_refuse(r, node, "'%s' is one of %s, got '%s'", a->name, all, text);
}

/* The k-th of a list with one item for each axis of the network; or the value itself, for all. NULL: refused. */
static struct fy_node *along(struct wf_net_reader *r, const struct wf_layer_attr *a,
                             struct fy_node *node, int k)
{
    const int dims = r->net->dims;
    if (!fy_node_is_sequence(node))
        return node;
    if (fy_node_sequence_item_count(node) == dims)
        return fy_node_sequence_get_by_index(node, k);
    (void)wf_net_reader_refuse(r, node,
                               "'%s' has %d numbers, the network has %d dimensions: give %d, "
                               "or one for all",
                               a->name, fy_node_sequence_item_count(node), dims, dims);
    return NULL;
}

static bool read_ints(struct wf_net_reader *r, const struct wf_layer_attr *a, struct fy_node *node,
                      int64_t value[3])
{
    const int dims = r->net->dims;
    for (int i = 0; i < 3; i++)
        value[i] = a->least > 0 ? 1 : 0;
    for (int k = 0; k < dims; k++) {
        struct fy_node *const item = along(r, a, node, k);
        if (!item || !wf_net_reader_int(r, a->name, item, (int64_t)a->least, (int64_t)a->most,
                                        &value[3 - dims + k]))
            return false;
    }
    return true;
}

static bool read_reals(struct wf_net_reader *r, const struct wf_layer_attr *a, struct fy_node *node,
                       double value[3])
{
    const int dims = r->net->dims;
    for (int k = 0; k < dims; k++) {
        struct fy_node *const item = along(r, a, node, k);
        if (!item || !wf_net_reader_real(r, a->name, item, a->least, a->most, &value[3 - dims + k]))
            return false;
    }
    return true;
}

/* `same` follows from kernel and dilation, which may stand behind it. */
static bool read_same(struct wf_net_reader *r, struct fy_node *node, struct wf_layer *l)
{
    struct fy_node *const map = r->raw[r->index].node;
    static const char *const keys[] = { "kernel", "dilation" };
    struct wf_layer_attrs other = { 0 };
    if (!wf_layer_word_in(l->kind->takes, "dilation"))
        return wf_net_reader_refuse(r, node, "'pad: same' is for convolutions: give numbers");
    for (int i = 0; i < 2; i++) {
        struct fy_node *const value =
            fy_node_mapping_lookup_by_string(map, keys[i], strlen(keys[i]));
        if (value &&
            !read_ints(r, wf_layer_attr(keys[i]), value, i ? other.dilation : other.kernel))
            return false;
    }
    for (int i = 0; i < 3; i++) {
        const int64_t dilation = other.dilation[i] > 1 ? other.dilation[i] : 1;
        const int64_t grow = other.kernel[i] > 1 ? dilation * (other.kernel[i] - 1) : 0;
        l->a.pad_lo[i] = grow / 2;
        l->a.pad_hi[i] = grow - grow / 2;
    }
    return true;
}

static bool read_pad(struct wf_net_reader *r, const struct wf_layer_attr *a, struct fy_node *node,
                     struct wf_layer *l)
{
    const int dims = r->net->dims, first = 3 - dims;
    /* Negative amounts cut off, which a layer of windows does not do. */
    const int64_t least = strcmp(l->kind->name, "pad") == 0 ? (int64_t)a->least : 0;
    const int64_t most = (int64_t)a->most;
    if (strcmp(scalar(r, node), "same") == 0)
        return read_same(r, node, l);
    for (int k = 0; k < dims; k++) {
        struct fy_node *const item = along(r, a, node, k);
        int64_t *const lo = &l->a.pad_lo[first + k], *const hi = &l->a.pad_hi[first + k];
        if (!item)
            return false;
        if (!fy_node_is_sequence(item)) {
            if (!wf_net_reader_int(r, a->name, item, least, most, lo))
                return false;
            *hi = *lo;
            continue;
        }
        if (fy_node_sequence_item_count(item) != 2)
            return wf_net_reader_refuse(r, item,
                                        "'pad' along an axis is a number or [before, behind]");
        if (!wf_net_reader_int(r, a->name, fy_node_sequence_get_by_index(item, 0), least, most,
                               lo) ||
            !wf_net_reader_int(r, a->name, fy_node_sequence_get_by_index(item, 1), least, most, hi))
            return false;
    }
    return true;
}

bool wf_net_reader_attribute(struct wf_net_reader *r, const struct wf_layer_attr *a,
                             struct fy_node *node, struct wf_layer *l)
{
    void *const at = (char *)&l->a + a->offset;
    bool flag = false;
    switch (a->type) {
    case WF_ATTR_OUT:
        if (strcmp(scalar(r, node), "classes") == 0) {
            *(int64_t *)at = WF_LAYER_CLASSES;
            return true;
        }
        return wf_net_reader_int(r, a->name, node, (int64_t)a->least, (int64_t)a->most, at);
    case WF_ATTR_INT:
        return wf_net_reader_int(r, a->name, node, (int64_t)a->least, (int64_t)a->most, at);
    case WF_ATTR_INTS:
        return read_ints(r, a, node, at);
    case WF_ATTR_REAL:
        return wf_net_reader_real(r, a->name, node, a->least, a->most, at);
    case WF_ATTR_REALS:
        return read_reals(r, a, node, at);
    case WF_ATTR_BOOL:
        if (!wf_net_reader_bool(r, a->name, node, &flag))
            return false;
        *(int64_t *)at = flag;
        return true;
    case WF_ATTR_NAME:
        return read_name(r, a, node, at);
    case WF_ATTR_PAD:
        return read_pad(r, a, node, l);
    }
    return false;
}

#endif
