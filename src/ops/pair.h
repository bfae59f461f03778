/* For operators on two values of one shape: add, multiply. */
#pragma once

#include "ops/op.h"

/* The inputs must agree in shape and dtype; the output is replicated when both are. */
bool wf_pair_infer(const struct wf_node *node, struct wf_err *err);
