/* Names of enum wf_dtype in the text form. */
#pragma once

extern const char *const wf_dtype_names[]; /* ends with NULL */
