#!/usr/bin/env python3
"""Losses of two runs side by side: compare_logs.py GOT.jsonl WANT.jsonl TOLERANCE; and what GOT waited for input."""
import json
import sys


def steps(path):
    with open(path, encoding="utf-8") as lines:
        return [r for r in map(json.loads, lines) if r["event"] == "step"]


got, want, tolerance = steps(sys.argv[1]), steps(sys.argv[2]), float(sys.argv[3])
if not want or len(got) != len(want):
    sys.exit(f"{len(got)} steps and {len(want)}")
apart = [abs(g["loss"] - w["loss"]) / abs(w["loss"]) for g, w in zip(got, want)]
for g, w, a in zip(got, want, apart):
    print(f"loss {g['loss']:.6f}  {w['loss']:.6f}  apart {a:.1e}  {g['ms']:.2f} ms, input {g['input_ms']:.2f}")
sys.exit(max(apart) > tolerance)
