"""What the benchmarks share: finding the built command, and running `widefield bench`."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments(description, **defaults):
    """--widefield and --json, and an option for each of `defaults`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--widefield", default=str(ROOT / "build" / "widefield"), metavar="PATH",
                        help="the built command (build/widefield)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"({value})")
    args = parser.parse_args()
    if not os.access(args.widefield, os.X_OK):
        sys.exit(f"no command at '{args.widefield}': run 'make', or give --widefield PATH")
    return args


def widefield_bench(args, precision, steps, warmup):
    """Output of `widefield bench --json` for a U-Net's training step with Adam."""
    config = {
        "model": {"name": "unet", "dims": 2, "in": 3, "classes": 2, "base": args.base, "depth": 4},
        "data": {"size": [1, 3, args.size, args.size]},
        "train": {"optimizer": "adam", "lr": 1e-4, "loss": "ce", "precision": precision},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.yaml"
        path.write_text(json.dumps(config))
        command = [args.widefield, "bench", str(path), "--json", "--threads", str(args.threads),
                   "--steps", str(steps), "--warmup", str(warmup)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"'{' '.join(command)}' failed with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def torch_unet(base, channels_last, lr=1e-4):
    """The same network and optimiser in PyTorch; needs torch."""
    import torch

    sys.path.insert(0, str(ROOT / "tests" / "parity"))
    sys.dont_write_bytecode = True
    from networks import UNet

    torch.manual_seed(1)
    net = UNet(2, 3, 2, base, 4)
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
    return net, torch.optim.Adam(net.parameters(), lr, fused=True)


def torch_step(net, optimizer, image, target, bf16):
    import torch
    import torch.nn.functional as F

    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = F.cross_entropy(net(image), target)
    loss.backward()
    optimizer.step()
    return loss.item()


def torch_data(size, channels_last):
    import torch

    image = torch.randn(1, 3, size, size)
    if channels_last:
        image = image.to(memory_format=torch.channels_last)
    return image, torch.randint(0, 2, (1, size, size))


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"
