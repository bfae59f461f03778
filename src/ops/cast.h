/* Names of enum wf_dtype in the text form. */
#ifndef WF_OPS_CAST_H
#define WF_OPS_CAST_H

extern const char *const wf_dtype_names[]; /* ends with NULL */

#endif
