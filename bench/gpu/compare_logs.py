#!/usr/bin/env python3
"""Losses of two runs side by side: compare_logs.py GOT.jsonl WANT.jsonl TOLERANCE; and what GOT waited for input."""
import json
import sys


def steps(path):
    with open(path, encoding="utf-8") as lines:
        return {r["step"]: r for r in map(json.loads, lines) if r["event"] == "step"}


got, want, tolerance = steps(sys.argv[1]), steps(sys.argv[2]), float(sys.argv[3])
both = sorted(got.keys() & want.keys())  # of quick steps not all are in a log
if len(both) < 2 or both[0] != 1 or max(got) != max(want):
    sys.exit(f"steps {sorted(got)} and {sorted(want)}")
apart = [abs(got[s]["loss"] - want[s]["loss"]) / abs(want[s]["loss"]) for s in both]
for s, a in zip(both, apart):
    g, w = got[s], want[s]
    print(f"step {s} loss {g['loss']:.6f}  {w['loss']:.6f}  apart {a:.1e}  {g['ms']:.2f} ms, input {g['input_ms']:.2f}")
sys.exit(max(apart) > tolerance)
