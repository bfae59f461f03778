/*
 * The command: subcommands in a table, one file each (cmd_NAME.c).
 *
 * wf_cli_main() reads the arguments by the tables (common flags and keys: options.h; flags of one
 * subcommand: its entry here), then hands a `struct wf_cli` to the subcommand. Data goes to stdout,
 * messages to stderr, and under a launcher only rank 0 says either.
 *
 *     const struct wf_command wf_command_check = {
 *         .name = "check", .summary = "what this machine has", .usage = "check", .run = run,
 *     };
 */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "config/options.h"
#include "train/job.h"

struct cJSON;
struct wf_cli;

struct wf_command_flag {
    const char *name, *value, *help; /* value NULL: a switch */
};

struct wf_command {
    const char *name, *summary, *usage;
    const char *notes;                   /* more for --help, or NULL */
    const struct wf_command_flag *flags; /* ends with a NULL name; or NULL */
    int config_at;     /* which argument without '=' is the config file, from 1; 0: none */
    const char *word;  /* what may stand there instead, for a task of its own; or NULL */
    bool opens_device; /* it is made ready while the command reads its files */
    bool (*run)(struct wf_cli *cli, struct wf_err *err);
};

enum { WF_CLI_FLAGS = 16 };

struct wf_cli {
    struct wf_arena arena;
    const struct wf_command *command;
    struct wf_options *options;
    const char *config; /* the config file, or NULL */
    bool word;          /* the command's word stood in its place */
    const char **arguments;
    int n_arguments;
    const char *flags[WF_CLI_FLAGS]; /* by the order of command->flags; NULL: not given */
    double began;                    /* when, of the clock (base/clock.h) */
    bool json, quiet;
    bool mute; /* results are read from files: nothing goes to stdout */
    struct wf_log log;
    struct wf_launch launch;
};

int wf_cli_main(int argc, char **argv);

/* The flag's text, "" for a switch that is on, NULL when it was not given. */
const char *wf_cli_flag(const struct wf_cli *cli, const char *name);
/* For a command that runs another. */
void wf_cli_set_flag(struct wf_cli *cli, const char *name, const char *value);
/* A flag with a number; `*value` stays as it is when the flag was not given. */
[[nodiscard]] bool wf_cli_flag_int(const struct wf_cli *cli, const char *name, int64_t min,
                                   int64_t max, int64_t *value, struct wf_err *err);
[[nodiscard]] bool wf_cli_flag_real(const struct wf_cli *cli, const char *name, double min,
                                    double max, double *value, struct wf_err *err);
/* A flag with whole numbers from 1 to `max`, at most `most` of them, such as 1,2,4 or 512x512; `*list`
 * stays as it is when the flag was not given. */
enum { WF_CLI_LIST = 16 };
struct wf_cli_list {
    int64_t at[WF_CLI_LIST];
    int count;
};
struct wf_cli_list_form {
    char between;
    int most;
    int64_t max;
    const char *expected; /* for the message */
};
[[nodiscard]] bool wf_cli_flag_list(const struct wf_cli *cli, const char *name,
                                    const struct wf_cli_list_form *form, struct wf_cli_list *list,
                                    struct wf_err *err);
/* One line on stdout, by the rank that is the root. Frees `json`. */
[[nodiscard]] bool wf_cli_print_json(const struct wf_cli *cli, struct cJSON *json,
                                     struct wf_err *err);

/* Collective under a launcher. A job of the options; NULL on error, then on every rank. */
struct wf_job *wf_cli_job(const struct wf_cli *cli, const struct wf_job_files *files,
                          struct wf_err *err);

extern const struct wf_command wf_command_data, wf_command_train, wf_command_eval,
    wf_command_predict, wf_command_plan, wf_command_verify, wf_command_step, wf_command_model,
    wf_command_bench, wf_command_check, wf_command_report, wf_command_config, wf_command_export;
extern const struct wf_command *const wf_commands[]; /* ends with NULL */
/* Flags that every subcommand takes and that are no key; ends with a NULL name. */
extern const struct wf_command_flag wf_plain_flags[];
