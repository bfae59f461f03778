/* Options from the environment: WIDEFIELD_MODEL_BASE=32. */
#include <ctype.h>
#include <string.h>

#include "base/suggest.h"
#include "config/options.h"

static const char LEAD[] = "WIDEFIELD_";

/* model.base -> WIDEFIELD_MODEL_BASE */
static const char *variable_of(struct wf_arena *arena, const char *key)
{
    char *const name = wf_arena_printf(arena, "%s%s", LEAD, key);
    for (char *c = name + sizeof LEAD - 1; *c; c++)
        *c = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
    return name;
}

/* The key of a variable: one of the table, or of a flag (WIDEFIELD_MESH, WIDEFIELD_SEED). */
static const char *key_of(struct wf_arena *arena, const char *variable, struct wf_suggest *near)
{
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o)) {
        const char *const name = variable_of(arena, o->key);
        if (strcmp(name, variable) == 0)
            return o->key;
        wf_suggest_offer(near, name);
    }
    for (const struct wf_option_flag *f = wf_option_flags; f->name; f++) {
        const char *const name = variable_of(arena, f->name);
        if (strcmp(name, variable) == 0)
            return f->key;
        wf_suggest_offer(near, name);
    }
    return NULL;
}

/* Other programs may keep variables under our name, so only what looks like a key is an error. */
static bool looks_like_key(struct wf_arena *arena, const char *variable)
{
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o)) {
        const size_t section = sizeof LEAD - 1 + strcspn(o->key, ".") + 1;
        if (strncmp(variable, variable_of(arena, o->key), section) == 0)
            return true;
    }
    return false;
}

bool wf_options_read_environment(struct wf_options *o, char *const environment[],
                                 struct wf_err *err)
{
    struct wf_arena *const arena = &o->arena;
    for (char *const *e = environment; *e; e++) {
        const char *const equals = strchr(*e, '=');
        if (!equals || strncmp(*e, LEAD, sizeof LEAD - 1) != 0)
            continue;
        const char *const variable = wf_arena_printf(arena, "%.*s", (int)(equals - *e), *e);
        struct wf_suggest near = { .typed = variable };
        const char *const key = key_of(arena, variable, &near);
        if (!key && ((near.best && near.distance <= 2) || looks_like_key(arena, variable)))
            return wf_err_set(err, WF_ERR_USAGE, "unknown variable '%s' in the environment%s%s%s",
                              variable, near.best ? ": did you mean '" : "",
                              near.best ? near.best : "", near.best ? "'?" : "");
        if (!key)
            continue;
        const char *const text = wf_arena_copy(arena, equals + 1);
        if (!wf_options_put(
                o, key,
                &(struct wf_option_source){
                    .origin = WF_FROM_ENVIRONMENT, .where = variable, .items = &text, .count = 1 },
                err))
            return false;
    }
    return true;
}
