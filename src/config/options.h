/*
 * The options: every key of the config, once, in tables (base/option.h).
 *
 * A key is a dotted path such as "model.base". Its entry says type, default, range and help; from it
 * come the reading of YAML, of `key=value` arguments and of the environment (WIDEFIELD_MODEL_BASE),
 * the error messages, `config show` and `config schema`. Adding a key is adding a row.
 *
 * A set of options holds one setting per row, with the origin it came from. A later origin replaces
 * an earlier one (default < file < environment < command line), whatever the order of the calls:
 *
 *     struct wf_options *o = wf_options_new();
 *     if (!wf_options_read_file(o, "job.yaml", &err) || !wf_options_assign(o, "model.base=32", &err))
 *         ...
 *     int64_t base = wf_options_int(o, "model.base");
 *     wf_options_free(o);
 *
 * Settings and texts belong to the set. Asking for a key that has no row is a bug, not an error.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/option.h"
#include "widefield.h"

/* All rows, each network's own behind those that all networks have. NULL: the first; NULL after the last. */
const struct wf_option *wf_option_next(const struct wf_option *before);

/* A flag that is short for a key: --seed 7 is train.seed=7. `key` "mesh" sets the whole mesh. */
struct wf_option_flag {
    const char *name, *key, *value, *help;
};
extern const struct wf_option_flag wf_option_flags[]; /* ends with a NULL name */

enum wf_origin { WF_FROM_DEFAULT, WF_FROM_FILE, WF_FROM_ENVIRONMENT, WF_FROM_COMMAND_LINE };

enum { WF_OPTION_LIST_MAX = 64 };

struct wf_setting {
    const struct wf_option *option;
    enum wf_origin origin;
    const char *where; /* "job.yaml:3:12", "WIDEFIELD_MODEL_BASE"; NULL for a default */
    bool is_set;       /* false: no default, and not given */
    const char *text;  /* in normal form */
    double real;       /* INT too, for range checks */
    int64_t integer;   /* INT, BYTES, BOOL; NAME: index in names; SUM, NAMES: bit mask of them */
    int64_t list[WF_OPTION_LIST_MAX];
    const char *const *texts; /* TEXTS: `count` of them */
    int count;
};

struct wf_net_model; /* net/net_model.h */

struct wf_options {
    struct wf_arena arena;
    struct wf_setting *settings; /* one per row, in their order */
    size_t count;
    struct wf_net_model *networks; /* that settings were made with, the newest first */
};

/* Errors name the place, the key, the value and what is allowed (WF_ERR_USAGE); `name` is what they call
 * the text. */
[[nodiscard]] bool wf_options_read_text(struct wf_options *o, const char *name, const char *text,
                                        struct wf_err *err);
/* `environment` is a NULL-ended list of NAME=value; names that are not WIDEFIELD_* are passed over. */
[[nodiscard]] bool wf_options_read_environment(struct wf_options *o, char *const environment[],
                                               struct wf_err *err);
/* A key and a value of the command line; wf_options_set() is the program's own. */
[[nodiscard]] bool wf_options_argue(struct wf_options *o, const char *key, const char *value,
                                    struct wf_err *err);
/* One `key=value` of the command line. */
[[nodiscard]] bool wf_options_assign(struct wf_options *o, const char *assignment,
                                     struct wf_err *err);

/* One value as it stands outside: a scalar (count 1, is_list false) or a list of scalars. */
struct wf_option_source {
    enum wf_origin origin;
    const char *where;
    const char *const *items;
    int count;
    bool is_list;
};
/* The common way of all readers. `key` may also be "mesh", with the whole mesh as text. */
[[nodiscard]] bool wf_options_put(struct wf_options *o, const char *key,
                                  const struct wf_option_source *source, struct wf_err *err);

const struct wf_option *wf_option_find(const char *key); /* or NULL */
/* The closest key, or NULL when none is close. */
const char *wf_option_suggest(const char *key);
/* "an integer from 1 to 3", "one of cpu, reference, cuda", ... */
const char *wf_option_allowed(struct wf_arena *arena, const struct wf_option *option);

const struct wf_setting *wf_options_get(const struct wf_options *o, const char *key);
bool wf_options_is_set(const struct wf_options *o, const char *key);
int64_t wf_options_int(const struct wf_options *o, const char *key); /* 0 when not set */
double wf_options_real(const struct wf_options *o, const char *key);
const char *wf_options_text(const struct wf_options *o, const char *key); /* NULL when not set */
/* Is the mesh given, rather than to be chosen? */
bool wf_options_mesh_given(const struct wf_options *o);

/* All settings that have a value, as YAML that reads back to them. Without `run`, those that say where
 * and how it runs (mesh, run, memory) are left out: a checkpoint is for any mesh. */
const char *wf_options_yaml(struct wf_arena *arena, const struct wf_options *o, bool with_run);

/* "default", "file job.yaml:3:12", "environment WIDEFIELD_MODEL_BASE", "command line". */
const char *wf_setting_origin(struct wf_arena *arena, const struct wf_setting *setting);
