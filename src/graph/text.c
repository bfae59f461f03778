/*
 * The text form of a graph, one thing per line:
 *
 *     widefield graph 1 training=1 compute=f32
 *     %0 = input "image" f32 [1,1,64,64,3]
 *     %1 = param "c.weight" [8,1,3,3,3] dims=2 init=2 bound=0.19245008972987526 frozen=0
 *     %2 = conv "c" (%0 %1 _) {stride=[1,1,1] groups=1} forward of=-1 domain=0
 *     update %5 <- %9
 *     output %7 "y" dims=2
 *     gradient %8 of %1
 *
 * Shapes and types of temporaries are inferred again when it is read, so a text cannot lie about
 * them. Values are numbered in order; a node with two outputs takes two numbers.
 */
#include "graph/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/graph.h"
#include "ops/op.h"

/* --- attributes --- */

char *wf_attrs_print(struct wf_arena *arena, const struct wf_op *op, const void *attrs)
{
    char *text = wf_arena_copy(arena, "");
    for (const struct wf_field *f = op->fields; f && f->name; f++) {
        const char *at = (const char *)attrs + f->offset;
        const int64_t *ints = (const int64_t *)(const void *)at;
        const char *gap = *text ? " " : "";
        if (f->kind == WF_FIELD_REAL) {
            text = wf_arena_printf(arena, "%s%s%s=%.17g", text, gap, f->name,
                                   *(const double *)(const void *)at);
        } else if (f->kind == WF_FIELD_NAME) {
            text = wf_arena_printf(arena, "%s%s%s=%s", text, gap, f->name, f->names[*ints]);
        } else if (f->count <= 1) {
            text = wf_arena_printf(arena, "%s%s%s=%" PRId64, text, gap, f->name, *ints);
        } else {
            text = wf_arena_printf(arena, "%s%s%s=[", text, gap, f->name);
            for (int i = 0; i < f->count; i++)
                text = wf_arena_printf(arena, "%s%s%" PRId64, text, i ? "," : "", ints[i]);
            text = wf_arena_printf(arena, "%s]", text);
        }
    }
    return text;
}

static bool parse_ints(const char **at, int count, int64_t *out)
{
    const char *p = *at;
    const bool list = *p == '[';
    p += list;
    for (int i = 0; i < count; i++) {
        char *end;
        if (i > 0 && *p++ != ',')
            return false;
        out[i] = strtoll(p, &end, 10);
        if (end == p)
            return false;
        p = end;
    }
    if (list && *p++ != ']')
        return false;
    *at = p;
    return list || count == 1;
}

static bool parse_name(const char **at, const char *const *names, int64_t *out)
{
    for (int64_t i = 0; names[i]; i++) {
        const size_t length = strlen(names[i]);
        const char after = strncmp(*at, names[i], length) == 0 ? (*at)[length] : 'x';
        if (after == '\0' || isspace((unsigned char)after)) {
            *out = i;
            *at += length;
            return true;
        }
    }
    return false;
}

static bool parse_field(const struct wf_field *f, const char **at, void *attrs)
{
    char *to = (char *)attrs + f->offset;
    if (f->kind == WF_FIELD_REAL) {
        char *end;
        *(double *)(void *)to = strtod(*at, &end);
        const bool ok = end != *at;
        *at = end;
        return ok;
    }
    if (f->kind == WF_FIELD_NAME)
        return parse_name(at, f->names, (int64_t *)(void *)to);
    return parse_ints(at, f->count > 1 ? f->count : 1, (int64_t *)(void *)to);
}

bool wf_attrs_parse(const struct wf_op *op, const char *text, void *attrs, struct wf_err *err)
{
    const char *at = text ? text : "";
    for (;;) {
        while (isspace((unsigned char)*at))
            at++;
        if (!*at)
            return true;
        const size_t length = strcspn(at, "= \t");
        const struct wf_field *f = op->fields;
        while (f && f->name && (strlen(f->name) != length || strncmp(f->name, at, length) != 0))
            f++;
        if (!f || !f->name || at[length] != '=')
            return wf_err_set(err, WF_ERR_INPUT, "%s has no attribute '%.*s'", op->name,
                              (int)length, at);
        at += length + 1;
        if (!parse_field(f, &at, attrs) || (*at && !isspace((unsigned char)*at)))
            return wf_err_set(err, WF_ERR_INPUT, "%s: attribute '%s' cannot be read", op->name,
                              f->name);
    }
}

/* --- printing --- */

static void append(FILE *f, const struct wf_shape *s)
{
    (void)fprintf(f, "[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", s->at[0],
                  s->at[1], s->at[2], s->at[3], s->at[4]);
}

static void print_node(FILE *f, struct wf_arena *arena, const struct wf_node *n)
{
    for (int o = 0; o < n->n_out; o++)
        (void)fprintf(f, "%s%%%d", o ? " " : "", n->out[o]->id);
    (void)fprintf(f, " = %s \"%s\" (", n->op->name, n->name);
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i])
            (void)fprintf(f, "%s%%%d", i ? " " : "", n->in[i]->id);
        else
            (void)fprintf(f, "%s_", i ? " " : "");
    }
    (void)fprintf(f, ") {%s} %s of=%d domain=%d\n", wf_attrs_print(arena, n->op, n->attrs),
                  n->backward ? "backward" : "forward", n->of, n->domain);
}

char *wf_graph_print(struct wf_arena *arena, const struct wf_graph *g)
{
    char *buffer = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&buffer, &bytes);
    if (!f)
        wf_no_memory(BUFSIZ);
    (void)fprintf(f, "widefield graph 1 training=%d compute=%s\n", g->options.training,
                  wf_dtype_name(g->options.compute));
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        if (v->kind == WF_TEMP) {
            if (v->producer->out[0] == v)
                print_node(f, arena, v->producer);
            continue;
        }
        static const char *const kinds[] = { "", "input", "param", "state" };
        (void)fprintf(f, "%%%d = %s \"%s\" ", v->id, kinds[v->kind], v->name);
        if (v->kind == WF_INPUT)
            (void)fprintf(f, "%s ", wf_dtype_name(v->dtype));
        append(f, &v->shape);
        if (v->set)
            (void)fprintf(f, " set=%d", v->set);
        if (v->per_rank)
            (void)fputs(" per_rank", f);
        if (v->kind == WF_INPUT && v->replicated && v != g->rows)
            (void)fputs(" replicated", f);
        if (v == g->rows)
            (void)fprintf(f, " sets=%d", g->n_sets);
        if (v->kind != WF_INPUT)
            (void)fprintf(f, " dims=%d init=%d bound=%.17g frozen=%d", v->border_dims, (int)v->init,
                          v->init_bound, v->frozen);
        (void)fputc('\n', f);
    }
    for (size_t i = 0; i < g->n_updates; i++)
        (void)fprintf(f, "update %%%d <- %%%d\n", g->updates[i].state->id, g->updates[i].next->id);
    for (size_t i = 0; i < g->n_outputs; i++) {
        const struct wf_value *const v = g->outputs[i];
        if (v->grad_of)
            (void)fprintf(f, "gradient %%%d of %%%d\n", v->id, v->grad_of->id);
        else
            (void)fprintf(f, "output %%%d \"%s\" dims=%d\n", v->id, v->name, v->border_dims);
    }
    const bool whole = !ferror(f);
    if (fclose(f) != 0 || !whole)
        wf_no_memory(bytes);
    char *text = wf_arena_copy(arena, buffer);
    free(buffer);
    return text;
}

/* --- reading --- */

struct reader {
    struct wf_graph *g;
    struct wf_err *err;
    int line;
    const char *at;
};

static bool fail(struct reader *r, const char *what)
{
    return wf_err_set(r->err, WF_ERR_INPUT, "graph text, line %d: %s at '%.24s'", r->line, what,
                      r->at);
}

static void skip(struct reader *r)
{
    while (*r->at == ' ')
        r->at++;
}

static bool word(struct reader *r, const char *text)
{
    skip(r);
    const size_t length = strlen(text);
    if (strncmp(r->at, text, length) != 0)
        return false;
    r->at += length;
    return true;
}

static bool number(struct reader *r, const char *label, double *out)
{
    char *end;
    if (!word(r, label))
        return false;
    *out = strtod(r->at, &end);
    if (end == r->at)
        return false;
    r->at = end;
    return true;
}

static bool name(struct reader *r, char out[256])
{
    if (!word(r, "\""))
        return false;
    const size_t length = strcspn(r->at, "\"");
    if (r->at[length] != '"' || length > 255)
        return false;
    memcpy(out, r->at, length);
    out[length] = '\0';
    r->at += length + 1;
    return true;
}

static struct wf_value *value(struct reader *r)
{
    double id;
    if (!number(r, "%", &id) || id < 0 || id >= (double)r->g->n_values)
        return NULL;
    return r->g->values[(size_t)id];
}

static bool shape(struct reader *r, struct wf_shape *out)
{
    skip(r);
    return *r->at == '[' && parse_ints(&r->at, WF_AXES, out->at);
}

static bool read_input(struct reader *r)
{
    char label[256], type[8];
    struct wf_shape s;
    enum wf_dtype dtype;
    if (!name(r, label))
        return fail(r, "expected a name");
    skip(r);
    const size_t length = strcspn(r->at, " ");
    if (length >= sizeof type)
        return fail(r, "expected a type");
    memcpy(type, r->at, length);
    type[length] = '\0';
    r->at += length;
    if (!wf_dtype_parse(type, &dtype) || !shape(r, &s))
        return fail(r, "expected a type and a shape");
    double set = 0, sets = 0;
    (void)number(r, "set=", &set);
    struct wf_value *const v = wf_input_rows(r->g, label, dtype, s, (int)set);
    if (v)
        v->per_rank = word(r, "per_rank"), v->replicated = word(r, "replicated");
    if (v && number(r, "sets=", &sets)) {
        v->replicated = true;
        r->g->rows = v;
        r->g->n_sets = (int)sets;
    }
    return v != NULL;
}

static bool read_weight(struct reader *r, bool is_param)
{
    char label[256];
    struct wf_param_spec spec = { .name = label };
    double dims, init, frozen;
    if (!name(r, label) || !shape(r, &spec.shape) || !number(r, "dims=", &dims) ||
        !number(r, "init=", &init) || !number(r, "bound=", &spec.init_bound) ||
        !number(r, "frozen=", &frozen))
        return fail(r, "expected \"name\" [shape] dims= init= bound= frozen=");
    spec.border_dims = (int)dims;
    spec.init = (enum wf_init)(int)init;
    spec.frozen = frozen != 0.0;
    return (is_param ? wf_param(r->g, &spec) : wf_state(r->g, &spec)) != NULL;
}

enum { MAX_IN = 256 };

static bool read_inputs(struct reader *r, int *n_in, struct wf_value *in[MAX_IN])
{
    *n_in = 0;
    if (!word(r, "("))
        return fail(r, "expected the inputs");
    while (!word(r, ")")) {
        if (*n_in == MAX_IN)
            return fail(r, "too many inputs");
        if (word(r, "_"))
            in[(*n_in)++] = NULL;
        else if (!(in[(*n_in)++] = value(r)))
            return fail(r, "unknown value");
    }
    return true;
}

static bool read_node(struct reader *r, int n_out)
{
    char op_name[64], label[256], attr_text[1024];
    skip(r);
    const size_t length = strcspn(r->at, " ");
    if (length >= sizeof op_name)
        return fail(r, "expected an operator");
    memcpy(op_name, r->at, length);
    op_name[length] = '\0';
    const struct wf_op *op = wf_op_find(op_name);
    if (!op || wf_op_outputs(op) != n_out)
        return fail(r, "unknown operator or wrong number of results");
    r->at += length;
    int n_in;
    struct wf_value *in[MAX_IN];
    if (!name(r, label) || !read_inputs(r, &n_in, in) || !word(r, "{"))
        return fail(r, "expected \"name\" (inputs) {attributes}");
    const size_t attrs_length = strcspn(r->at, "}");
    if (r->at[attrs_length] != '}' || attrs_length >= sizeof attr_text)
        return fail(r, "attributes do not end");
    memcpy(attr_text, r->at, attrs_length);
    attr_text[attrs_length] = '\0';
    r->at += attrs_length + 1;
    void *attrs = wf_arena_take(&r->g->arena, op->attr_bytes + 1);
    if (!wf_attrs_parse(op, attr_text, attrs, r->err))
        return wf_err_wrap(r->err, "graph text, line %d", r->line);
    r->g->in_backward = word(r, "backward");
    if (!r->g->in_backward && !word(r, "forward"))
        return fail(r, "expected forward or backward");
    double of, domain;
    if (!number(r, "of=", &of) || !number(r, "domain=", &domain))
        return fail(r, "expected of= domain=");
    if (!(of >= -1 && of < (double)r->g->n_nodes))
        return fail(r, "of= names no node before this one");
    struct wf_node *n = wf_node_add(r->g, op, label, attrs, n_in, in);
    if (!n)
        return false;
    n->of = (int)of;
    n->domain = (int)domain;
    return true;
}

static bool read_definition(struct reader *r)
{
    int n_out = 0;
    double id;
    while (number(r, "%", &id)) {
        if (id != (double)(r->g->n_values + (size_t)n_out))
            return fail(r, "values must be numbered in order");
        n_out++;
    }
    if (!word(r, "="))
        return fail(r, "expected =");
    if (word(r, "input "))
        return read_input(r);
    if (word(r, "param "))
        return read_weight(r, true);
    if (word(r, "state "))
        return read_weight(r, false);
    return read_node(r, n_out);
}

static bool read_line(struct reader *r)
{
    if (word(r, "update ")) {
        struct wf_value *state = value(r);
        struct wf_value *next = word(r, "<-") ? value(r) : NULL;
        if (!state || !next || state->kind != WF_STATE ||
            !wf_shape_equal(state->shape, next->shape) || state->dtype != next->dtype)
            return fail(r, "expected a state and its next value");
        wf_graph_update_state(r->g, state, next);
        return true;
    }
    if (word(r, "output ")) {
        char label[256];
        double dims;
        struct wf_value *v = value(r);
        if (!v || !name(r, label) || !number(r, "dims=", &dims))
            return fail(r, "expected an output");
        v->name = wf_arena_copy(&r->g->arena, label);
        v->border_dims = (int)dims;
        wf_graph_output(r->g, v);
        return true;
    }
    if (word(r, "gradient ")) {
        struct wf_value *grad = value(r);
        struct wf_value *param = word(r, "of") ? value(r) : NULL;
        if (!grad || !param || param->kind != WF_PARAM || param->grad || grad->kind != WF_TEMP ||
            grad->grad_of || grad->dtype != WF_F32 || !wf_shape_equal(grad->shape, param->shape))
            return fail(r, "expected a parameter's gradient, f32 and of its shape");
        wf_graph_link_grad(r->g, param, grad);
        return true;
    }
    return read_definition(r);
}

struct wf_graph *wf_graph_parse(const char *text, struct wf_err *err)
{
    struct reader r = { .g = wf_graph_new(NULL), .err = err };
    char compute[8] = "", line[4096];
    int training = 0;
    bool ok = true;
    for (const char *at = text; ok && *at; at += *at == '\n') {
        const size_t length = strcspn(at, "\n");
        r.line++;
        r.at = line;
        if (length >= sizeof line) {
            ok = wf_err_set(err, WF_ERR_INPUT, "graph text, line %d: too long", r.line);
            break;
        }
        memcpy(line, at, length);
        line[length] = '\0';
        at += length;
        if (r.line == 1)
            ok = (sscanf(line, "widefield graph 1 training=%d compute=%7s", &training, compute) ==
                      2 &&
                  wf_dtype_parse(compute, &r.g->options.compute)) ||
                 fail(&r, "expected 'widefield graph 1'");
        else if (length > 0)
            ok = read_line(&r);
        r.g->options.training = training != 0;
    }
    r.g->in_backward = false;
    if (ok && wf_graph_ok(r.g, err))
        return r.g;
    if (err->code == WF_OK && !wf_graph_ok(r.g, err))
        wf_err_wrap(err, "graph text, line %d", r.line);
    wf_graph_free(r.g);
    return NULL;
}
