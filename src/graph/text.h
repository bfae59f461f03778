/* Attributes in the text form: "stride=[1,2,2] groups=2 mode=reflect". Attributes that are not
 * named keep the caller's value. Used by the graph's text form and by the operators' test cases. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct wf_op;

[[nodiscard]] bool wf_attrs_parse(const struct wf_op *op, const char *text, void *attrs,
                                  struct wf_err *err);
char *wf_attrs_print(struct wf_arena *arena, const struct wf_op *op, const void *attrs);
