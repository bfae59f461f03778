#!/usr/bin/env python3
"""One training step of our networks by PyTorch, as files to compare ours with.

    make_golden.py FOLDER          writes FOLDER/<case>.safetensors for every case

A file holds what goes in (`weight.<name>` for parameters and running statistics, `input`, `target`)
and what comes out of one step, as `widefield step --dump` names it: `loss`, `pred`, `grad.<name>`,
`param.<name>` and `state.<name>` (running statistics) after the update. Where a case has more steps
on the same batch, `last.<name>` after all of them; where it has 0, the one step is without `param`.
The case is described in the file's metadata; tests/test_parity.c and compare.py read it from there.

All arithmetic is in double precision and rounded once at the end, so differences are ours. Weights
and data come from numpy's PCG64, keyed by the tensor's name, and do not depend on PyTorch's version.
"""

import pathlib
import sys
import zlib

import numpy as np
import torch
from safetensors.numpy import save_file

from networks import NETWORKS, loss_of, optimizer_of

# The seed is the case's own; extents that pooling does not divide are meant.
CASES = {
    "unet_1d": dict(model="unet", size=(2, 2, 61), classes=2, base=4, depth=3, loss="bce",
                    optimizer="momentum", lr=0.05, steps=3, meshes="space=2 space=3 data=2"),
    "unet_2d": dict(model="unet", size=(2, 3, 29, 37), classes=3, base=2, depth=3, loss="ce",
                    optimizer="adam", lr=1e-3, steps=3,
                    meshes="space=2x2 space=1x3 space=3x1 data=2 data=2,space=1x2"),
    "unet_2d_dice": dict(model="unet", size=(2, 1, 24, 20), classes=2, base=4, depth=2,
                         loss="ce+dice", optimizer="sgd", lr=0.1, steps=1,
                         meshes="space=2x2 space=4x1 data=2"),
    "unet_3d": dict(model="unet", size=(2, 1, 9, 14, 11), classes=2, base=4, depth=2, loss="ce",
                    optimizer="adam", lr=1e-3, steps=1, meshes="space=1x2x2 space=2x1x1 data=2"),
    # Its convolutions have a bias in front of batch norm, whose gradient is zero. Adam would divide
    # rounding errors by their own size there and move such weights by +-lr: so sgd.
    "unet3d": dict(model="unet3d", size=(2, 3, 8, 10, 13), classes=3, base=2, depth=2, loss="dice",
                   optimizer="sgd", lr=0.1, steps=1, meshes="space=1x2x2 space=2x1x2 data=2"),
    "cnn2d": dict(model="cnn2d", size=(3, 3, 29, 37), classes=4, base=4, depth=0, loss="mse",
                  optimizer="adam", lr=1e-3, steps=2, meshes="space=2x2 data=2 data=3,space=2x1"),
    "cnn1d": dict(model="cnn1d", size=(4, 2, 43), classes=3, base=4, depth=0, loss="ce",
                  optimizer="momentum", lr=0.05, steps=2, meshes="space=2 data=2 data=4"),
    # Subdomains with a remainder; biases in front of batch norm: so sgd.
    "ddunet": dict(model="ddunet", size=(2, 1, 29, 36), classes=3, base=2, depth=2, tiles=(2, 3), comm=3,
                   layers=2, kernel=3, loss="ce+dice", optimizer="sgd", lr=0.1, steps=1,
                   meshes="space=2x2 space=1x3 data=2 data=2,space=3x1"),
    "ddunet_resnet18": dict(model="ddunet_resnet18", size=(1, 3, 70, 96), classes=4, base=4, depth=0,
                            tiles=(2, 2), comm=3, layers=2, kernel=3, loss="ce", optimizer="sgd", lr=0.1,
                            steps=0, meshes="space=2x2 space=1x3"),
    # Many weights: without those after the update, which follow from the gradient. No norm keeps the
    # numbers of 15 layers of ReLU from fading: so a gain.
    "fcn8s": dict(model="fcn8s", size=(1, 2, 53, 77), classes=2, base=1, depth=0, gain=2.4, loss="ce",
                  optimizer="sgd", lr=0.1, steps=0, meshes="space=2x2 space=1x3 space=3x2"),
    "densenet121": dict(model="densenet121", size=(2, 1, 96, 71), classes=3, base=2, depth=0,
                        loss="ce", optimizer="sgd", lr=0.1, steps=0,
                        meshes="space=2x2 space=3x1 data=2,space=1x2"),
    "alexnet": dict(model="alexnet", size=(3, 1, 95, 64), classes=3, base=1, depth=0, gain=2.4, loss="ce",
                    optimizer="sgd", lr=0.1, steps=0, meshes="data=2 data=3,space=1x2 space=2x2"),
    # One of data=3's ranks has one sample more than the others.
    "alexnet_cifar": dict(model="alexnet_cifar", size=(4, 3, 32, 32), classes=10, base=3, depth=0,
                          gain=2.4, loss="ce", optimizer="momentum", lr=0.05, steps=2,
                          meshes="data=2 data=3 data=4 data=2,space=2x2 data=3,space=1x2"),
}


def uniform(case, name, shape, low, high):
    """Numbers that depend on the names only, exact in f32."""
    random = np.random.Generator(np.random.PCG64(zlib.crc32(f"{case}/{name}".encode())))
    return (low + (high - low) * random.random(shape)).astype(np.float32)


def weight(case, name, tensor, gain):
    """Kaiming-uniform for kernels, times a gain; norms and statistics away from the 1 and 0 that hide mistakes."""
    shape, last = tuple(tensor.shape), name.rsplit(".", 1)[-1]
    if last == "running_var" or (last == "weight" and tensor.dim() == 1):
        return uniform(case, name, shape, 0.5, 1.5)
    if last == "weight":
        bound = gain * float(np.prod(shape[1:])) ** -0.5
        return uniform(case, name, shape, -bound, bound)
    return uniform(case, name, shape, -0.3, 0.3)


def target_of(case, loss, pred_shape):
    if "mse" in loss:
        return uniform(case, "target", pred_shape, -1, 1)
    if "bce" in loss:
        return np.floor(uniform(case, "target", pred_shape, 0, 2)).astype(np.float32)
    shape = (pred_shape[0], *pred_shape[2:])
    return np.floor(uniform(case, "target", shape, 0, pred_shape[1])).astype(np.int32)


def as_f32(tensor):
    return tensor.detach().to(torch.float32).contiguous().numpy()


def gradients(net):
    """Zero where it is zero but for the rounding of doubles, as under a batch norm."""
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    norms = {name: p.grad.norm().item() for name, p in trained.items()}
    total = sum(n * n for n in norms.values()) ** 0.5
    return {
        f"grad.{name}": as_f32(p.grad if norms[name] > 1e-10 * total else 0 * p.grad)
        for name, p in trained.items()
    }


def make(case, spec):
    size = spec["size"]
    dims = len(size) - 2
    sub = {k: spec[k] for k in ("tiles", "comm", "layers", "kernel") if k in spec}
    net = NETWORKS[spec["model"]](dims, size[1], spec["classes"], spec["base"], spec["depth"], **sub)
    net.double()
    state = {n: t for n, t in net.state_dict().items() if not n.endswith("num_batches_tracked")}
    out = {}
    for name, tensor in state.items():
        out[f"weight.{name}"] = weight(case, name, tensor, spec.get("gain", 1))
        tensor.copy_(torch.from_numpy(out[f"weight.{name}"]))
    out["input"] = uniform(case, "input", size, -1.7, 1.7)
    x = torch.from_numpy(out["input"]).double()
    optimizer = optimizer_of(spec["optimizer"], net.parameters(), spec["lr"])
    for step in range(max(spec["steps"], 1)):
        pred = net(x)
        if step == 0:
            out["target"] = target_of(case, spec["loss"], tuple(pred.shape))
            target = torch.from_numpy(out["target"])
            target = target.long() if target.dtype == torch.int32 else target.double()
        loss = loss_of(spec["loss"], pred, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            trained = dict(net.named_parameters())
            out |= {"loss": as_f32(loss), "pred": as_f32(pred)} | gradients(net)
            for name, tensor in state.items():
                if name not in trained or spec["steps"] > 0:
                    out[f"{'param' if name in trained else 'state'}.{name}"] = as_f32(tensor)
    if spec["steps"] > 1:
        out |= {f"last.{name}": as_f32(tensor) for name, tensor in state.items()}
    text = {k: "x".join(map(str, v)) if k == "tiles" else str(v) for k, v in spec.items() if k != "size"}
    return out, text | {"dims": str(dims)}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_golden.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for case, spec in CASES.items():
        tensors, metadata = make(case, spec)
        save_file(tensors, folder / f"{case}.safetensors", metadata)


if __name__ == "__main__":
    main()
