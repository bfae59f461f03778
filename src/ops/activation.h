/* Names of enum wf_act in the text form. */
#ifndef WF_OPS_ACTIVATION_H
#define WF_OPS_ACTIVATION_H

extern const char *const wf_act_names[]; /* ends with NULL */

#endif
