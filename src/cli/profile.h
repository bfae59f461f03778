/* Where a step's time went: the seconds of a plan's steps, added up by operator. */
#ifndef WF_CLI_PROFILE_H
#define WF_CLI_PROFILE_H

#include <cjson/cJSON.h>

#include "exec/run.h"

enum { WF_PROFILE_MAX = 96 };

struct wf_profile_row {
    const char *name; /* an operator, "copy", "fetch" or "sum" */
    int count;
    double seconds;
};

struct wf_profile {
    int n;
    struct wf_profile_row rows[WF_PROFILE_MAX]; /* slowest first */
};

void wf_profile_fill(struct wf_profile *p, const struct wf_run *run);
void wf_profile_print(const struct wf_profile *p, struct wf_arena *arena);
void wf_profile_add_json(const struct wf_profile *p, cJSON *json); /* "by_operator": {name: ms} */

#endif
