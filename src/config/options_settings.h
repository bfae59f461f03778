/* From options to what the library takes: the only place that knows both. */
#ifndef WF_CONFIG_OPTIONS_SETTINGS_H
#define WF_CONFIG_OPTIONS_SETTINGS_H

#include "config/options.h"
#include "train/settings.h"

/* Texts and the network's own options live as long as the options. */
[[nodiscard]] bool wf_options_settings(struct wf_options *o, struct wf_settings *s,
                                       struct wf_err *err);
/* Puts what a dataset has settled back into the options, where nobody gave another value; `where` says
 * which dataset. */
[[nodiscard]] bool wf_options_take_settled(struct wf_options *o, const struct wf_settings *s,
                                           const char *where, struct wf_err *err);
/* How ranks sum and how long they may wait, for who has no job. */
struct wf_comm_settings wf_options_comm(const struct wf_options *o);

#endif
