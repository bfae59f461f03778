#!/usr/bin/env python3
"""Throughput of two ranks of one thread against one rank of two threads, in turns."""

import json
import statistics
import subprocess
import sys

from common import arguments, cpu_name


def bench(args, mesh, threads):
    command = [args.widefield, "bench", "model.name=unet", f"model.base={args.base}",
               f"data.size={args.batch},3,{args.size},{args.size}", "--mesh", mesh,
               "--threads", str(threads), "--steps", str(args.steps), "--warmup", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)


def main():
    args = arguments(__doc__, base=32, size=1024, batch=1, mesh="space=2x1", rounds=3, steps=3)
    one, two = [], []
    for _ in range(args.rounds):
        one.append(bench(args, "space=1", 2)["ms"])
        two.append(bench(args, args.mesh, 1)["ms"])
    result = {"one_rank_ms": min(one), "two_ranks_ms": min(two), "throughput": min(one) / min(two),
              "median_throughput": statistics.median(one) / statistics.median(two)}
    if args.json:
        print(json.dumps(result))
        return
    print(f"unet base {args.base}, {args.batch} x {args.size} x {args.size}, {cpu_name()}")
    print(f"  one rank of two threads   {min(one):8.0f} ms  {[round(ms) for ms in one]}")
    print(f"  two ranks ({args.mesh})    {min(two):8.0f} ms  {[round(ms) for ms in two]}")
    print(f"  throughput of two ranks   {result['throughput']:8.3f} of one (best rounds), "
          f"{result['median_throughput']:.3f} (medians)")


if __name__ == "__main__":
    main()
