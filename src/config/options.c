#include "config/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "net/net_model.h"
#include "plan/mesh.h"

/* --- finding --- */

const struct wf_option *wf_option_find(const char *key)
{
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o))
        if (strcmp(o->key, key) == 0)
            return o;
    return NULL;
}

const char *wf_option_suggest(const char *key)
{
    struct wf_suggest whole = { .typed = key };
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o))
        wf_suggest_offer(&whole, o->key);
    if (whole.best)
        return whole.best;
    /* "base" or "model_base" for "model.base": the section is what people leave out. */
    const char *const dot = strrchr(key, '.');
    struct wf_suggest last = { .typed = dot ? dot + 1 : key };
    const char *best = NULL;
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o)) {
        const char *const before = last.best;
        wf_suggest_offer(&last, strchr(o->key, '.') + 1);
        if (last.best != before)
            best = o->key;
    }
    return best;
}

static struct wf_setting *setting_of(const struct wf_options *o, const char *key)
{
    for (size_t i = 0; i < o->count; i++)
        if (strcmp(o->settings[i].option->key, key) == 0)
            return &o->settings[i];
    WF_BUG_ON(true, "'%s'", key);
    return NULL;
}

static bool unknown_key(const char *key, const struct wf_option_source *source, struct wf_err *err)
{
    const char *const meant = wf_option_suggest(key);
    return wf_err_set(err, WF_ERR_USAGE, "%s: unknown key '%s'%s%s%s", source->where, key,
                      meant ? ": did you mean '" : ": see 'widefield config schema'",
                      meant ? meant : "", meant ? "'?" : "");
}

/* --- what is allowed --- */

static const char *join_names(struct wf_arena *arena, const char *const *names)
{
    const char *all = names[0];
    for (int i = 1; names[i]; i++)
        all = wf_arena_printf(arena, "%s, %s", all, names[i]);
    return all;
}

static const char *range_text(struct wf_arena *arena, const char *what, const struct wf_option *o)
{
    return wf_arena_printf(arena, "%s from %.16g to %.16g", what, o->min, o->max);
}

const char *wf_option_allowed(struct wf_arena *arena, const struct wf_option *option)
{
    switch (option->type) {
    case WF_OPTION_INT:
        return range_text(arena, "an integer", option);
    case WF_OPTION_REAL:
        return range_text(arena, "a number", option);
    case WF_OPTION_BOOL:
        return "true or false";
    case WF_OPTION_BYTES:
        return "bytes with an optional unit, such as 16GiB or 500M";
    case WF_OPTION_NAME:
        return wf_arena_printf(arena, "one of %s", join_names(arena, option->names));
    case WF_OPTION_SUM:
        return wf_arena_printf(arena, "one of %s, or a sum of them such as %s+%s",
                               join_names(arena, option->names), option->names[0],
                               option->names[1]);
    case WF_OPTION_TEXT:
        return "text";
    case WF_OPTION_INTS:
        return wf_arena_printf(arena, "%d to %d integers from %.16g to %.16g", option->count_min,
                               option->count_max, option->min, option->max);
    case WF_OPTION_TEXTS:
        return wf_arena_printf(arena, "a list of %d to %d texts", option->count_min,
                               option->count_max);
    case WF_OPTION_NAMES:
        break;
    }
    return wf_arena_printf(arena, "a list of %s", join_names(arena, option->names));
}

/* --- reading one value: each returns false when the text does not mean an allowed value --- */

static bool read_int(const char *text, const struct wf_option *option, int64_t *value)
{
    char *end;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || isspace((unsigned char)text[0]))
        return false;
    *value = n;
    return (double)n >= option->min && (double)n <= option->max;
}

static bool read_real(const char *text, const struct wf_option *option, double *value)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    if (end == text || *end != '\0' || isspace((unsigned char)text[0]) || !isfinite(*value))
        return false;
    return *value >= option->min && *value <= option->max;
}

static bool read_bool(const char *text, int64_t *value)
{
    *value = strcmp(text, "true") == 0;
    return *value || strcmp(text, "false") == 0;
}

/* 500, 16G, 16GB and 16GiB all count in powers of 1024, as memory does. */
static bool read_bytes(const char *text, const struct wf_option *option, int64_t *value)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    if (end == text || !isfinite(number) || isspace((unsigned char)text[0]))
        return false;
    while (*end == ' ')
        end++;
    static const char units[] = "KMGT";
    double scale = 1;
    const char *const unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        scale = ldexp(1.0, 10 * (int)(unit - units + 1));
        end++;
        if (*end == 'i' && end[1] == 'B')
            end++;
    }
    if (*end == 'B')
        end++;
    const double bytes = number * scale;
    if (*end != '\0' || !(bytes >= option->min && bytes <= option->max))
        return false;
    *value = (int64_t)bytes;
    return true;
}

static int name_index(const char *const *names, const char *text, size_t length)
{
    for (int i = 0; names[i]; i++)
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
            return i;
    return -1;
}

static bool read_name(const char *text, size_t length, const struct wf_option *option,
                      int64_t *mask)
{
    const int i = name_index(option->names, text, length);
    if (i < 0 || (*mask & (INT64_C(1) << i)))
        return false;
    *mask |= INT64_C(1) << i;
    return true;
}

static bool read_sum(const char *text, const struct wf_option *option, int64_t *mask)
{
    for (;;) {
        const size_t length = strcspn(text, "+");
        if (!read_name(text, length, option, mask))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

static bool read_list(struct wf_setting *s, const struct wf_option_source *source)
{
    const struct wf_option *const option = s->option;
    if (source->count < option->count_min || source->count > option->count_max)
        return false;
    for (int i = 0; i < source->count; i++) {
        const char *const item = source->items[i];
        if (option->type == WF_OPTION_TEXTS  ? item[0] == '\0'
            : option->type == WF_OPTION_INTS ? !read_int(item, option, &s->list[i])
                                             : !read_name(item, strlen(item), option, &s->integer))
            return false;
    }
    s->count = source->count;
    return true;
}

static bool read_scalar(struct wf_setting *s, const char *text)
{
    const struct wf_option *const option = s->option;
    switch (option->type) {
    case WF_OPTION_INT:
        return read_int(text, option, &s->integer);
    case WF_OPTION_REAL:
        return read_real(text, option, &s->real);
    case WF_OPTION_BOOL:
        return read_bool(text, &s->integer);
    case WF_OPTION_BYTES:
        return read_bytes(text, option, &s->integer);
    case WF_OPTION_NAME:
        s->integer = name_index(option->names, text, strlen(text));
        return s->integer >= 0;
    case WF_OPTION_SUM:
        return read_sum(text, option, &s->integer);
    case WF_OPTION_TEXT:
        return text[0] != '\0' || option->may_be_empty;
    case WF_OPTION_INTS:
    case WF_OPTION_NAMES:
    case WF_OPTION_TEXTS:
        break;
    }
    return false;
}

/* --- putting --- */

static bool is_list_type(enum wf_option_type type)
{
    return type == WF_OPTION_INTS || type == WF_OPTION_NAMES || type == WF_OPTION_TEXTS;
}

static const char *source_text(struct wf_arena *arena, const struct wf_option_source *source)
{
    if (!source->is_list)
        return source->items[0];
    const char *text = "";
    for (int i = 0; i < source->count; i++)
        text = wf_arena_printf(arena, "%s%s%s", text, i ? ", " : "", source->items[i]);
    return wf_arena_printf(arena, "[%s]", text);
}

/* A scalar given for a list: "[2, 2]", "2,2" or "2x2" (names: commas only). */
static struct wf_option_source split_list(struct wf_arena *arena, const struct wf_option *option,
                                          const struct wf_option_source *scalar)
{
    const char *const separators = option->type == WF_OPTION_INTS ? "x," : ",";
    const char **const items = wf_arena_array(arena, WF_OPTION_LIST_MAX + 1, const char *);
    struct wf_option_source list = *scalar;
    list.is_list = true;
    list.items = items;
    list.count = 0;
    char *at = wf_arena_copy(arena, scalar->items[0]);
    const size_t length = strlen(at);
    if (length >= 2 && at[0] == '[' && at[length - 1] == ']') {
        at[length - 1] = '\0';
        at++;
        if (at[strspn(at, " ")] == '\0')
            return list;
    }
    while (list.count <= WF_OPTION_LIST_MAX) { /* one too many is kept: it will be refused */
        at += strspn(at, " ");
        const size_t n = strcspn(at, separators);
        const bool last = at[n] == '\0';
        at[n] = '\0';
        for (size_t end = n; end > 0 && at[end - 1] == ' '; end--)
            at[end - 1] = '\0';
        items[list.count++] = at;
        if (last)
            break;
        at += n + 1;
    }
    return list;
}

static bool put_setting(struct wf_options *o, const struct wf_option *option,
                        const struct wf_option_source *source, struct wf_err *err)
{
    struct wf_setting new = {
        .option = option, .origin = source->origin, .where = source->where, .is_set = true
    };
    struct wf_option_source list = *source;
    bool ok;
    if (is_list_type(option->type)) {
        if (!source->is_list)
            list = split_list(&o->arena, option, source);
        ok = read_list(&new, &list);
        if (ok && option->type == WF_OPTION_TEXTS) {
            const char **const texts = wf_arena_array(&o->arena, list.count, const char *);
            for (int i = 0; i < list.count; i++)
                texts[i] = wf_arena_copy(&o->arena, list.items[i]);
            new.texts = texts;
        }
    } else {
        ok = !source->is_list && read_scalar(&new, source->items[0]);
    }
    if (!ok)
        return wf_err_set(err, WF_ERR_USAGE, "%s: '%s': '%s' is not %s",
                          source->where ? source->where : "default", option->key,
                          source_text(&o->arena, source), wf_option_allowed(&o->arena, option));
    if (option->type == WF_OPTION_INT)
        new.real = (double)new.integer;
    new.text = wf_arena_copy(&o->arena, source_text(&o->arena, &list));
    struct wf_setting *const old = setting_of(o, option->key);
    if (new.origin >= old->origin)
        *old = new;
    return true;
}

static bool put_text(struct wf_options *o, const char *key, const char *text,
                     const struct wf_option_source *like, struct wf_err *err)
{
    struct wf_option_source source = *like;
    source.items = &text;
    source.count = 1;
    source.is_list = false;
    return put_setting(o, wf_option_find(key), &source, err);
}

/* "data=2,space=2x2": the whole mesh, so an axis that is not named is one. */
static bool put_mesh(struct wf_options *o, const struct wf_option_source *source,
                     struct wf_err *err)
{
    static const char *const axes[] = { "mesh.data", "mesh.domain", "mesh.pipe" };
    const bool choose = !source->is_list && strcmp(source->items[0], "auto") == 0;
    struct wf_mesh mesh = wf_mesh_one();
    if (source->is_list)
        return wf_err_set(err, WF_ERR_USAGE,
                          "%s: 'mesh': expected axes such as data=2,space=2x2, or auto",
                          source->where);
    if (!choose && !wf_mesh_parse(source->items[0], &mesh, err))
        return wf_err_wrap(err, "%s", source->where);
    bool ok = put_text(o, "mesh.auto", choose ? "true" : "false", source, err);
    for (int i = 0; i < WF_MESH_D && ok; i++)
        ok = put_text(o, axes[i], wf_arena_printf(&o->arena, "%d", mesh.at[i]), source, err);
    const int *const space = &mesh.at[WF_MESH_D];
    const int skip = space[0] > 1 ? 0 : space[1] > 1 ? 1 : 2; /* as few axes as say it */
    const char *text = wf_arena_printf(&o->arena, "%d", space[skip]);
    for (int i = skip + 1; i < 3; i++)
        text = wf_arena_printf(&o->arena, "%sx%d", text, space[i]);
    return ok && put_text(o, "mesh.space", text, source, err);
}

/* Names that configs and checkpoints of earlier versions have. */
static const char *new_name(const char *key)
{
    return strcmp(key, "comm.wire") == 0 ? "comm.precision" : key;
}

bool wf_options_put(struct wf_options *o, const char *key, const struct wf_option_source *source,
                    struct wf_err *err)
{
    if (strcmp(key, "mesh") == 0)
        return put_mesh(o, source, err);
    const struct wf_option *const option = wf_option_find(new_name(key));
    if (!option)
        return unknown_key(key, source, err);
    if (!put_setting(o, option, source, err))
        return false;
    /* Whoever names an axis does not want the mesh chosen any more. */
    if (strncmp(key, "mesh.", 5) == 0 && strcmp(key, "mesh.auto") != 0)
        return put_text(o, "mesh.auto", "false", source, err);
    return true;
}

static bool set(struct wf_options *o, const char *key, const char *value, const char *where,
                struct wf_err *err)
{
    return wf_options_put(
        o, key,
        &(struct wf_option_source){
            .origin = WF_FROM_COMMAND_LINE, .where = where, .items = &value, .count = 1 },
        err);
}

bool wf_options_set(struct wf_options *o, const char *key, const char *value, struct wf_err *err)
{
    return set(o, key, value, "options", err);
}

bool wf_options_argue(struct wf_options *o, const char *key, const char *value, struct wf_err *err)
{
    return set(o, key, value, "command line", err);
}

bool wf_options_assign(struct wf_options *o, const char *assignment, struct wf_err *err)
{
    const char *const equals = strchr(assignment, '=');
    if (!equals)
        return wf_err_set(err, WF_ERR_USAGE, "'%s': expected key=value", assignment);
    const char *const key =
        wf_arena_printf(&o->arena, "%.*s", (int)(equals - assignment), assignment);
    return wf_options_argue(o, key, equals + 1, err);
}

/* --- the set --- */

struct wf_options *wf_options_new(void)
{
    struct wf_arena arena = { 0 };
    struct wf_options *const o = wf_arena_one(&arena, struct wf_options);
    for (const struct wf_option *row = wf_option_next(NULL); row; row = wf_option_next(row))
        o->count++;
    o->settings = wf_arena_array(&arena, o->count, struct wf_setting);
    o->arena = arena;
    size_t i = 0;
    for (const struct wf_option *option = wf_option_next(NULL); option;
         option = wf_option_next(option)) {
        o->settings[i++].option = option;
        struct wf_err err = { 0 };
        if (option->fallback &&
            !put_setting(o, option,
                         &(struct wf_option_source){ .items = &option->fallback, .count = 1 },
                         &err))
            WF_BUG_ON(true, "%s", err.text);
    }
    return o;
}

void wf_options_free(struct wf_options *o)
{
    if (!o)
        return;
    for (struct wf_net_model *next; o->networks; o->networks = next) {
        next = o->networks->next;
        wf_net_model_free(o->networks);
    }
    struct wf_arena arena = o->arena; /* the set itself lies in it */
    wf_arena_release(&arena);
}

const struct wf_setting *wf_options_get(const struct wf_options *o, const char *key)
{
    return setting_of(o, key);
}

bool wf_options_is_set(const struct wf_options *o, const char *key)
{
    return setting_of(o, key)->is_set;
}

int64_t wf_options_int(const struct wf_options *o, const char *key)
{
    return setting_of(o, key)->integer;
}

double wf_options_real(const struct wf_options *o, const char *key)
{
    return setting_of(o, key)->real;
}

const char *wf_options_text(const struct wf_options *o, const char *key)
{
    return setting_of(o, key)->text;
}

bool wf_options_mesh_given(const struct wf_options *o)
{
    static const char *const keys[] = { "mesh.data", "mesh.domain", "mesh.pipe", "mesh.space" };
    if (wf_options_int(o, "mesh.auto"))
        return false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (setting_of(o, keys[i])->origin != WF_FROM_DEFAULT)
            return true;
    return false;
}

const char *wf_setting_origin(struct wf_arena *arena, const struct wf_setting *setting)
{
    switch (setting->origin) {
    case WF_FROM_DEFAULT:
        break;
    case WF_FROM_FILE:
        return wf_arena_printf(arena, "file %s", setting->where);
    case WF_FROM_ENVIRONMENT:
        return wf_arena_printf(arena, "environment %s", setting->where);
    case WF_FROM_COMMAND_LINE:
        return "command line";
    }
    return "default";
}
