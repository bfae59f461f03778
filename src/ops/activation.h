/* Names of enum wf_act in the text form. */
#pragma once

extern const char *const wf_act_names[]; /* ends with NULL */
