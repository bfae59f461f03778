/* report RUN: (re)writes the report and the event file of a run folder. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/text.h"
#include "report/report.h"

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments != 1)
        return wf_err_set(err, WF_ERR_USAGE, "'report' takes one run folder, got %d arguments",
                          cli->n_arguments);
    if (!cli->launch.is_root) /* one rank writes */
        return true;
    const char *const folder = cli->arguments[0];
    if (!wf_report_write(folder, err))
        return false;
    const bool ends = folder[0] && folder[strlen(folder) - 1] == '/';
    const char *const path =
        wf_arena_printf(&cli->arena, "%s%sreport.html", folder, ends ? "" : "/");
    if (cli->json) {
        cJSON *const json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "report", path);
        return wf_cli_print_json(cli, json, err);
    }
    (void)puts(wf_text_shown(&cli->arena, path));
    return true;
}

const struct wf_command wf_command_report = {
    .name = "report",
    .summary = "write the report of a run, finished or not, and print its path",
    .usage = "report RUN",
    .notes =
        "RUN is a folder written by 'train'. The report is one self-contained HTML file, report.html.\n"
        "The event file beside it is for TensorBoard.",
    .run = run,
};
