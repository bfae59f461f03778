/* config show [CONFIG] | schema | ...: the resolved values with their origin; the table itself. */
#include <cjson/cJSON.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/docs.h"
#include "cli/text.h"

/* A value with its JSON type, for `config show --json` and the schema's defaults. */
static cJSON *value_json(const struct wf_setting *s)
{
    if (!s->is_set)
        return cJSON_CreateNull();
    switch (s->option->type) {
    case WF_OPTION_INT:
    case WF_OPTION_BYTES:
        return cJSON_CreateNumber((double)s->integer);
    case WF_OPTION_REAL:
        return cJSON_CreateNumber(s->real);
    case WF_OPTION_BOOL:
        return cJSON_CreateBool(s->integer != 0);
    case WF_OPTION_NAME:
    case WF_OPTION_SUM:
    case WF_OPTION_TEXT:
        return cJSON_CreateString(s->text);
    case WF_OPTION_INTS:
    case WF_OPTION_NAMES:
    case WF_OPTION_TEXTS:
        break;
    }
    cJSON *const list = cJSON_CreateArray();
    if (s->option->type == WF_OPTION_TEXTS) {
        for (int i = 0; i < s->count; i++)
            cJSON_AddItemToArray(list, cJSON_CreateString(s->texts[i]));
    } else if (s->option->type == WF_OPTION_INTS) {
        for (int i = 0; i < s->count; i++)
            cJSON_AddItemToArray(list, cJSON_CreateNumber((double)s->list[i]));
    } else {
        for (int i = 0; s->option->names[i]; i++)
            if (s->integer & (INT64_C(1) << i))
                cJSON_AddItemToArray(list, cJSON_CreateString(s->option->names[i]));
    }
    return list;
}

static bool show_json(struct wf_cli *cli, struct wf_err *err)
{
    cJSON *const all = cJSON_CreateObject();
    for (size_t i = 0; i < cli->options->count; i++) {
        const struct wf_setting *const s = &cli->options->settings[i];
        cJSON *const one = cJSON_AddObjectToObject(all, s->option->key);
        cJSON_AddItemToObject(one, "value", value_json(s));
        cJSON_AddStringToObject(one, "origin", wf_setting_origin(&cli->arena, s));
    }
    return wf_cli_print_json(cli, all, err);
}

static bool show(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->json)
        return show_json(cli, err);
    if (!cli->launch.is_root)
        return true;
    struct wf_table t = { .arena = &cli->arena };
    wf_table_row(&t, 3, (const char *[]){ "key", "value", "origin" });
    for (size_t i = 0; i < cli->options->count; i++) {
        const struct wf_setting *const s = &cli->options->settings[i];
        const char *const value =
            s->is_set ? s->text : wf_arena_printf(&cli->arena, "(%s)", s->option->unset);
        wf_table_row(&t, 3,
                     (const char *[]){ s->option->key, value, wf_setting_origin(&cli->arena, s) });
    }
    wf_table_print(&t, stdout);
    return true;
}

/* --- schema --- */

static void add_names(cJSON *to, const char *const *names)
{
    cJSON *const list = cJSON_AddArrayToObject(to, "enum");
    for (int i = 0; names[i]; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(names[i]));
}

static void add_range(cJSON *to, const struct wf_option *o)
{
    cJSON_AddNumberToObject(to, "minimum", o->min);
    cJSON_AddNumberToObject(to, "maximum", o->max);
}

/* "^(ce|bce)(\\+(ce|bce))*$" */
static const char *sum_pattern(struct wf_arena *arena, const char *const *names)
{
    const char *any = names[0];
    for (int i = 1; names[i]; i++)
        any = wf_arena_printf(arena, "%s|%s", any, names[i]);
    return wf_arena_printf(arena, "^(%s)(\\+(%s))*$", any, any);
}

static void add_items(struct wf_arena *arena, cJSON *to, const struct wf_option *o);

static void add_type(struct wf_arena *arena, cJSON *to, const struct wf_option *o)
{
    switch (o->type) {
    case WF_OPTION_INT:
        cJSON_AddStringToObject(to, "type", "integer");
        add_range(to, o);
        return;
    case WF_OPTION_REAL:
        cJSON_AddStringToObject(to, "type", "number");
        add_range(to, o);
        return;
    case WF_OPTION_BOOL:
        cJSON_AddStringToObject(to, "type", "boolean");
        return;
    case WF_OPTION_BYTES:
        cJSON_AddStringToObject(to, "pattern", "^[0-9.]+ ?([KMGT](i?B)?)?B?$");
        return;
    case WF_OPTION_NAME:
        add_names(to, o->names);
        return;
    case WF_OPTION_SUM:
        cJSON_AddStringToObject(to, "type", "string");
        cJSON_AddStringToObject(to, "pattern", sum_pattern(arena, o->names));
        return;
    case WF_OPTION_TEXT:
        cJSON_AddStringToObject(to, "type", "string");
        return;
    case WF_OPTION_INTS:
    case WF_OPTION_NAMES:
    case WF_OPTION_TEXTS:
        add_items(arena, to, o);
        return;
    }
}

static void add_items(struct wf_arena *arena, cJSON *to, const struct wf_option *o)
{
    struct wf_option item = *o;
    item.type = o->type == WF_OPTION_INTS    ? WF_OPTION_INT
                : o->type == WF_OPTION_TEXTS ? WF_OPTION_TEXT
                                             : WF_OPTION_NAME;
    cJSON_AddStringToObject(to, "type", "array");
    add_type(arena, cJSON_AddObjectToObject(to, "items"), &item);
    cJSON_AddNumberToObject(to, "minItems", o->count_min);
    cJSON_AddNumberToObject(to, "maxItems", o->count_max);
}

/* The "properties" of the section that `key` lies in, made when it is new. */
static cJSON *section_of(struct wf_arena *arena, cJSON *properties, const char *key)
{
    const char *const name = wf_arena_printf(arena, "%.*s", (int)strcspn(key, "."), key);
    cJSON *const known = cJSON_GetObjectItemCaseSensitive(properties, name);
    if (known)
        return cJSON_GetObjectItemCaseSensitive(known, "properties");
    cJSON *const section = cJSON_AddObjectToObject(properties, name);
    cJSON_AddStringToObject(section, "type", "object");
    cJSON_AddFalseToObject(section, "additionalProperties");
    return cJSON_AddObjectToObject(section, "properties");
}

static bool schema_json(struct wf_cli *cli, struct wf_err *err)
{
    struct wf_options *const defaults = wf_options_new();
    cJSON *const schema = cJSON_CreateObject();
    cJSON_AddStringToObject(schema, "$schema", "https://json-schema.org/draft/2020-12/schema");
    cJSON_AddStringToObject(schema, "title", "widefield config");
    cJSON_AddStringToObject(schema, "type", "object");
    cJSON_AddFalseToObject(schema, "additionalProperties");
    cJSON *const properties = cJSON_AddObjectToObject(schema, "properties");
    for (size_t i = 0; i < defaults->count; i++) {
        const struct wf_setting *const s = &defaults->settings[i];
        const struct wf_option *const o = s->option;
        cJSON *const section = section_of(&cli->arena, properties, o->key);
        cJSON *const one = cJSON_AddObjectToObject(section, strchr(o->key, '.') + 1);
        cJSON_AddStringToObject(one, "description", o->help);
        add_type(&cli->arena, one, o);
        if (s->is_set)
            cJSON_AddItemToObject(one, "default", value_json(s));
    }
    wf_options_free(defaults);
    return wf_cli_print_json(cli, schema, err);
}

static bool schema(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments > 1)
        return wf_err_set(err, WF_ERR_USAGE, "'config schema' takes no '%s'", cli->arguments[1]);
    if (cli->json)
        return schema_json(cli, err);
    if (!cli->launch.is_root)
        return true;
    struct wf_table t = { .arena = &cli->arena };
    wf_table_row(&t, 4, (const char *[]){ "key", "default", "what", "allowed" });
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o)) {
        const char *const otherwise =
            o->fallback ? o->fallback : wf_arena_printf(&cli->arena, "(%s)", o->unset);
        wf_table_row(
            &t, 4,
            (const char *[]){ o->key, otherwise, o->help, wf_option_allowed(&cli->arena, o) });
    }
    wf_table_print(&t, stdout);
    return true;
}

static bool document(struct wf_cli *cli, const struct wf_document *d, struct wf_err *err)
{
    if (cli->n_arguments > 1 || cli->json)
        return wf_err_set(err, WF_ERR_USAGE, "'config %s' takes no '%s'", d->verb,
                          cli->json ? "--json" : cli->arguments[1]);
    if (cli->launch.is_root)
        d->print(&cli->arena, stdout);
    return true;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    const char *const verb = cli->n_arguments > 0 ? cli->arguments[0] : "";
    if (strcmp(verb, "show") == 0)
        return show(cli, err);
    if (strcmp(verb, "schema") == 0)
        return schema(cli, err);
    for (const struct wf_document *d = wf_documents; d->verb; d++)
        if (strcmp(verb, d->verb) == 0)
            return document(cli, d, err);
    return wf_err_set(
        err, WF_ERR_USAGE,
        "'config' takes 'show CONFIG', 'schema', 'docs', 'networks', 'man', 'bash', 'zsh' or "
        "'fish', got '%s'",
        verb);
}

const struct wf_command wf_command_config = {
    .name = "config",
    .summary = "print resolved values with their origin, or the schema of the config",
    .usage =
        "config show [CONFIG] [key=value ...] | config schema | config docs | config networks | "
        "config man | config bash | config zsh | config fish",
    .notes =
        "Precedence: command line, environment, file, default. 'config schema --json' prints a JSON\n"
        "schema for editors. 'docs' and 'man' print all keys and commands as Markdown and as a manual\n"
        "page, 'networks' the form of network files. 'bash', 'zsh' and 'fish' print completions: eval \"$(widefield config bash)\"",
    .config_at = 2,
    .run = run,
};
