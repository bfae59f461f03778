/* Networks as YAML, a layer on each line. What has its default is left out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "net/net.h"

/* As it is where YAML reads it so in any place; otherwise in quotes. */
static void put_text(struct wf_buffer *b, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    if (*text && *text != '-' && !text[strspn(text, plain)]) {
        wf_buffer_text(b, text);
        return;
    }
    wf_buffer_text(b, "\"");
    for (; *text; text++) {
        if ((unsigned char)*text < ' ')
            wf_buffer_printf(b, "\\x%02x", (unsigned)(unsigned char)*text);
        else
            wf_buffer_printf(b, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    wf_buffer_text(b, "\"");
}

static const char *layer_name(const struct wf_net *net, int index)
{
    return index == WF_LAYER_IMAGE ? "image" : net->layers[index].name;
}

/* The fewest digits that read back to the same number. */
static void put_real(struct wf_buffer *b, double value)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) /* NOLINT(clang-diagnostic-float-equal) */
            break;
    }
    wf_buffer_text(b, text);
}

static bool all_equal(const int64_t *v, int n)
{
    for (int i = 1; i < n; i++)
        if (v[i] != v[0])
            return false;
    return true;
}

static void put_ints(struct wf_buffer *b, const char *before, const char *name,
                     const int64_t value[3], int dims)
{
    const int64_t *const v = value + 3 - dims;
    int64_t any = 0;
    for (int i = 0; i < dims; i++)
        any |= v[i];
    if (!any)
        return;
    wf_buffer_printf(b, "%s%s: ", before, name);
    if (all_equal(v, dims)) {
        wf_buffer_printf(b, "%" PRId64, v[0]);
        return;
    }
    for (int i = 0; i < dims; i++) /* an extent that was not given is 1 where its neighbours are */
        wf_buffer_printf(b, "%s%" PRId64, i ? ", " : "[", v[i]);
    wf_buffer_text(b, "]");
}

static void put_reals(struct wf_buffer *b, const char *name, const double value[3], int dims)
{
    const double *const v = value + 3 - dims;
    bool given = false, equal = true;
    for (int i = 0; i < dims; i++) {
        given |= v[i] > 0;
        equal = equal && !(v[i] < v[0]) && !(v[i] > v[0]);
    }
    if (!given)
        return;
    wf_buffer_printf(b, ", %s: %s", name, equal ? "" : "[");
    for (int i = 0; i < (equal ? 1 : dims); i++) {
        wf_buffer_text(b, i ? ", " : "");
        put_real(b, v[i] > 0 ? v[i] : 1);
    }
    wf_buffer_text(b, equal ? "" : "]");
}

static void put_pad(struct wf_buffer *b, const struct wf_layer_attrs *a, int dims)
{
    const int64_t *const lo = a->pad_lo + 3 - dims, *const hi = a->pad_hi + 3 - dims;
    if (memcmp(a->pad_lo, a->pad_hi, sizeof a->pad_lo) == 0) {
        put_ints(b, ", ", "pad", a->pad_lo, dims);
        return;
    }
    for (int i = 0; i < dims; i++)
        wf_buffer_printf(b, "%s[%" PRId64 ", %" PRId64 "]", i ? ", " : ", pad: [", lo[i], hi[i]);
    wf_buffer_text(b, "]");
}

static void put_attribute(struct wf_buffer *b, const struct wf_net *net, const struct wf_layer *l,
                          const struct wf_layer_attr *t)
{
    const void *const at = (const char *)&l->a + t->offset;
    const int64_t number = *(const int64_t *)at;
    const double real = *(const double *)at;
    switch (t->type) {
    case WF_ATTR_OUT:
        if (number)
            wf_buffer_printf(b, number > 0 ? ", %s: %" PRId64 : ", %s: classes", t->name, number);
        return;
    case WF_ATTR_INT:
        if (number)
            wf_buffer_printf(b, ", %s: %" PRId64, t->name, number);
        return;
    case WF_ATTR_INTS:
        put_ints(b, ", ", t->name, at, net->dims);
        return;
    case WF_ATTR_REAL:
        if (real < 0 || real > 0 || wf_layer_word_in(l->kind->needs, t->name)) {
            wf_buffer_printf(b, ", %s: ", t->name);
            put_real(b, real);
        }
        return;
    case WF_ATTR_REALS:
        put_reals(b, t->name, at, net->dims);
        return;
    case WF_ATTR_BOOL:
        if (number)
            wf_buffer_printf(b, ", %s: true", t->name);
        return;
    case WF_ATTR_NAME:
        if (number)
            wf_buffer_printf(b, ", %s: %s", t->name, t->names[number]);
        return;
    case WF_ATTR_PAD:
        put_pad(b, &l->a, net->dims);
        return;
    }
}

static void put_layer(struct wf_buffer *b, const struct wf_net *net, int index)
{
    const struct wf_layer *const l = &net->layers[index];
    wf_buffer_text(b, "  - { name: ");
    put_text(b, l->name);
    wf_buffer_printf(b, ", kind: %s", l->kind->name);
    if (l->n_in != 1 || l->in[0] != index - 1 || index == 0) {
        wf_buffer_text(b, l->n_in == 1 ? ", in: " : ", in: [");
        for (int i = 0; i < l->n_in; i++) {
            wf_buffer_text(b, i ? ", " : "");
            put_text(b, layer_name(net, l->in[i]));
        }
        wf_buffer_text(b, l->n_in == 1 ? "" : "]");
    }
    for (const struct wf_layer_attr *t = wf_layer_attr_table; t->name; t++)
        if (wf_layer_word_in(l->kind->takes, t->name))
            put_attribute(b, net, l, t);
    if (l->like != WF_LAYER_NONE) {
        wf_buffer_text(b, ", like: ");
        put_text(b, layer_name(net, l->like));
    }
    if (l->weights) {
        wf_buffer_text(b, ", weights: ");
        put_text(b, l->weights);
    }
    wf_buffer_text(b, l->frozen ? ", frozen: true }\n" : " }\n");
}

static void put_heads(struct wf_buffer *b, const struct wf_net *net)
{
    wf_buffer_text(b, "heads: [");
    for (int i = 0; i < net->n_heads; i++) {
        const double weight = net->heads[i].weight;
        const bool plain = !(weight < 1) && !(weight > 1);
        wf_buffer_printf(b, "%s%s", i ? ", " : "", plain ? "" : "{ layer: ");
        put_text(b, layer_name(net, net->heads[i].layer));
        if (!plain) {
            wf_buffer_text(b, ", weight: ");
            put_real(b, weight);
            wf_buffer_text(b, " }");
        }
    }
    wf_buffer_text(b, "]\n");
}

char *wf_net_print(struct wf_arena *arena, const struct wf_net *net)
{
    struct wf_buffer b = { 0 };
    wf_buffer_text(&b, "name: ");
    put_text(&b, net->name);
    wf_buffer_printf(&b, "\ndims: %d\n", net->dims);
    if (net->in)
        wf_buffer_printf(&b, "in: %" PRId64 "\n", net->in);
    if (net->classes)
        wf_buffer_printf(&b, "classes: %" PRId64 "\n", net->classes);
    put_ints(&b, "", "size", net->size, net->dims);
    wf_buffer_text(&b, net->size[2] ? "\nlayers:\n" : "layers:\n");
    for (int i = 0; i < net->n_layers; i++)
        put_layer(&b, net, i);
    put_heads(&b, net);
    char *const text = wf_arena_copy(arena, b.data);
    wf_buffer_release(&b);
    return text;
}
