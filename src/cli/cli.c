#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/halt.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "config/options_settings.h"
#include "cli/text.h"
#include "comm/comm.h"
#include "train/device.h"

const struct wf_command *const wf_commands[] = {
    &wf_command_data,   &wf_command_train,
    &wf_command_eval,   &wf_command_predict,
    &wf_command_plan,   &wf_command_verify,
    &wf_command_step,   &wf_command_model,
    &wf_command_export, &wf_command_bench,
    &wf_command_check,  &wf_command_report,
    &wf_command_config, NULL,
};

const struct wf_command_flag wf_plain_flags[] = {
    { "json", NULL, "print one JSON object on stdout and nothing else there" },
    { "quiet", NULL, "only errors on stderr" },
    { "help", NULL, "print this text" },
    { "version", NULL, "print the version" },
    { .name = NULL },
};

/* --- help --- */

static void print_flag(struct wf_table *t, const char *name, const char *value, const char *help)
{
    const char *const flag =
        wf_arena_printf(t->arena, "  --%s%s%s", name, value ? " " : "", value ? value : "");
    wf_table_row(t, 2, (const char *[]){ flag, help });
}

static void print_help(struct wf_arena *arena, FILE *out)
{
    struct wf_table t = { .arena = arena };
    (void)fprintf(out, "widefield trains convolutional networks on whole images, cut over many "
                       "ranks, with the results of one\n\n"
                       "usage: widefield COMMAND [arguments]\n\ncommands:\n");
    for (const struct wf_command *const *c = wf_commands; *c; c++)
        wf_table_row(&t, 2,
                     (const char *[]){ wf_arena_printf(arena, "  %s", (*c)->name), (*c)->summary });
    wf_table_print(&t, out);
    (void)fprintf(
        out,
        "\n'widefield COMMAND --help' describes a command, 'widefield --version' prints the version\n"
        "exit status: 0 success, 1 failed, 2 wrong usage or config, 3 does not fit,\n"
        "75 stopped by a signal after writing a checkpoint\n");
}

static void print_command_help(struct wf_arena *arena, const struct wf_command *c, FILE *out)
{
    struct wf_table t = { .arena = arena };
    (void)fprintf(out, "usage: widefield %s\n\n%s\n", c->usage, c->summary);
    if (c->flags) {
        (void)fputs("\noptions:\n", out);
        for (const struct wf_command_flag *f = c->flags; f->name; f++)
            print_flag(&t, f->name, f->value, f->help);
        wf_table_print(&t, out);
    }
    (void)fputs("\ncommon options:\n", out);
    if (c->config_at || c->opens_device)
        for (const struct wf_option_flag *f = wf_option_flags; f->name; f++)
            print_flag(&t, f->name, f->value, f->help);
    for (const struct wf_command_flag *f = wf_plain_flags; f->name; f++)
        print_flag(&t, f->name, f->value, f->help);
    wf_table_print(&t, out);
    if (c->config_at)
        (void)fputs("\nA key=value argument replaces a key of the config, and so does the "
                    "environment\n(WIDEFIELD_MODEL_BASE=32); 'widefield config schema' lists the "
                    "keys.\n",
                    out);
    if (c->notes)
        (void)fprintf(out, "\n%s\n", c->notes);
}

/* --- arguments --- */

static const struct wf_command *find_command(const char *name, struct wf_err *err)
{
    struct wf_suggest near = { .typed = name };
    for (const struct wf_command *const *c = wf_commands; *c; c++) {
        if (strcmp((*c)->name, name) == 0)
            return *c;
        wf_suggest_offer(&near, (*c)->name);
    }
    (void)wf_err_set(err, WF_ERR_USAGE, "unknown command '%s'%s%s%s", name,
                     near.best ? ": did you mean '" : ": see 'widefield --help'",
                     near.best ? near.best : "", near.best ? "'?" : "");
    return NULL;
}

static bool unknown_flag(const struct wf_cli *cli, const char *name, struct wf_err *err)
{
    struct wf_suggest near = { .typed = name };
    for (const struct wf_command_flag *f = cli->command->flags; f && f->name; f++)
        wf_suggest_offer(&near, f->name);
    for (const struct wf_option_flag *f = wf_option_flags; f->name; f++)
        wf_suggest_offer(&near, f->name);
    for (const struct wf_command_flag *f = wf_plain_flags; f->name; f++)
        wf_suggest_offer(&near, f->name);
    const char *const key = near.best ? NULL : wf_option_suggest(name);
    if (key)
        return wf_err_set(err, WF_ERR_USAGE,
                          "unknown option '--%s', did you mean the key '%s=...'?: see 'widefield "
                          "config schema'",
                          name, key);
    return wf_err_set(err, WF_ERR_USAGE, "unknown option '--%s'%s%s%s: see 'widefield %s --help'",
                      name, near.best ? ", did you mean '--" : "", near.best ? near.best : "",
                      near.best ? "'?" : "", cli->command->name);
}

/* One flag with the value that may follow it; `*used` counts the arguments it took. */
struct flag {
    const char *name, *value; /* value after '=', or NULL */
    const char *next;         /* the argument behind it, or NULL */
    int used;
};

static bool take_value(struct flag *f, struct wf_err *err)
{
    if (!f->value) {
        f->value = f->next;
        f->used++;
    }
    return f->value || wf_err_set(err, WF_ERR_USAGE, "option '--%s' needs a value", f->name);
}

static bool refuse_value(const struct flag *f, struct wf_err *err)
{
    return !f->value || wf_err_set(err, WF_ERR_USAGE, "option '--%s' takes no value", f->name);
}

static bool parse_flag(struct wf_cli *cli, struct flag *f, struct wf_err *err)
{
    const struct wf_command_flag *const own = cli->command->flags;
    for (int i = 0; own && own[i].name; i++) {
        WF_BUG_ON(i >= WF_CLI_FLAGS, "'%s' has too many flags", cli->command->name);
        if (strcmp(own[i].name, f->name) != 0)
            continue;
        if (!(own[i].value ? take_value(f, err) : refuse_value(f, err)))
            return false;
        cli->flags[i] = own[i].value ? f->value : "";
        return true;
    }
    for (const struct wf_option_flag *o = wf_option_flags; o->name; o++)
        if (strcmp(o->name, f->name) == 0)
            return take_value(f, err) && wf_options_argue(cli->options, o->key, f->value, err);
    if (strcmp(f->name, "json") == 0)
        cli->json = true;
    else if (strcmp(f->name, "quiet") == 0)
        cli->quiet = true;
    else
        return unknown_flag(cli, f->name, err);
    return refuse_value(f, err);
}

/* key=value; a path with '=' in it is written with a '/'. */
static bool is_assignment(const char *argument)
{
    const size_t n = strcspn(argument, "=");
    if (argument[n] != '=' || n == 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)argument[i]) && argument[i] != '.' && argument[i] != '_')
            return false;
    return true;
}

static bool parse_plain(struct wf_cli *cli, const char *argument, struct wf_err *err)
{
    if (is_assignment(argument))
        return wf_options_assign(cli->options, argument, err);
    cli->arguments[cli->n_arguments++] = argument;
    const int config_at = cli->command->config_at;
    if (config_at > 0 && cli->n_arguments > config_at)
        return wf_err_set(err, WF_ERR_USAGE,
                          "one config at a time: got '%s' and '%s'; settings are key=value",
                          cli->arguments[0], argument);
    const bool here = cli->n_arguments == config_at;
    cli->word =
        cli->word || (here && cli->command->word && strcmp(argument, cli->command->word) == 0);
    if (here && !cli->word)
        cli->config = argument;
    return true;
}

static bool parse_arguments(struct wf_cli *cli, int argc, char **argv, struct wf_err *err)
{
    bool flags = true;
    cli->arguments = wf_arena_array(&cli->arena, argc + 1, const char *);
    for (int i = 0; i < argc; i++) {
        const char *const argument = argv[i];
        if (flags && strcmp(argument, "--") == 0) {
            flags = false;
        } else if (flags && strcmp(argument, "-q") == 0) {
            cli->quiet = true;
        } else if (flags && argument[0] == '-' && argument[1]) {
            if (argument[1] != '-')
                return unknown_flag(cli, argument + 1, err);
            const size_t n = strcspn(argument, "=");
            struct flag f = { .name =
                                  wf_arena_printf(&cli->arena, "%.*s", (int)n - 2, argument + 2),
                              .value = argument[n] ? argument + n + 1 : NULL,
                              .next = i + 1 < argc ? argv[i + 1] : NULL };
            if (!parse_flag(cli, &f, err))
                return false;
            i += f.used;
        } else if (!parse_plain(cli, argument, err)) {
            return false;
        }
    }
    return true;
}

/* --- for subcommands --- */

const char *wf_cli_flag(const struct wf_cli *cli, const char *name)
{
    const struct wf_command_flag *const own = cli->command->flags;
    for (int i = 0; own && own[i].name; i++)
        if (strcmp(own[i].name, name) == 0)
            return cli->flags[i];
    WF_BUG_ON(true, "'%s' has no flag '%s'", cli->command->name, name);
    return NULL;
}

void wf_cli_set_flag(struct wf_cli *cli, const char *name, const char *value)
{
    int i = 0;
    while (strcmp(cli->command->flags[i].name, name) != 0)
        i++;
    cli->flags[i] = value;
}

bool wf_cli_flag_int(const struct wf_cli *cli, const char *name, int64_t min, int64_t max,
                     int64_t *value, struct wf_err *err)
{
    double real = (double)*value;
    if (!wf_cli_flag_real(cli, name, (double)min, (double)max, &real, err))
        return false;
    if (real != floor(real))
        return wf_err_set(err, WF_ERR_USAGE, "option '--%s': '%s' is not an integer", name,
                          wf_cli_flag(cli, name));
    *value = (int64_t)real;
    return true;
}

bool wf_cli_flag_real(const struct wf_cli *cli, const char *name, double min, double max,
                      double *value, struct wf_err *err)
{
    const char *const text = wf_cli_flag(cli, name);
    if (!text)
        return true;
    char *end;
    const double real = strtod(text, &end);
    if (end == text || *end || !(real >= min && real <= max))
        return wf_err_set(err, WF_ERR_USAGE,
                          "option '--%s': '%s' is not a number from %.10g to %.10g", name, text,
                          min, max);
    *value = real;
    return true;
}

bool wf_cli_flag_list(const struct wf_cli *cli, const char *name,
                      const struct wf_cli_list_form *form, struct wf_cli_list *list,
                      struct wf_err *err)
{
    const char *const text = wf_cli_flag(cli, name);
    if (!text)
        return true;
    list->count = 0;
    for (const char *at = text; list->count < form->most;) {
        char *end;
        const long long value = strtoll(at, &end, 10);
        if (end == at || value < 1 || value > form->max || (*end && *end != form->between))
            break;
        list->at[list->count++] = value;
        if (!*end)
            return true;
        at = end + 1;
    }
    return wf_err_set(err, WF_ERR_USAGE, "--%s '%s': expected %s", name, text, form->expected);
}

bool wf_cli_print_json(const struct wf_cli *cli, struct cJSON *json, struct wf_err *err)
{
    if (!cli->launch.is_root) {
        cJSON_Delete(json);
        return true;
    }
    char *const text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    if (!text)
        return wf_err_set(err, WF_ERR_FIT, "no memory to print JSON");
    char *const shown = wf_utf8_json(text);
    cJSON_free(text);
    (void)puts(shown);
    free(shown);
    return true;
}

struct wf_job *wf_cli_job(const struct wf_cli *cli, const struct wf_job_files *files,
                          struct wf_err *err)
{
    struct wf_settings s;
    const bool ok = wf_options_settings(cli->options, &s, err);
    return wf_launch_agree(&cli->launch, ok, err) ? wf_job_new(&cli->launch, &s, files, err) : NULL;
}

/* --- main --- */

/* Nobody is told that all went well when what was printed did not arrive (a full disk). */
static bool flush_stdout(struct wf_err *err)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return wf_err_set(err, WF_ERR_FAILED, "cannot write to stdout: %s", wf_file_reason(errno));
    return true;
}

/* --- under a launcher every rank has a command line, a config and an environment of its own --- */

/* What may differ: machines need not be alike. */
static bool is_local(const char *key)
{
    return strcmp(key, "run.threads") == 0 || strcmp(key, "data.threads") == 0;
}

/* A line for everything that was given, lines in an order that does not depend on what they say. */
static void write_all(const struct wf_cli *cli, struct wf_buffer *to)
{
    wf_buffer_printf(to, "%s\n", cli->command->name);
    for (size_t i = 0; i < cli->options->count; i++) {
        const struct wf_setting *const s = &cli->options->settings[i];
        if (!is_local(s->option->key))
            wf_buffer_printf(to, "%s=%s\n", s->option->key, s->is_set ? s->text : "");
    }
    const struct wf_command_flag *const own = cli->command->flags;
    for (int i = 0; own && own[i].name; i++)
        wf_buffer_printf(to, "--%s %s\n", own[i].name,
                         cli->flags[i] ? cli->flags[i] : "(not given)");
    for (int i = 0; i < cli->n_arguments; i++)
        wf_buffer_printf(to, "%s\n", cli->arguments[i]);
}

/* The first line in which they differ, to its end. */
static bool compare(const char *mine, const char *first, struct wf_err *err)
{
    for (;;) {
        const int a = (int)strcspn(mine, "\n"), b = (int)strcspn(first, "\n");
        if (a != b || strncmp(mine, first, (size_t)a) != 0)
            return wf_err_set(err, WF_ERR_USAGE,
                              "started with '%.*s', rank 0 with '%.*s': give all ranks the same "
                              "command line, config and WIDEFIELD_* environment",
                              a, mine, b, first);
        if (!mine[a] || !first[b])
            return true;
        mine += a + 1;
        first += b + 1;
    }
}

/* Collective over the world. False on every rank, with the first difference of the lowest rank that was
 * started with other arguments, keys or flags than rank 0. */
static bool same(struct wf_cli *cli, struct wf_err *err)
{
    struct wf_buffer mine = { 0 };
    write_all(cli, &mine);
    const char *const first = wf_launch_share(&cli->arena, &cli->launch, mine.data, mine.size, err);
    const bool ok = first && wf_launch_agree(&cli->launch, compare(mine.data, first, err), err);
    wf_buffer_release(&mine);
    return ok;
}

/* The first of `name` and its one-letter form among the arguments, before any "--". */
static bool wants(int argc, char **argv, const char *name, const char *letter)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], name) == 0 || (letter && strcmp(argv[i], letter) == 0))
            return true;
    return false;
}

/* 'help train' is 'train --help'. */
static const char *command_name(int argc, char **argv)
{
    return strcmp(argv[1], "help") == 0 && argc > 2 ? argv[2] : argv[1];
}

/* What needs no subcommand to run. True when it was all there was to do. */
static bool answer(struct wf_cli *cli, int argc, char **argv)
{
    const bool help = wants(argc - 1, argv + 1, "--help", "-h") || strcmp(argv[1], "help") == 0;
    const bool version = wants(argc - 1, argv + 1, "--version", NULL);
    if (!help && !version)
        return false;
    const char *const name = command_name(argc, argv);
    struct wf_err ignored = { 0 };
    const struct wf_command *const c = find_command(name, &ignored);
    const bool known = c || name[0] == '-' || strcmp(name, "help") == 0;
    if (!known)
        return false;
    if (cli->launch.is_root && version)
        (void)puts("widefield " WF_VERSION_STRING);
    else if (cli->launch.is_root && c)
        print_command_help(&cli->arena, c, stdout);
    else if (cli->launch.is_root)
        print_help(&cli->arena, stdout);
    return true;
}

/* All that needs no other rank: the limits of the watchdog are known before MPI starts. */
static bool parse(struct wf_cli *cli, int argc, char **argv, struct wf_err *err)
{
    if (argc < 2)
        return wf_err_set(err, WF_ERR_USAGE, "no command given");
    cli->command = find_command(command_name(argc, argv), err);
    const bool ok = cli->command && parse_arguments(cli, argc - 2, argv + 2, err);
    cli->log.level = cli->quiet ? WF_LOG_ERROR : WF_LOG_INFO;
    return ok && wf_options_read_environment(cli->options, environ, err) &&
           (!cli->config || wf_options_read_file(cli->options, cli->config, err));
}

/* Collective under a launcher: a command line or a config that one rank cannot read, or that differs,
 * stops all. */
static bool dispatch(struct wf_cli *cli, bool parsed, struct wf_err *err)
{
    if (!wf_launch_agree(&cli->launch, parsed, err) || (cli->launch.world && !same(cli, err)))
        return false;
    struct wf_device_warmup warmup = { 0 };
    struct wf_comm *const world = cli->launch.world;
    if (cli->command->opens_device)
        wf_device_warmup_begin(&warmup, wf_options_text(cli->options, "run.device"),
                               world ? wf_comm_local_rank(world) : 0);
    const bool ok = cli->command->run(cli, err);
    wf_device_warmup_end(&warmup);
    return flush_stdout(err) && ok;
}

int wf_cli_main(int argc, char **argv)
{
    struct wf_cli cli = { .began = wf_now(), .log.level = WF_LOG_INFO };
    cli.launch.log = &cli.log;
    struct wf_err err = { 0 }, usage = { 0 };
    (void)signal(SIGXFSZ, SIG_IGN); /* a file past the limit is an error with a name, not a death */
    cli.options = wf_options_new();
    const bool parsed = parse(&cli, argc, argv, &usage);
    const struct wf_watchdog_options watch = wf_options_comm(cli.options).watch;
    bool ok = wf_launch_begin(&cli.launch, &watch, &err);
    char name[32] = "";
    if (cli.launch.world) {
        (void)snprintf(name, sizeof name, "rank %d: ", wf_comm_rank(cli.launch.world));
        wf_halt_tell(name, cli.launch.world->vtable->end_all); /* the others wait for this rank */
    }
    if (ok && argc > 1 && answer(&cli, argc, argv)) {
        ok = flush_stdout(&err);
    } else if (ok) {
        err = usage;
        if (argc < 2 && cli.launch.is_root)
            print_help(&cli.arena, stderr);
        ok = dispatch(&cli, parsed, &err);
    }
    if (!ok && cli.launch.world && !err.is_shared)
        wf_comm_abort(cli.launch.world, &err); /* the others wait for this rank, or will */
    if (!ok && cli.launch.is_root)
        wf_log(&cli.log, WF_LOG_ERROR, "%s", err.text);
    wf_launch_end(&cli.launch);
    wf_halt_tell(NULL, NULL);
    wf_options_free(cli.options);
    wf_arena_release(&cli.arena);
    return ok ? 0 : wf_err_exit_status(err.code ? err.code : WF_ERR_FAILED);
}
