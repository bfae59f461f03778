#!/usr/bin/env python3
"""Time of a U-Net training step on the CPU: PyTorch against Widefield, in turns."""

import json
import statistics
import sys
import time

from common import arguments, cpu_name, torch_data, torch_step, torch_unet, widefield_bench

try:
    import torch
except ImportError:
    sys.exit("this Python has no torch: pip install torch numpy")


def torch_round(state, bf16, steps):
    """Median milliseconds of `steps` steps, after one that warms up."""
    times = []
    for i in range(steps + 1):
        start = time.perf_counter()
        torch_step(*state, bf16)
        if i > 0:
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def measure(args, precision):
    """Rounds of both in turns, so that other load affects both."""
    net, optimizer = torch_unet(args.base, True)
    state = (net, optimizer, *torch_data(args.size, True))
    rounds = []
    for i in range(args.rounds):
        theirs = torch_round(state, precision == "bf16", args.steps)
        ours = widefield_bench(args, precision, args.steps, 1)
        rounds.append({"torch_ms": theirs, "widefield_ms": ours["ms"]})
        print(f"{precision} round {i + 1}/{args.rounds}: torch {theirs:.0f} ms, "
              f"widefield {ours['ms']:.0f} ms", file=sys.stderr, flush=True)
    best_theirs = min(r["torch_ms"] for r in rounds)
    best_ours = min(r["widefield_ms"] for r in rounds)
    return {"precision": precision, "torch_ms": best_theirs, "widefield_ms": best_ours,
            "ratio": best_theirs / best_ours, "rounds": rounds}


def main():
    args = arguments(__doc__, base=32, size=512, threads=2, rounds=4, steps=3,
                     precisions="f32,bf16")
    torch.set_num_threads(args.threads)
    results = [measure(args, p) for p in args.precisions.split(",")]
    if args.json:
        print(json.dumps({"torch": torch.__version__, "cpu": cpu_name(), "threads": args.threads,
                          "base": args.base, "size": args.size, "results": results}))
        return
    print(f"U-Net base {args.base}, {args.size} x {args.size}, batch 1, training step with Adam, "
          f"{args.threads} threads")
    print(f"{cpu_name()}; PyTorch {torch.__version__}, channels_last; best of {args.rounds} "
          f"rounds in turns, each the median of {args.steps} steps")
    print("| precision | PyTorch ms | Widefield ms | PyTorch / Widefield |")
    print("|---|---|---|---|")
    for r in results:
        print(f"| {r['precision']} | {r['torch_ms']:.0f} | {r['widefield_ms']:.0f} "
              f"| {r['ratio']:.2f} |")


if __name__ == "__main__":
    main()
