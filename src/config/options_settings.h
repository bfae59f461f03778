/* Options as settings of a job: the only place that knows both. */
#pragma once

#include "config/options.h"
#include "train/settings.h"

/* Texts and the network's own options live as long as the options. */
[[nodiscard]] bool wf_options_settings(struct wf_options *o, struct wf_settings *s,
                                       struct wf_err *err);
/* Is the network one of a file or text, rather than one by name? */
bool wf_options_has_network(const struct wf_options *o);
/* Is it the network of a checkpoint's config? Refuses to go on with another. */
[[nodiscard]] bool wf_options_same_network(const struct wf_options *o, const char *checkpoint,
                                           const char *config, struct wf_err *err);
/* Puts the values that a dataset filled in (train/feed.h) back into the options, as defaults; `where` names
 * the dataset. */
[[nodiscard]] bool wf_options_take_settled(struct wf_options *o, const struct wf_settings *s,
                                           const char *where, struct wf_err *err);
/* Of the communication alone, for commands without a job. */
struct wf_comm_settings wf_options_comm(const struct wf_options *o);
