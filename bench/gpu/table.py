#!/usr/bin/env python3
"""table.py BENCH.log [TORCH.log]: the times of bench/gpu/run beside PyTorch's and the targets."""
import json
import os
import sys

# In the order of both logs.
CASES = [("2D 2048x2048", 42.0), ("3D 128^3", 13.0), ("2D 512x512 x16", 43.0), ("2D 1024x1024", 13.0)]


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


ours = lines(sys.argv[1])
theirs = lines(sys.argv[2]) if len(sys.argv) > 2 else []
print(f"\n{'U-Net bf16':16} {'ms':>14} {'wanted':>7} {'PyTorch':>8} {'GiB':>6} {'planned':>8} {'PyTorch':>8}")
for i, (name, wanted) in enumerate(CASES):
    rounds = ours[i::4]
    torch = theirs[i] if i < len(theirs) else {}
    times = " ".join(f"{r['ms']:.2f}" for r in rounds) or "-"
    used = f"{rounds[-1]['peak_bytes'] / 2**30:.2f}" if rounds else "-"
    planned = f"{rounds[-1]['planned_bytes'] / 2**30:.2f}" if rounds else "-"
    print(f"{name:16} {times:>14} {wanted:7.1f} {torch.get('ms', '-'):>8} {used:>6} {planned:>8} "
          f"{torch.get('peak_GiB', '-'):>8}")
