/* The subcommands; each lives in cmd_NAME.c. */
#ifndef WF_CLI_COMMANDS_H
#define WF_CLI_COMMANDS_H

#include "cli/cli.h"

extern const struct wf_command wf_command_data, wf_command_train, wf_command_eval,
    wf_command_predict, wf_command_plan, wf_command_verify, wf_command_step, wf_command_model,
    wf_command_bench, wf_command_check, wf_command_report, wf_command_config;

#endif
