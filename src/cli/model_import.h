/* model import: a network file and weights of an ONNX file. */
#pragma once

#include "cli/cli.h"

[[nodiscard]] bool wf_cli_model_import(struct wf_cli *cli, struct wf_err *err);
