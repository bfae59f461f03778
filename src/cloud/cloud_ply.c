/* PLY: a header of elements with properties, then their values as text or bytes. The points are the element
 * `vertex`; faces and others behind it are not read. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/cloud_inside.h"
#include "tensor/region.h"

enum kind { I8, U8, I16, U16, I32, U32, F32, F64, KINDS, NO_LIST = KINDS };
enum { PROPERTIES = 64, ELEMENTS = 16, LINE = 1024 };

static const struct {
    const char *names[2];
    int bytes;
} kinds[KINDS] = {
    [I8] = { { "char", "int8" }, 1 },      [U8] = { { "uchar", "uint8" }, 1 },
    [I16] = { { "short", "int16" }, 2 },   [U16] = { { "ushort", "uint16" }, 2 },
    [I32] = { { "int", "int32" }, 4 },     [U32] = { { "uint", "uint32" }, 4 },
    [F32] = { { "float", "float32" }, 4 }, [F64] = { { "double", "float64" }, 8 },
};

enum { TO_NOTHING = -1, TO_LABEL = -2, TO_AT = -5 /* and the two above it: x, y, z */ };

struct property {
    enum kind kind, length; /* length: of a list's count; NO_LIST: one number */
    int to;                 /* a column, or one of the above */
};

struct element {
    int64_t count;
    int n;
    struct property properties[PROPERTIES];
};

struct ply {
    struct wf_cloud_stream stream;
    enum { ASCII, LITTLE, BIG } form;
    struct element elements[ELEMENTS];
    int n, vertex; /* vertex: which of them has the points; -1: none so far */
};

static bool bad(const struct ply *p, struct wf_err *err, const char *what, const char *line)
{
    return wf_err_set(err, WF_ERR_INPUT, "'%s': %s in the header of a PLY file: '%.60s'",
                      p->stream.file->name, what, line);
}

/* --- header --- */

static enum kind kind_of(const char *name)
{
    for (int k = 0; k < KINDS; k++)
        if (name && (strcmp(name, kinds[k].names[0]) == 0 || strcmp(name, kinds[k].names[1]) == 0))
            return (enum kind)k;
    return KINDS;
}

static bool add_element(struct ply *p, char *rest, const char *line, struct wf_err *err)
{
    const char *const name = strtok_r(NULL, " \t", &rest), *const count =
                                                               strtok_r(NULL, " \t", &rest);
    char *end = NULL;
    const long long n = count ? strtoll(count, &end, 10) : -1;
    if (!name || n < 0 || *end || n > INT64_MAX / 4096)
        return bad(p, err, "no number of elements", line);
    if (p->n == ELEMENTS)
        return bad(p, err, "too many elements", line);
    if (strcmp(name, "vertex") == 0) {
        if (p->vertex >= 0)
            return bad(p, err, "points for the second time", line);
        p->vertex = p->n;
    }
    p->elements[p->n++] = (struct element){ .count = n };
    return true;
}

/* Where the numbers of a property go. */
static int place_of(struct wf_cloud *c, const char *name, bool is_list)
{
    static const char *const axes[] = { "x", "y", "z" };
    char ours[WF_CLOUD_NAME];
    if (is_list)
        return TO_NOTHING;
    for (int i = 0; i < 3; i++)
        if (strcmp(name, axes[i]) == 0)
            return TO_AT + i;
    wf_cloud_name(ours, name);
    if (strcmp(ours, "label") == 0 && !c->has_labels) {
        c->has_labels = true;
        return TO_LABEL;
    }
    const int at = wf_cloud_add(c, name);
    return at < 0 ? TO_NOTHING : at;
}

static bool add_property(struct ply *p, struct wf_cloud *c, char *rest, const char *line,
                         struct wf_err *err)
{
    const char *type = strtok_r(NULL, " \t", &rest);
    struct property q = { .length = NO_LIST };
    const bool is_list = type && strcmp(type, "list") == 0;
    if (is_list) {
        q.length = kind_of(strtok_r(NULL, " \t", &rest));
        type = strtok_r(NULL, " \t", &rest);
    }
    const char *const name = strtok_r(NULL, " \t", &rest);
    q.kind = kind_of(type);
    if (p->n == 0 || !name || q.kind == KINDS || (is_list && q.length >= F32))
        return bad(p, err, "no property", line);
    struct element *const e = &p->elements[p->n - 1];
    if (e->n == PROPERTIES)
        return bad(p, err, "too many properties", line);
    q.to = p->vertex == p->n - 1 ? place_of(c, name, is_list) : TO_NOTHING;
    e->properties[e->n++] = q;
    return true;
}

static bool take_line(struct ply *p, struct wf_cloud *c, char *line, struct wf_err *err)
{
    char whole[LINE], *rest = NULL;
    memcpy(whole, line, strlen(line) + 1);
    const char *const word = strtok_r(line, " \t", &rest);
    if (!word || strcmp(word, "comment") == 0 || strcmp(word, "obj_info") == 0)
        return true;
    if (strcmp(word, "element") == 0)
        return add_element(p, rest, whole, err);
    if (strcmp(word, "property") == 0)
        return add_property(p, c, rest, whole, err);
    if (strcmp(word, "format") != 0)
        return bad(p, err, "an unknown word", whole);
    static const char *const forms[] = { "ascii", "binary_little_endian", "binary_big_endian" };
    const char *const form = strtok_r(NULL, " \t", &rest);
    for (int i = 0; form && i < 3; i++)
        if (strcmp(form, forms[i]) == 0) {
            p->form = i;
            return true;
        }
    return bad(p, err, "an unknown format", whole);
}

static bool read_header(struct ply *p, struct wf_cloud *c, struct wf_err *err)
{
    char line[LINE];
    p->vertex = -1;
    if (!wf_cloud_line(&p->stream, line, sizeof line, err) || strcmp(line, "ply") != 0)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' is no PLY file", p->stream.file->name);
    for (;;) {
        if (!wf_cloud_line(&p->stream, line, sizeof line, err))
            return err->code ? false
                             : wf_err_set(err, WF_ERR_INPUT, "'%s': the header has no end",
                                          p->stream.file->name);
        if (strcmp(line, "end_header") == 0)
            return true;
        if (!take_line(p, c, line, err))
            return false;
    }
}

/* Positions are there, and the file is long enough for what it promises. */
static bool check_header(const struct ply *p, struct wf_err *err)
{
    const char *const path = p->stream.file->name;
    bool there[3] = { false };
    if (p->vertex < 0)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has no points: no element 'vertex'", path);
    for (int e = 0; e <= p->vertex; e++) {
        const struct element *const el = &p->elements[e];
        uint64_t least = 0;
        for (int i = 0; i < el->n; i++) {
            const struct property *const q = &el->properties[i];
            const enum kind k = q->length == NO_LIST ? q->kind : q->length;
            least += p->form == ASCII ? 2 : (uint64_t)kinds[k].bytes;
            if (e == p->vertex && q->to >= TO_AT && q->to < TO_AT + 3)
                there[q->to - TO_AT] = true;
        }
        if (least == 0 && el->count > 0)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': an element has no properties", path);
        if ((uint64_t)el->count > (p->stream.file->size + 1) / (least ? least : 1))
            return wf_err_set(err, WF_ERR_INPUT,
                              "'%s' promises %" PRId64
                              " points and is too short for them: it is cut "
                              "short",
                              path, el->count);
    }
    return (there[0] && there[1] && there[2]) ||
           wf_err_set(err, WF_ERR_INPUT, "'%s': its points have no x, y, z", path);
}

/* --- values --- */

static double value_of(enum kind k, const unsigned char *b)
{
    uint64_t u = 0;
    for (int i = 0; i < kinds[k].bytes; i++)
        u |= (uint64_t)b[i] << 8 * i;
    float f;
    double d;
    const uint32_t low = (uint32_t)u;
    switch (k) {
    case I8:
        return (int8_t)u;
    case I16:
        return (int16_t)u;
    case I32:
        return (int32_t)u;
    case F32:
        memcpy(&f, &low, sizeof f);
        return (double)f;
    case F64:
        memcpy(&d, &u, sizeof d);
        return d;
    default:
        return (double)u;
    }
}

static bool read_value(struct ply *p, enum kind k, double *value, struct wf_err *err)
{
    if (p->form == ASCII)
        return wf_cloud_number(&p->stream, false, value, err);
    const int n = kinds[k].bytes;
    const char *const from = wf_cloud_bytes(&p->stream, (size_t)n, err);
    if (!from)
        return false;
    unsigned char bytes[8] = { 0 };
    for (int i = 0; i < n; i++)
        bytes[i] = (unsigned char)from[p->form == BIG ? n - 1 - i : i];
    *value = value_of(k, bytes);
    return true;
}

static bool skip_list(struct ply *p, const struct property *q, struct wf_err *err)
{
    double count, value;
    if (!read_value(p, q->length, &count, err))
        return false;
    /* A list that lies about its length ends with the file; i32 and u32 are the widest counts. */
    for (int64_t i = 0; i < (int64_t)count; i++)
        if (!read_value(p, q->kind, &value, err))
            return false;
    return true;
}

static bool read_element(struct ply *p, const struct element *e, struct wf_cloud *c,
                         struct wf_err *err)
{
    for (int64_t i = 0; i < e->count; i++)
        for (int k = 0; k < e->n; k++) {
            const struct property *const q = &e->properties[k];
            double value;
            if (q->length != NO_LIST) {
                if (!skip_list(p, q, err))
                    return false;
                continue;
            }
            if (!read_value(p, q->kind, &value, err))
                return false;
            if (q->to >= 0)
                c->columns[q->to].values[i] = (float)value;
            else if (q->to >= TO_AT && q->to < TO_AT + 3)
                c->at[3 * i + q->to - TO_AT] = value;
            else if (q->to == TO_LABEL &&
                     !wf_cloud_label(p->stream.file->name, i, value, &c->labels[i], err))
                return false;
        }
    return true;
}

static bool read_ply(const struct wf_infile *file, const struct wf_cloud_options *o,
                     struct wf_cloud *c, struct wf_err *err)
{
    struct ply *const p = calloc(1, sizeof *p);
    if (!p)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory to read it", file->name);
    p->stream.file = file;
    bool ok = read_header(p, c, err) && check_header(p, err);
    if (ok)
        c->n = p->elements[p->vertex].count;
    if (ok && !o->header_only) {
        ok = wf_cloud_take(c, file->name, err);
        for (int e = 0; ok && e <= p->vertex; e++)
            ok = read_element(p, &p->elements[e], c, err);
    }
    free(p);
    return ok;
}

const struct wf_cloud_format wf_cloud_format_ply = { .ending = ".ply", .read = read_ply };

/* --- writing --- */

static void put(unsigned char **to, const void *from, size_t bytes)
{
    memcpy(*to, from, bytes); /* hosts are little endian */
    *to += bytes;
}

bool wf_cloud_write_ply(const char *path, const struct wf_cloud_ply *p, struct wf_err *err)
{
    enum { AT_ONCE = 4096, MOST = 3 * 8 + 3 * 4 + 3 + 4 };
    char head[640];
    const int n = snprintf(
        head, sizeof head,
        "ply\nformat binary_little_endian 1.0\nelement vertex %" PRId64
        "\nproperty double x\nproperty double y\nproperty double z\n%s%s%send_header\n",
        p->n, p->normals ? "property float nx\nproperty float ny\nproperty float nz\n" : "",
        p->colors ? "property uchar red\nproperty uchar green\nproperty uchar blue\n" : "",
        p->labels ? "property int label\n" : "");
    unsigned char *const block = malloc(AT_ONCE * MOST);
    struct wf_outfile out;
    if (!block)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory to write it", path);
    bool ok = wf_outfile_begin(&out, path, err) && wf_outfile_write(&out, head, (size_t)n, err);
    for (int64_t from = 0; ok && from < p->n; from += AT_ONCE) {
        unsigned char *at = block;
        for (int64_t i = from; i < wf_min(from + AT_ONCE, p->n); i++) {
            put(&at, p->at + 3 * i, 3 * sizeof *p->at);
            if (p->normals)
                put(&at, p->normals + 3 * i, 3 * sizeof *p->normals);
            if (p->colors)
                put(&at, p->colors + 3 * i, 3);
            if (p->labels)
                put(&at, p->labels + i, sizeof *p->labels);
        }
        ok = wf_outfile_write(&out, block, (size_t)(at - block), err);
    }
    ok = ok && wf_outfile_commit(&out, err);
    wf_outfile_drop(&out);
    free(block);
    return ok;
}
