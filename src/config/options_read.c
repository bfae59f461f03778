/* Options from YAML, read through libfyaml, which knows where each scalar stands; which type it has, the
 * table says. */
#include "config/options.h"

#include <errno.h>
#include <libfyaml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "base/utf8.h"

enum { FILE_BYTES_MAX = 8 << 20 }; /* a config with a network; more is the wrong file */

struct reader {
    struct wf_options *options;
    const char *name;
};

static const char *scalar_text(struct wf_arena *arena, struct fy_node *node)
{
    size_t length = 0;
    const char *const text = fy_node_get_scalar(node, &length);
    return text ? wf_arena_printf(arena, "%.*s", (int)length, text) : "";
}

/* "job.yaml:3:12"; a collection has no token of its own, so it gets its key's place. */
static const char *place(const struct reader *r, struct fy_node *node, const char *otherwise)
{
    struct fy_token *const token = fy_node_get_scalar_token(node);
    const struct fy_mark *const mark = token ? fy_token_start_mark(token) : NULL;
    if (!mark)
        return otherwise;
    return wf_arena_printf(&r->options->arena, "%s:%d:%d", r->name, mark->line + 1,
                           mark->column + 1);
}

static bool is_plain_scalar(struct fy_node *node)
{
    return fy_node_is_scalar(node) && !fy_node_is_alias(node);
}

static bool refuse_alias(struct fy_node *node, const char *where, struct wf_err *err)
{
    if (fy_node_is_alias(node))
        return wf_err_set(err, WF_ERR_USAGE, "%s: aliases are not read: write the value out",
                          where);
    return true;
}

static bool read_sequence(const struct reader *r, const char *key, struct fy_node *node,
                          const char *where, struct wf_err *err)
{
    struct wf_arena *const arena = &r->options->arena;
    const char *items[WF_OPTION_LIST_MAX + 1];
    int count = 0;
    void *iterator = NULL;
    for (struct fy_node *item; (item = fy_node_sequence_iterate(node, &iterator));) {
        if (!refuse_alias(item, place(r, item, where), err))
            return false;
        if (!is_plain_scalar(item) || count > WF_OPTION_LIST_MAX)
            return wf_err_set(err, WF_ERR_USAGE, "%s: '%s': expected a short list of single values",
                              where, key);
        items[count++] = scalar_text(arena, item);
    }
    return wf_options_put(r->options, key,
                          &(struct wf_option_source){ .origin = WF_FROM_FILE,
                                                      .where = where,
                                                      .items = items,
                                                      .count = count,
                                                      .is_list = true },
                          err);
}

/* A section is what some key begins with: "model" for "model.base". */
static bool is_section(const char *key)
{
    const size_t n = strlen(key);
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o))
        if (strncmp(o->key, key, n) == 0 && o->key[n] == '.')
            return true;
    return false;
}

static bool unknown_section(struct wf_arena *arena, const char *key, const char *where,
                            struct wf_err *err)
{
    struct wf_suggest near = { .typed = key };
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o))
        wf_suggest_offer(&near, wf_arena_printf(arena, "%.*s", (int)strcspn(o->key, "."), o->key));
    const char *const meant = near.best ? near.best : wf_option_suggest(key);
    return wf_err_set(err, WF_ERR_USAGE, "%s: unknown key '%s'%s%s%s", where, key,
                      meant ? ": did you mean '" : ": see 'widefield config schema'",
                      meant ? meant : "", meant ? "'?" : "");
}

static bool read_mapping(const struct reader *r, const char *prefix, struct fy_node *node,
                         struct wf_err *err);

static bool read_value(const struct reader *r, const char *key, struct fy_node *node,
                       const char *key_place, struct wf_err *err)
{
    const char *const where = place(r, node, key_place);
    if (!refuse_alias(node, where, err))
        return false;
    if (fy_node_is_mapping(node)) {
        if (!is_section(key))
            return wf_option_find(key)
                       ? wf_err_set(err, WF_ERR_USAGE, "%s: '%s' takes a value, not a mapping",
                                    key_place, key)
                       : unknown_section(&r->options->arena, key, key_place, err);
        return read_mapping(r, key, node, err);
    }
    if (is_section(key) && strcmp(key, "mesh") != 0)
        return wf_err_set(err, WF_ERR_USAGE,
                          "%s: '%s' takes keys, not a value: see 'widefield "
                          "config schema'",
                          key_place, key);
    if (fy_node_is_sequence(node))
        return read_sequence(r, key, node, key_place, err);
    if (fy_node_is_null(node) || fy_node_get_scalar_length(node) == 0)
        return wf_err_set(err, WF_ERR_USAGE, "%s: '%s' has no value", key_place, key);
    const char *const text = scalar_text(&r->options->arena, node);
    /* An unknown key is reported at its own position, a bad value at the position of the value. */
    const bool known = wf_option_find(key) || strcmp(key, "mesh") == 0;
    return wf_options_put(r->options, key,
                          &(struct wf_option_source){ .origin = WF_FROM_FILE,
                                                      .where = known ? where : key_place,
                                                      .items = &text,
                                                      .count = 1 },
                          err);
}

static bool read_mapping(const struct reader *r, const char *prefix, struct fy_node *node,
                         struct wf_err *err)
{
    struct wf_arena *const arena = &r->options->arena;
    void *iterator = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(node, &iterator));) {
        struct fy_node *const name = fy_node_pair_key(pair);
        const char *const where = place(r, name, r->name);
        if (!is_plain_scalar(name))
            return wf_err_set(err, WF_ERR_USAGE, "%s: a key is a plain word", where);
        const char *key = scalar_text(arena, name);
        if (prefix[0])
            key = wf_arena_printf(arena, "%s.%s", prefix, key);
        struct fy_node *const value = fy_node_pair_value(pair);
        if (!value)
            return wf_err_set(err, WF_ERR_USAGE, "%s: '%s' has no value", where, key);
        if (!read_value(r, key, value, where, err))
            return false;
    }
    return true;
}

/* Nothing but comments makes no document either, and no error. */
static bool no_document(const char *name, struct fy_diag *diag, struct wf_err *err)
{
    void *iterator = NULL;
    const struct fy_diag_error *const e = fy_diag_errors_iterate(diag, &iterator);
    return !e || wf_err_set(err, WF_ERR_USAGE, "%s:%d:%d: %s", name, e->line, e->column, e->msg);
}

static bool read_document(const struct reader *r, const char *text, struct fy_diag *diag,
                          struct wf_err *err)
{
    const struct fy_parse_cfg config = { .flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG, .diag = diag };
    struct fy_document *const document = fy_document_build_from_string(&config, text, strlen(text));
    if (!document)
        return no_document(r->name, diag, err);
    struct fy_node *const root = fy_document_root(document);
    bool ok = true;
    if (root && fy_node_is_mapping(root))
        ok = read_mapping(r, "", root, err);
    else if (root && !fy_node_is_null(root))
        ok = wf_err_set(err, WF_ERR_USAGE, "%s: expected 'key: value' lines", r->name);
    fy_document_destroy(document);
    return ok;
}

bool wf_options_read_text(struct wf_options *o, const char *name, const char *text,
                          struct wf_err *err)
{
    const struct reader r = { .options = o, .name = wf_arena_copy(&o->arena, name) };
    const size_t bytes = strlen(text);
    if (wf_utf8_valid(text, bytes) != bytes) /* libfyaml 0.7 loops for ever on some of these */
        return wf_err_set(err, WF_ERR_USAGE, "'%s' is not text in UTF-8: save it so", name);
    struct fy_diag_cfg config;
    fy_diag_cfg_default(&config);
    config.fp = NULL;
    config.colorize = false;
    struct fy_diag *const diag = fy_diag_create(&config);
    if (!diag)
        return wf_err_set(err, WF_ERR_FIT, "%s: no memory for the parser", name);
    fy_diag_set_collect_errors(diag, true);
    const bool ok = read_document(&r, text, diag, err);
    fy_diag_destroy(diag);
    return ok;
}

bool wf_options_read_file(struct wf_options *o, const char *path, struct wf_err *err)
{
    FILE *const file = fopen(path, "rb");
    if (!file)
        return wf_err_set(err, WF_ERR_USAGE, "cannot read config '%s': %s", path,
                          wf_file_reason(errno));
    bool ok = false;
    char *const text = wf_take(FILE_BYTES_MAX + 1);
    const size_t bytes = fread(text, 1, FILE_BYTES_MAX + 1, file);
    if (ferror(file)) {
        (void)wf_err_set(err, WF_ERR_USAGE, "cannot read config '%s': %s", path,
                         wf_file_reason(errno));
        goto out;
    }
    if (bytes > FILE_BYTES_MAX || memchr(text, '\0', bytes)) {
        (void)wf_err_set(err, WF_ERR_USAGE, "'%s' is not a config: expected YAML text", path);
        goto out;
    }
    text[bytes] = '\0';
    ok = wf_options_read_text(o, path, text, err);
out:
    free(text);
    (void)fclose(file);
    return ok;
}
