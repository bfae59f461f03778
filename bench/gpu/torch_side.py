#!/usr/bin/env python3
"""torch_side.py FILE: PyTorch's best (compile + channels_last, bf16) on the cases of bench/gpu/run.

FILE has run(dims, size, batch, base, mode, precision), which returns a dict with ms and peak_GiB.
"""
import importlib.util
import json
import sys

spec = importlib.util.spec_from_file_location("side", sys.argv[1])
side = importlib.util.module_from_spec(spec)
spec.loader.exec_module(side)
# The most important case first: each takes long to compile.
for case in (2, 2048, 1, 64), (3, 128, 1, 32), (2, 512, 16, 64), (2, 1024, 1, 64):
    print(json.dumps(side.run(*case, "cl+compile", "bf16")), flush=True)
