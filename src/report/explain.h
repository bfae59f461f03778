/* A rank's steps as text, one per line, for people: widefield plan --explain. */
#pragma once

#include "plan/plan.h"

char *wf_plan_explain(struct wf_arena *arena, const struct wf_plan *plan);
