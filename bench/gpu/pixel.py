#!/usr/bin/env python3
"""pixel.py SIDE LABEL: one line from 'widefield bench --json' on stdin: time, time per pixel, bytes.

Fails if planned and allocated bytes differ.
"""
import json
import sys

side, label = int(sys.argv[1]), sys.argv[2]
run = json.load(sys.stdin)
planned, taken = int(run["planned_bytes"]), int(run["peak_bytes"])
print(f"{side} {label}: {run['ms']:.1f} ms, {1e6 * run['ms'] / side**2:.3f} ns a pixel,"
      f" planned {planned}, allocated {taken}")
sys.exit(planned != taken)
