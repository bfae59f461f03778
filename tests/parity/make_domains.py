#!/usr/bin/env python3
"""One step of domain separation networks by PyTorch, as files to compare ours with.

    make_domains.py FOLDER         writes FOLDER/<case>.safetensors for every case

Written from the description of the network and its losses alone, as a plain two-domain (or N-domain)
network: nothing here knows of meshes or labels of nodes. A file holds what goes in (`weight.<name>`,
`image0`, `image1`, ..., `target`) and what comes out: `loss`, `task`, `reconstruction`, `difference`,
`similarity` (each unweighted, summed over the domains) and `grad.<name>`. Double precision, rounded once.
tests/test_domains.c reads them.
"""
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

from make_golden import uniform

BASE, CODE, CLASSES, SIDE, BATCH = 4, 10, 5, 12, 6
WEIGHTS = dict(reconstruction=0.1, difference=0.05, similarity=0.25)
CASES = {
    "dann1": dict(targets=1, similarity="dann"),
    "dann3": dict(targets=3, similarity="dann"),
    "mmd2": dict(targets=2, similarity="mmd"),
}


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, grad):
        return -grad


def shapes(targets):
    """Names and shapes of all weights."""
    flat = SIDE // 4 * (SIDE // 4)
    out = {}

    def layer(name, *shape):
        out[f"{name}.weight"] = shape
        out[f"{name}.bias"] = shape[:1]

    def encoder(name, second):
        layer(f"{name}.conv1", BASE, 3, 5, 5)
        layer(f"{name}.conv2", second, BASE, 5, 5)
        layer(f"{name}.fc", CODE, second * flat)

    encoder("shared", BASE * 3 // 2)
    for k in range(targets + 1):
        encoder(f"private{k}", BASE * 2)
    layer("decoder.fc", 300, CODE)
    layer("decoder.conv1", 16, 3, 3, 3)
    layer("decoder.conv2", 16, 16, 3, 3)
    layer("decoder.conv3", 16, 16, 3, 3)
    layer("decoder.conv4", 3, 16, 3, 3)
    layer("classifier.fc1", CODE, CODE)
    layer("classifier.fc2", CLASSES, CODE)
    if targets >= 1:
        layer("head.fc1", 100, CODE)
        layer("head.fc2", 1 if targets == 1 else targets + 1, 100)
    return out


class Network:
    def __init__(self, weights):
        self.w = weights

    def conv(self, x, name):
        w = self.w[f"{name}.weight"]
        return F.conv2d(x, w, self.w[f"{name}.bias"], padding=w.shape[-1] // 2)

    def linear(self, x, name):
        return F.linear(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def encode(self, x, name):
        x = F.max_pool2d(F.relu(self.conv(x, f"{name}.conv1")), 2)
        x = F.max_pool2d(F.relu(self.conv(x, f"{name}.conv2")), 2)
        return F.relu(self.linear(x.flatten(1), f"{name}.fc"))

    def decode(self, code):
        x = F.relu(self.linear(code, "decoder.fc")).reshape(-1, 3, 10, 10)
        x = F.relu(self.conv(x, "decoder.conv1"))
        x = F.relu(self.conv(x, "decoder.conv2"))
        # nearest by pixel centres
        x = F.interpolate(x, size=(SIDE, SIDE), mode="nearest")
        x = F.relu(self.conv(x, "decoder.conv3"))
        return self.conv(x, "decoder.conv4")

    def classify(self, code):
        return self.linear(F.relu(self.linear(code, "classifier.fc1")), "classifier.fc2")

    def head(self, code):
        return self.linear(F.relu(self.linear(Reverse.apply(code), "head.fc1")), "head.fc2")


def si_mse(x, target):
    d = (x - target).flatten(1)
    return ((d * d).mean(1) - d.mean(1) ** 2).mean()


def difference(shared, private):
    s, p = ((c - c.mean(0)) for c in (shared, private))
    s, p = (c / torch.sqrt(torch.clamp((c * c).sum(1, keepdim=True), min=1e-12)) for c in (s, p))
    return ((s.T @ p) ** 2).mean()


def mmd(a, b):
    sigmas = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 5, 10, 15, 20, 25, 30, 35, 100, 1e3, 1e4, 1e5, 1e6]

    def mean(x, y):
        square = ((x[:, None] - y[None]) ** 2).sum(-1)
        return sum(torch.exp(-square / (2 * s)) for s in sigmas).mean()

    return mean(a, a) + mean(b, b) - 2 * mean(a, b)


def losses(net, images, target, similarity):
    shared = [net.encode(x, "shared") for x in images]
    private = [net.encode(x, f"private{k}") for k, x in enumerate(images)]
    parts = {
        "task": F.cross_entropy(net.classify(shared[0]), target),
        "reconstruction": sum(si_mse(net.decode(s + p), x) for s, p, x in zip(shared, private, images)),
        "difference": sum(difference(s, p) for s, p in zip(shared, private)),
    }
    if similarity == "mmd":
        parts["similarity"] = sum(mmd(shared[0], s) for s in shared[1:])
    else:
        heads = torch.cat([net.head(s) for s in shared])
        domain = torch.cat([torch.full((len(x),), k) for k, x in enumerate(images)])
        parts["similarity"] = (F.binary_cross_entropy_with_logits(heads[:, 0], domain.double()) if len(images) == 2
                               else F.cross_entropy(heads, domain))
    parts["loss"] = parts["task"] + sum(w * parts[k] for k, w in WEIGHTS.items())
    return parts


def run(case, targets, similarity):
    tensors = {}
    for name, shape in shapes(targets).items():
        bound = 1.5 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.1
        tensors[f"weight.{name}"] = uniform(case, name, shape, -bound, bound)
    images = [uniform(case, f"image{k}", (BATCH, 3, SIDE, SIDE), -1, 1) for k in range(targets + 1)]
    target = np.arange(BATCH, dtype=np.int32) % CLASSES
    weights = {n[len("weight."):]: torch.tensor(t, dtype=torch.float64, requires_grad=True)
               for n, t in tensors.items()}
    parts = losses(Network(weights), [torch.tensor(x, dtype=torch.float64) for x in images],
                   torch.tensor(target, dtype=torch.int64), similarity)
    parts["loss"].backward()
    for k, x in enumerate(images):
        tensors[f"image{k}"] = x
    tensors["target"] = target
    for name, value in parts.items():
        tensors[name] = np.array([value.item()], dtype=np.float32)
    for name, w in weights.items():
        if w.grad is not None:  # the discrepancy has no head
            tensors[f"grad.{name}"] = w.grad.numpy().astype(np.float32)
    return tensors


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_domains.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case, settings in CASES.items():
        meta = {k: str(v) for k, v in settings.items()} | {"base": str(BASE), "code": str(CODE), "classes": str(CLASSES)}
        save_file(run(case, **settings), folder / f"{case}.safetensors", metadata=meta)


main()
