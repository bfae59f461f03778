#!/usr/bin/env python3
"""torch_rounding.py: how far PyTorch's own bf16 and tf32 are from its f32, on networks and sizes of steps.py.

This shows which part of an error in steps.py is due to the number format. Errors as there: the loss, the
prediction, all gradients together. Weights are PyTorch's defaults, the image is noise, the labels are
random: most terms of a gradient cancel, the worst case for low precision.
"""
import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "parity"))
import networks

CASES = {
    "cnn1d": (lambda: networks.CNN(1, 1, 2, 8), (2, 1, 997), False),
    "cnn2d": (lambda: networks.CNN(2, 3, 2, 8), (2, 3, 61, 47), False),
    "unet": (lambda: networks.UNet(2, 3, 2, 8, 4), (2, 3, 96, 96), True),
    "unet.1d": (lambda: networks.UNet(1, 3, 2, 8, 4), (2, 3, 512), True),
    "unet.3d": (lambda: networks.UNet(3, 1, 2, 4, 2), (1, 1, 24, 20, 28), True),
}


def step(net, image, labels, device, mode):
    tf32 = mode == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    net.zero_grad()
    with torch.autocast(device, torch.bfloat16, enabled=mode == "bf16"):
        pred = net(image)
    loss = F.cross_entropy(pred.float(), labels)
    loss.backward()
    grad = torch.cat([p.grad.flatten() for p in net.parameters()])
    return {"loss": loss.detach().double(), "pred": pred.detach().double(), "grad": grad.double()}


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, (make, shape, dense) in CASES.items():
        torch.manual_seed(1)
        net = make().to(device)
        image = torch.empty(shape).uniform_(-1, 1).to(device)
        labels = torch.randint(0, 2, (shape[0], *shape[2:]) if dense else shape[:1]).to(device)
        want = step(net, image, labels, device, "f32")
        for mode in ("tf32", "bf16") if device == "cuda" else ("bf16",):
            got = step(net, image, labels, device, mode)
            errors = {k: float((got[k] - want[k]).norm() / want[k].norm()) for k in want}
            print(f"torch {name:8} {mode:5}" + "".join(f"  {k} {e:.1e}" for k, e in errors.items()), flush=True)


main()
