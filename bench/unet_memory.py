#!/usr/bin/env python3
"""Memory of a U-Net training step on the CPU: PyTorch against Widefield.

PyTorch runs in a separate process (this one never imports it: a child would begin with its parent's
peak). First it trains a tiny U-Net for one step, so that code and libraries loaded by a first step are in
the baseline. Then two steps are measured, because Adam's states are allocated in the first and present in
the second.
"""

import json
import pathlib
import subprocess
import sys

from common import arguments, cpu_name, torch_data, torch_step, torch_unet, widefield_bench


def status(key):
    """Bytes from /proc/self/status: VmRSS now, VmHWM the most so far."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return 1024 * int(line.split()[1])
    raise KeyError(key)


def torch_child(base, size, threads, precision, layout):
    try:
        import torch
    except ImportError:
        sys.exit("this Python has no torch: pip install torch numpy")

    torch.set_num_threads(threads)
    last, bf16 = layout == "channels_last", precision == "bf16"
    torch_step(*torch_unet(4, last), *torch_data(32, last), bf16)
    imported = status("VmRSS")
    net, optimizer = torch_unet(base, last)
    made = status("VmRSS")
    image, target = torch_data(size, last)
    for _ in range(2):
        torch_step(net, optimizer, image, target, bf16)
    print(json.dumps({"imported": imported, "made": made, "peak": status("VmHWM"),
                      "weights": 4 * sum(p.numel() for p in net.parameters()),
                      "torch": torch.__version__}))


def torch_memory(args):
    command = [sys.executable, __file__, "torch-child", str(args.base), str(args.size),
               str(args.threads), args.precision, args.layout]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"PyTorch's step failed with {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def main():
    if sys.argv[1:2] == ["torch-child"]:
        base, size, threads = map(int, sys.argv[2:5])
        torch_child(base, size, threads, *sys.argv[5:7])
        return
    args = arguments(__doc__, base=64, size=1024, threads=2, precision="f32",
                     layout="channels_last")
    ours = widefield_bench(args, args.precision, 1, 1)
    theirs = torch_memory(args)
    # What each counts as its baseline is taken off both: code and libraries; then the weights too.
    rows = {
        "whole process": (theirs["peak"], ours["rss_bytes"]),
        "weights, gradients, Adam, activations": (theirs["peak"] - theirs["imported"],
                                                  ours["peak_bytes"]),
        "over model and optimiser before the first step": (theirs["peak"] - theirs["made"],
                                                           ours["peak_bytes"] - theirs["weights"]),
    }
    if args.json:
        table = {name: {"torch_bytes": a, "widefield_bytes": b, "ratio": a / b}
                 for name, (a, b) in rows.items()}
        print(json.dumps({"cpu": cpu_name(), "base": args.base, "size": args.size,
                          "precision": args.precision, "layout": args.layout,
                          "torch": theirs, "widefield": ours, "table": table}))
        return
    print(f"U-Net base {args.base}, {args.size} x {args.size}, batch 1, {args.precision}, training "
          f"step with Adam, CPU, {args.threads} threads")
    print(f"PyTorch {theirs['torch']}, {args.layout}; Widefield planned "
          f"{ours['planned_bytes'] / 2**20:.0f} MiB, used {ours['peak_bytes'] / 2**20:.0f} MiB")
    print("| peak memory | PyTorch MiB | Widefield MiB | PyTorch / Widefield |")
    print("|---|---|---|---|")
    for name, (a, b) in rows.items():
        print(f"| {name} | {a / 2**20:.0f} | {b / 2**20:.0f} | {a / b:.2f} |")


if __name__ == "__main__":
    main()
