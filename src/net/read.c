/* Network files, read through libfyaml, which knows where each scalar stands. */
#include "net/read.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "base/utf8.h"

/* More is the wrong file. */
enum { FILE_BYTES_MAX = 4 << 20 };

static struct wf_net *parse(const char *text, size_t bytes, const char *path, struct wf_err *err);

struct wf_net *wf_net_parse(const char *text, const char *path, struct wf_err *err)
{
    return parse(text, strlen(text), path, err);
}

/* The whole file, which the caller frees; NULL with an error. */
static char *file_text(const char *path, size_t *bytes, struct wf_err *err)
{
    FILE *const file = fopen(path, "rb");
    if (!file) {
        (void)wf_err_set(err, WF_ERR_USAGE, "cannot read network file '%s': %s", path,
                         wf_file_reason(errno));
        return NULL;
    }
    size_t room = 1 << 16;
    char *text = wf_take(room);
    *bytes = 0;
    for (size_t got; (got = fread(text + *bytes, 1, room - *bytes, file)) > 0;) {
        *bytes += got;
        if (*bytes > FILE_BYTES_MAX)
            break;
        if (*bytes == room) {
            char *const more = wf_take(2 * room);
            memcpy(more, text, *bytes);
            free(text);
            text = more;
            room *= 2;
        }
    }
    bool ok = true;
    if (ferror(file))
        ok = wf_err_set(err, WF_ERR_USAGE, "cannot read network file '%s': %s", path,
                        wf_file_reason(errno));
    else if (*bytes > FILE_BYTES_MAX || memchr(text, '\0', *bytes))
        ok = wf_err_set(err, WF_ERR_USAGE, "'%s' is not a network file: expected YAML or JSON",
                        path);
    (void)fclose(file);
    if (!ok) {
        free(text);
        return NULL;
    }
    return text;
}

struct wf_net *wf_net_read(const char *path, struct wf_err *err)
{
    size_t bytes = 0;
    char *const text = file_text(path, &bytes, err);
    struct wf_net *const net = text ? parse(text, bytes, path, err) : NULL;
    free(text);
    return net;
}

#ifndef WF_HAVE_FYAML

static struct wf_net *parse(const char *text, size_t bytes, const char *path, struct wf_err *err)
{
    (void)text;
    (void)bytes;
    (void)wf_err_set(err, WF_ERR_USAGE,
                     "'%s': this library was built without libfyaml and reads no network files",
                     path);
    return NULL;
}

#else

/* --- texts and places --- */

const char *wf_net_reader_text(struct wf_net_reader *r, struct fy_node *node)
{
    size_t length = 0;
    const char *const text = fy_node_get_scalar(node, &length);
    char *const copy = wf_arena_take(&r->arena, length + 1);
    if (text)
        memcpy(copy, text, length);
    return copy;
}

/* Of a scalar its own; of a collection that of the first scalar in it. */
static const struct fy_mark *mark_of(struct fy_node *node)
{
    for (int depth = 0; node && depth < 8; depth++) {
        struct fy_token *const token =
            fy_node_is_scalar(node) ? fy_node_get_scalar_token(node) : NULL;
        if (token)
            return fy_token_start_mark(token);
        if (fy_node_is_mapping(node) && fy_node_mapping_get_by_index(node, 0))
            node = fy_node_pair_key(fy_node_mapping_get_by_index(node, 0));
        else
            node = fy_node_is_sequence(node) ? fy_node_sequence_get_by_index(node, 0) : NULL;
    }
    return NULL;
}

bool wf_net_reader_refuse(struct wf_net_reader *r, struct fy_node *node, const char *format, ...)
{
    char text[sizeof r->err->text];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const struct fy_mark *const mark = node ? mark_of(node) : NULL;
    const int line = mark ? mark->line + 1 : r->line, column = mark ? mark->column + 1 : r->column;
    const char *const layer = r->layer ? r->layer : "";
    const char *const of = r->layer ? "layer '" : "", *const end = r->layer ? "': " : "";
    if (!line)
        return wf_err_set(r->err, WF_ERR_USAGE, "%s: %s", r->net->path, text);
    return wf_err_set(r->err, WF_ERR_USAGE, "%s:%d:%d: %s%s%s%s", r->net->path, line, column, of,
                      layer, end, text);
}

static bool is_scalar(struct fy_node *node)
{
    return node && fy_node_is_scalar(node) && !fy_node_is_alias(node);
}

/* Of a key of the file itself, or of a layer. NULL: it is not there. */
static struct fy_node *find(struct fy_node *map, const char *key)
{
    return fy_node_mapping_lookup_by_string(map, key, strlen(key));
}

/* A single word. NULL: refused. */
static const char *word(struct wf_net_reader *r, struct fy_node *node, const char *key)
{
    if (is_scalar(node) && !fy_node_is_null(node) && fy_node_get_scalar_length(node) > 0)
        return wf_net_reader_text(r, node);
    (void)wf_net_reader_refuse(r, node, "'%s' takes one value", key);
    return NULL;
}

/* --- layers --- */

/* What all layers have, beside the attributes of their kinds. */
static const char *const layer_keys[] = { "name", "kind", "in", "like", "weights", "frozen", NULL };

enum { LAYERS_MAX = 10000 };

static int by_name(const void *a, const void *b)
{
    const struct wf_raw_layer *const x = *(const struct wf_raw_layer *const *)a;
    const struct wf_raw_layer *const y = *(const struct wf_raw_layer *const *)b;
    return strcmp(x->name, y->name);
}

static int raw_find(const struct wf_net_reader *r, const char *name)
{
    const struct wf_raw_layer wanted = { .name = name }, *const key = &wanted;
    const struct wf_raw_layer *const *const found =
        bsearch(&key, r->sorted, (size_t)r->n_raw, sizeof(struct wf_raw_layer *), by_name);
    return found ? (int)(*found - r->raw) : WF_LAYER_NONE;
}

static bool sort_names(struct wf_net_reader *r)
{
    r->sorted = wf_arena_array(&r->arena, r->n_raw, const struct wf_raw_layer *);
    for (int i = 0; i < r->n_raw; i++)
        r->sorted[i] = &r->raw[i];
    qsort(r->sorted, (size_t)r->n_raw, sizeof(struct wf_raw_layer *), by_name);
    for (int i = 1; i < r->n_raw; i++) {
        const struct wf_raw_layer *const a = r->sorted[i - 1], *const b = r->sorted[i];
        if (strcmp(a->name, b->name) != 0)
            continue;
        const struct fy_mark *const mark = mark_of(a < b ? a->node : b->node);
        return wf_net_reader_refuse(r, a < b ? b->node : a->node,
                                    "line %d has a layer '%s', too: rename one",
                                    mark ? mark->line + 1 : 0, a->name);
    }
    return true;
}

/* Does the layer read `wanted`, directly or through others? As far as the file says. */
static bool leads_to(struct wf_net_reader *r, int from, int wanted, bool *seen)
{
    if (from == wanted)
        return true;
    if (from < 0 || seen[from])
        return false;
    seen[from] = true;
    static const char *const keys[] = { "in", "like" };
    for (int k = 0; k < 2; k++) {
        struct fy_node *const list = find(r->raw[from].node, keys[k]);
        if (!list && k == 0 && leads_to(r, from - 1, wanted, seen))
            return true;
        if (is_scalar(list) && leads_to(r, raw_find(r, wf_net_reader_text(r, list)), wanted, seen))
            return true;
        void *iterator = NULL;
        for (struct fy_node *item; list && fy_node_is_sequence(list) &&
                                   (item = fy_node_sequence_iterate(list, &iterator));)
            if (is_scalar(item) &&
                leads_to(r, raw_find(r, wf_net_reader_text(r, item)), wanted, seen))
                return true;
    }
    return false;
}

static bool refuse_later(struct wf_net_reader *r, struct fy_node *node, int later)
{
    const struct fy_mark *const mark = mark_of(r->raw[later].node);
    const int line = mark ? mark->line + 1 : 0;
    const char *const name = r->raw[later].name;
    if (later == r->index)
        return wf_net_reader_refuse(r, node, "it reads itself: a cycle");
    if (leads_to(r, later, r->index, wf_arena_array(&r->arena, r->n_raw, bool)))
        return wf_net_reader_refuse(
            r, node, "it reads '%s' of line %d, which is made of it: a cycle", name, line);
    return wf_net_reader_refuse(
        r, node,
        "it reads '%s', which line %d defines later: layers run in the order "
        "of the file, move that one up",
        name, line);
}

/* The index of an earlier layer, or the image; WF_LAYER_NONE: refused. */
static int earlier(struct wf_net_reader *r, struct fy_node *node, const char *key)
{
    const char *const name = word(r, node, key);
    if (!name)
        return WF_LAYER_NONE;
    if (strcmp(name, "image") == 0)
        return WF_LAYER_IMAGE;
    const int at = raw_find(r, name);
    if (at != WF_LAYER_NONE && at < r->index)
        return at;
    if (at != WF_LAYER_NONE) {
        (void)refuse_later(r, node, at);
        return WF_LAYER_NONE;
    }
    struct wf_suggest near = { .typed = name };
    for (int i = 0; i < r->index; i++)
        wf_suggest_offer(&near, r->raw[i].name);
    (void)wf_net_reader_refuse(r, node, "'%s': there is no layer '%s'%s%s%s", key, name,
                               near.best ? ": did you mean '" : "", near.best ? near.best : "",
                               near.best ? "'?" : "");
    return WF_LAYER_NONE;
}

static bool read_inputs(struct wf_net_reader *r, struct fy_node *map, struct wf_layer *l)
{
    struct fy_node *const node = find(map, "in");
    const int count = node && fy_node_is_sequence(node) ? fy_node_sequence_item_count(node) : 1;
    int *const in = wf_arena_array(&r->arena, count, int);
    l->in = in;
    l->n_in = count;
    if (!node) {
        in[0] = r->index - 1; /* in front of the first layer is the image */
        return true;
    }
    if (!fy_node_is_sequence(node))
        return (in[0] = earlier(r, node, "in")) != WF_LAYER_NONE;
    for (int i = 0; i < count; i++) {
        in[i] = earlier(r, fy_node_sequence_get_by_index(node, i), "in");
        if (in[i] == WF_LAYER_NONE)
            return false;
    }
    return true;
}

static bool read_kind(struct wf_net_reader *r, struct fy_node *map, struct wf_layer *l)
{
    struct fy_node *const node = find(map, "kind");
    if (!node)
        return wf_net_reader_refuse(r, NULL, "'kind' is missing: docs/networks.md has all kinds");
    const char *const name = word(r, node, "kind");
    if (!name)
        return false;
    l->kind = wf_layer_kind(name);
    if (l->kind)
        return true;
    struct wf_suggest near = { .typed = name };
    for (const struct wf_layer_kind *const *k = wf_layer_kinds; *k; k++)
        wf_suggest_offer(&near, (*k)->name);
    return wf_net_reader_refuse(r, node, "there is no kind '%s'%s%s%s", name,
                                near.best ? ": did you mean '" : ": docs/networks.md has all kinds",
                                near.best ? near.best : "", near.best ? "'?" : "");
}

static bool refuse_attribute(struct wf_net_reader *r, struct fy_node *at, const char *name,
                             const struct wf_layer_kind *kind)
{
    struct wf_suggest near = { .typed = name };
    const char *const list = kind->takes ? kind->takes : "";
    for (const struct wf_layer_attr *a = wf_layer_attr_table; a->name; a++)
        if (wf_layer_word_in(list, a->name))
            wf_suggest_offer(&near, a->name);
    for (int i = 0; layer_keys[i]; i++)
        wf_suggest_offer(&near, layer_keys[i]);
    if (near.best && strcmp(near.best, name) != 0 && !wf_layer_attr(name))
        return wf_net_reader_refuse(r, at, "unknown key '%s': did you mean '%s'?", name, near.best);
    return wf_net_reader_refuse(r, at, "%s has no '%s': it takes %s%s%s", kind->name, name,
                                *list ? list : "no attributes", kind->takes_like ? " like" : "",
                                kind->weights ? " weights frozen" : "");
}

/* The keys of a layer but those that were read before. */
static bool read_attributes(struct wf_net_reader *r, struct fy_node *map, struct wf_layer *l)
{
    void *iterator = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(map, &iterator));) {
        struct fy_node *const key = fy_node_pair_key(pair), *const value = fy_node_pair_value(pair);
        if (!is_scalar(key))
            return wf_net_reader_refuse(r, key, "a key is a plain word");
        const char *const name = wf_net_reader_text(r, key);
        if (!value || fy_node_is_alias(value))
            return wf_net_reader_refuse(r, key, "'%s' has no value; aliases are not read", name);
        bool general = false;
        for (int i = 0; layer_keys[i]; i++)
            general |= strcmp(name, layer_keys[i]) == 0;
        if (general)
            continue;
        const struct wf_layer_attr *const a = wf_layer_attr(name);
        if (!a || !wf_layer_word_in(l->kind->takes, name))
            return refuse_attribute(r, key, name, l->kind);
        if (!wf_net_reader_attribute(r, a, value, l))
            return false;
    }
    for (const struct wf_layer_attr *a = wf_layer_attr_table; a->name; a++)
        if (wf_layer_word_in(l->kind->needs, a->name) && strcmp(a->name, "out") != 0 &&
            !find(map, a->name))
            return wf_net_reader_refuse(r, NULL, "%s needs '%s': %s", l->kind->name, a->name,
                                        a->what);
    return true;
}

static bool read_weights(struct wf_net_reader *r, struct fy_node *map, struct wf_layer *l)
{
    struct fy_node *const weights = find(map, "weights"), *const frozen = find(map, "frozen");
    if ((weights || frozen) && !l->kind->weights)
        return wf_net_reader_refuse(r, weights ? weights : frozen,
                                    "%s has no weights: leave '%s' out", l->kind->name,
                                    weights ? "weights" : "frozen");
    if (frozen && !wf_net_reader_bool(r, "frozen", frozen, &l->frozen))
        return false;
    if (!weights)
        return true;
    const int other = earlier(r, weights, "weights");
    if (other == WF_LAYER_NONE)
        return false;
    if (other == WF_LAYER_IMAGE || r->net->layers[other].kind != l->kind)
        return wf_net_reader_refuse(
            r, weights, "it shares the weights of '%s', which is %s: both must be %s",
            wf_net_reader_text(r, weights),
            other < 0 ? "no layer" : r->net->layers[other].kind->name, l->kind->name);
    l->weights = wf_layer_weights(&r->net->layers[other]);
    return true;
}

static bool read_layer(struct wf_net_reader *r, int index)
{
    struct fy_node *const map = r->raw[index].node, *const like = find(map, "like");
    const struct fy_mark *const mark = mark_of(map);
    r->index = index;
    r->layer = r->raw[index].name;
    r->line = mark ? mark->line + 1 : 0;
    r->column = mark ? mark->column + 1 : 0;
    struct wf_layer l = {
        .name = r->layer, .like = WF_LAYER_NONE, .line = r->line, .column = r->column
    };
    if (!read_kind(r, map, &l) || !read_inputs(r, map, &l) || !read_attributes(r, map, &l) ||
        !read_weights(r, map, &l))
        return false;
    if (like && !l.kind->takes_like)
        return refuse_attribute(r, like, "like", l.kind);
    if (like && (l.like = earlier(r, like, "like")) == WF_LAYER_NONE)
        return false;
    (void)wf_net_add(r->net, &l);
    r->layer = NULL;
    r->line = r->column = 0;
    return true;
}

/* All names first, so that a layer that is read too early can be told from one that is not there. */
static bool read_layers(struct wf_net_reader *r, struct fy_node *list)
{
    if (!list || !fy_node_is_sequence(list) || fy_node_sequence_item_count(list) == 0)
        return wf_net_reader_refuse(r, list, "'layers' is a list with a layer at least");
    if (fy_node_sequence_item_count(list) > LAYERS_MAX)
        return wf_net_reader_refuse(r, list, "more than %d layers", LAYERS_MAX);
    r->raw = wf_arena_array(&r->arena, fy_node_sequence_item_count(list), struct wf_raw_layer);
    void *iterator = NULL;
    for (struct fy_node *item; (item = fy_node_sequence_iterate(list, &iterator));) {
        if (!fy_node_is_mapping(item) || fy_node_is_alias(item))
            return wf_net_reader_refuse(r, item,
                                        "a layer is written { name: ..., kind: ..., ... }");
        struct fy_node *const name = find(item, "name");
        if (!name)
            return wf_net_reader_refuse(r, item, "this layer has no 'name'");
        const char *const text = word(r, name, "name");
        if (!text)
            return false;
        r->raw[r->n_raw].node = item;
        r->raw[r->n_raw++].name = text;
    }
    if (!sort_names(r))
        return false;
    for (int i = 0; i < r->n_raw; i++)
        if (!read_layer(r, i))
            return false;
    return true;
}

/* --- heads --- */

static bool read_head(struct wf_net_reader *r, struct fy_node *node)
{
    double weight = 1;
    struct fy_node *name = node;
    if (node && fy_node_is_mapping(node)) {
        void *iterator = NULL;
        for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(node, &iterator));) {
            struct fy_node *const key = fy_node_pair_key(pair);
            const char *const text = is_scalar(key) ? wf_net_reader_text(r, key) : "";
            if (strcmp(text, "layer") != 0 && strcmp(text, "weight") != 0)
                return wf_net_reader_refuse(r, key, "a head has 'layer' and 'weight' only");
        }
        name = find(node, "layer");
        struct fy_node *const number = find(node, "weight");
        if (number && !wf_net_reader_real(r, "weight", number, 0, 1e6, &weight))
            return false;
        if (!name)
            return wf_net_reader_refuse(r, node, "this head has no 'layer'");
    }
    r->index = r->n_raw;
    const int layer = earlier(r, name, "heads");
    if (layer == WF_LAYER_NONE)
        return false;
    if (layer == WF_LAYER_IMAGE)
        return wf_net_reader_refuse(r, name, "the image is no head");
    wf_net_add_head(r->net, layer, weight);
    return true;
}

static bool read_heads(struct wf_net_reader *r, struct fy_node *list)
{
    if (!list) {
        wf_net_add_head(r->net, r->net->n_layers - 1, 1);
        return true;
    }
    if (!fy_node_is_sequence(list))
        return read_head(r, list);
    if (fy_node_sequence_item_count(list) == 0)
        return wf_net_reader_refuse(r, NULL, "'heads' is empty: leave it out, or name a layer");
    void *iterator = NULL;
    for (struct fy_node *item; (item = fy_node_sequence_iterate(list, &iterator));)
        if (!read_head(r, item))
            return false;
    return true;
}

/* --- the file --- */

static bool read_keys(struct wf_net_reader *r, struct fy_node *root)
{
    static const char *const keys[] = { "name", "dims",   "in",    "classes",
                                        "size", "layers", "heads", NULL };
    void *iterator = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(root, &iterator));) {
        struct fy_node *const key = fy_node_pair_key(pair);
        const char *const name = is_scalar(key) ? wf_net_reader_text(r, key) : "";
        struct wf_suggest near = { .typed = name };
        bool known = false;
        for (int i = 0; keys[i]; i++) {
            known |= strcmp(keys[i], name) == 0;
            wf_suggest_offer(&near, keys[i]);
        }
        if (!known)
            return wf_net_reader_refuse(r, key, "unknown key '%s'%s%s%s", name,
                                        near.best
                                            ? ": did you mean '"
                                            : ": a network has name, dims, in, classes, size, "
                                              "layers, heads",
                                        near.best ? near.best : "", near.best ? "'?" : "");
        if (!fy_node_pair_value(pair))
            return wf_net_reader_refuse(r, key, "'%s' has no value", name);
    }
    return true;
}

static bool read_root(struct wf_net_reader *r, struct fy_node *root)
{
    struct wf_net *const net = r->net;
    if (!root || !fy_node_is_mapping(root))
        return wf_err_set(r->err, WF_ERR_USAGE,
                          "'%s' is not a network file: expected 'layers:' and other keys",
                          net->path);
    if (!read_keys(r, root))
        return false;
    struct fy_node *const name = find(root, "name"), *const dims = find(root, "dims");
    struct fy_node *const in = find(root, "in"), *const classes = find(root, "classes");
    struct fy_node *const size = find(root, "size");
    struct wf_layer trial = { 0 };
    int64_t n_dims = 2;
    if (name && !(net->name = word(r, name, "name")))
        return false;
    net->name = wf_arena_copy(&net->arena, net->name);
    if ((dims && !wf_net_reader_int(r, "dims", dims, 1, 3, &n_dims)) ||
        (in && !wf_net_reader_int(r, "in", in, 1, 1 << 20, &net->in)) ||
        (classes && !wf_net_reader_int(r, "classes", classes, 1, 1 << 20, &net->classes)))
        return false;
    net->dims = (int)n_dims;
    if (size && !wf_net_reader_attribute(r, wf_layer_attr("size"), size, &trial))
        return false;
    memcpy(net->size, trial.a.size, sizeof net->size);
    return read_layers(r, find(root, "layers")) && read_heads(r, find(root, "heads")) &&
           wf_net_check(net, r->err);
}

static bool no_document(const struct wf_net_reader *r, struct fy_diag *diag)
{
    void *iterator = NULL;
    const struct fy_diag_error *const e = fy_diag_errors_iterate(diag, &iterator);
    if (!e)
        return wf_err_set(r->err, WF_ERR_USAGE, "'%s' has no network: expected 'layers:'",
                          r->net->path);
    return wf_err_set(r->err, WF_ERR_USAGE, "%s:%d:%d: %s", r->net->path, e->line, e->column,
                      e->msg);
}

/* The last part of the path without its ending: the name of a network that gives none. */
static const char *name_of(struct wf_arena *arena, const char *path)
{
    const char *const slash = strrchr(path, '/'), *const file = slash ? slash + 1 : path;
    const char *const dot = strrchr(file, '.');
    const size_t n = dot && dot > file ? (size_t)(dot - file) : strlen(file);
    char *const name = wf_arena_take(arena, n + 2);
    for (size_t i = 0; i < n; i++) {
        const bool plain = isalnum((unsigned char)file[i]) || strchr("_.-", file[i]);
        name[i] = '_';
        if (plain)
            name[i] = file[i];
    }
    return *name ? name : "network";
}

static struct wf_net *parse(const char *text, size_t bytes, const char *path, struct wf_err *err)
{
    struct fy_diag_cfg config;
    if (wf_utf8_valid(text, bytes) != bytes) { /* libfyaml 0.7 loops for ever on some of these */
        (void)wf_err_set(err, WF_ERR_USAGE, "'%s' is not text in UTF-8: save it so", path);
        return NULL;
    }
    fy_diag_cfg_default(&config);
    config.fp = NULL;
    config.colorize = false;
    struct fy_diag *const diag = fy_diag_create(&config);
    if (!diag) {
        (void)wf_err_set(err, WF_ERR_FIT, "%s: no memory for the parser", path);
        return NULL;
    }
    fy_diag_set_collect_errors(diag, true);
    struct wf_net *const net = wf_net_new("", 2, 0);
    net->path = wf_arena_copy(&net->arena, path);
    net->name = name_of(&net->arena, path);
    struct wf_net_reader r = { .net = net, .err = err };
    const struct fy_parse_cfg parsing = { .flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG, .diag = diag };
    struct fy_document *const document = fy_document_build_from_string(&parsing, text, bytes);
    const bool ok = document ? read_root(&r, fy_document_root(document)) : no_document(&r, diag);
    fy_document_destroy(document);
    fy_diag_destroy(diag);
    wf_arena_release(&r.arena);
    if (ok)
        return net;
    wf_net_free(net);
    return NULL;
}

#endif
