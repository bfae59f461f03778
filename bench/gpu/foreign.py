"""Time of a training step of a network that came from elsewhere, on a GPU: PyTorch against Widefield in one run.

    python3 bench/gpu/foreign.py --net FOLDER/net.yaml [--widefield build/cuda/widefield] [--size 1024] [--batch 1]

The network is the U-Net of segmentation_models_pytorch on ResNet-34, here in plain PyTorch, so that the package is not
needed where this runs. FOLDER is what `widefield model import` makes of it (tests/interop/onnx_networks.py exports it).
bf16, Adam, cross entropy of two classes.
"""
import argparse
import json
import subprocess

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.skip = None
        if stride != 1 or inside != out:
            self.skip = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.skip(x) if self.skip else x))


class Up(nn.Module):
    def __init__(self, inside, skip, out):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside + skip, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)

    def forward(self, x, skip=None):
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = x if skip is None else torch.cat([x, skip], 1)
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class ResNet34UNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        widths, depths = (64, 128, 256, 512), (3, 4, 6, 3)
        self.layers = nn.ModuleList(
            nn.Sequential(*(Block((64, *widths)[i] if k == 0 else w, w, 2 if i and k == 0 else 1) for k in range(n)))
            for i, (w, n) in enumerate(zip(widths, depths)))
        self.ups = nn.ModuleList([Up(512, 256, 256), Up(256, 128, 128), Up(128, 64, 64), Up(64, 64, 32), Up(32, 0, 16)])
        self.head = nn.Conv2d(16, classes, 3, padding=1)

    def forward(self, x):
        skips = [F.relu(self.bn1(self.conv1(x)))]
        x = F.max_pool2d(skips[0], 3, 2, 1)
        for layer in self.layers:
            x = layer(x)
            skips.append(x)
        for i, up in enumerate(self.ups):
            x = up(x, skips[3 - i] if i < 4 else None)
        return self.head(x)


def peer(size, batch, classes, compiled):
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    net = ResNet34UNet(classes).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch, size, size), device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), 1e-4, fused=True)
    run = torch.compile(net) if compiled else net

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()

    for _ in range(6):
        step()
    times = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return dict(who="pytorch" + (" compile" if compiled else ""), ms=round(sorted(times)[10], 2),
                parameters=sum(p.numel() for p in net.parameters()))


def ours(given):
    command = [given.widefield, "bench", "--device", "cuda", "--precision", "bf16", f"model.name={given.net}",
               f"data.size={given.batch},3,{given.size},{given.size}", "train.optimizer=adam", "--steps", "20", "--warmup",
               "5", "--json", "--quiet"]
    return dict(who="widefield", ms=round(json.loads(subprocess.run(command, check=True, capture_output=True,
                                                                    text=True).stdout)["ms"], 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", required=True)
    parser.add_argument("--widefield", default="build/cuda/widefield")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--classes", type=int, default=2)
    given = parser.parse_args()
    for row in (lambda: ours(given), lambda: peer(given.size, given.batch, given.classes, False),
                lambda: peer(given.size, given.batch, given.classes, True), lambda: ours(given)):
        print(json.dumps(row()), flush=True)


if __name__ == "__main__":
    main()
