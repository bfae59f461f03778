#!/usr/bin/env python3
"""compare.py GOT WANT TOLERANCE LABEL: the worst relative error (2-norm) of two dumps of 'widefield step'.

A gradient whose norm is nothing beside the largest one of its kind (a bias in front of a norm) is held
against that one.
"""
import json
import struct
import sys

import numpy as np


def read(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        lo, hi = about["data_offsets"]
        tensors[name] = np.frombuffer(data[lo:hi], dtype=np.float32).astype(np.float64)
    return tensors


got, want = read(sys.argv[1]), read(sys.argv[2])
tolerance, label = float(sys.argv[3]), sys.argv[4]
if got.keys() != want.keys():
    sys.exit(f"{label}: not the same tensors")
largest = {}
for name, tensor in want.items():
    kind = name.split(".")[0]
    largest[kind] = max(largest.get(kind, 0.0), float(np.linalg.norm(tensor)))
worst, where = 0.0, ""
for name in want:
    scale = max(float(np.linalg.norm(want[name])), 1e-3 * largest[name.split(".")[0]], 1e-30)
    error = float(np.linalg.norm(got[name] - want[name])) / scale
    if not error <= worst:
        worst, where = error, name
print(f"{worst:.2e}  {'ok' if worst <= tolerance else 'TOO FAR'} ({tolerance:g})  {label}  {where}")
sys.exit(0 if worst <= tolerance else 1)
