#!/usr/bin/env python3
"""Layers of network files by PyTorch in double precision, for tests/test_layers.c.

    make_layers.py FILE.safetensors            writes the file
    make_layers.py --check FILE.safetensors    compares it with what PyTorch makes now

For each case the metadata has the network (`net.<case>`) and the shape of its image (`shape.<case>`); tensors are the
result (`<case>.y`), the image's gradient (`<case>.dx`) and those of weights (`<case>.grad.<weight>`). What goes in is not
stored: element i of the image, of dy and of each weight, in PyTorch's order, follows from i (see `numbers`).
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.numpy import save_file


def numbers(count, step, start, scale, offset):
    """scale * (fractional part of start + i * step) + offset: like random ones, and the same in any language."""
    at = start + np.arange(count, dtype=np.float64) * step
    return scale * (at - np.floor(at)) + offset


def image(shape):
    return numbers(int(np.prod(shape)), 0.6180339887498949, 0.1, 5.0, -2.5).reshape(shape)


def gradient(shape):
    return numbers(int(np.prod(shape)), 0.7548776662466927, 0.3, 1.0, -0.5).reshape(shape)


def weight(shape):
    flat = numbers(int(np.prod(shape)), 0.5698402909980532, 0.2, 1.0, 0.1)
    return flat.astype(np.float32).astype(np.float64).reshape(shape)  # they are f32 in a graph


SMALL, VOLUME = (2, 3, 4, 5), (1, 2, 3, 4, 5)
CASES = {}


def case(name, layers, function, shape=SMALL, **weights):
    CASES[name] = (layers, function, shape, weights)


def one(name, kind, function, shape=SMALL, attributes="", **weights):
    case(name, ["{ name: y, kind: %s%s }" % (kind, ", " + attributes if attributes else "")], function, shape, **weights)


for act, function, attributes in [
    ("relu6", lambda x: F.relu6(3 * x), ""),
    ("elu", lambda x: F.elu(x, 0.7), "slope: 0.7"),
    ("selu", F.selu, ""),
    ("hard_sigmoid", lambda x: F.hardsigmoid(3 * x), ""),
    ("hard_swish", lambda x: F.hardswish(3 * x), ""),
    ("mish", F.mish, ""),
    ("softplus", lambda x: F.softplus(x, 1.5, threshold=100), "slope: 1.5"),
    ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), ""),
    ("softsign", F.softsign, ""),
    ("log_sigmoid", F.logsigmoid, ""),
    ("abs", torch.abs, ""),
    ("exp", torch.exp, ""),
    ("clip", lambda x: torch.clamp(x, -0.8, 1.1), "lo: -0.8, hi: 1.1"),
]:
    tripled = act in ("relu6", "hard_sigmoid", "hard_swish")
    layers = ["{ name: three, kind: scale, factor: 3 }"] if tripled else []
    case(act, layers + ["{ name: y, kind: %s%s }" % (act, ", " + attributes if attributes else "")], function)
for act, function in [("log", torch.log), ("sqrt", torch.sqrt), ("reciprocal", torch.reciprocal)]:
    case(act, ["{ name: up, kind: shift, offset: 2.75 }", "{ name: y, kind: %s }" % act],
         lambda x, f=function: f(x + 2.75))

one("prelu", "prelu", lambda x, weight: F.prelu(x, weight), weight=(3,))
one("prelu_shared", "prelu", lambda x, weight: F.prelu(x, weight), attributes="shared: true", weight=(1,))
one("channel_scale", "channel_scale", lambda x, weight: x * weight.view(1, -1, 1, 1), weight=(3,))
one("channel_shift", "channel_shift", lambda x, bias: x + bias.view(1, -1, 1, 1), bias=(3,))
case("squeeze_excite", ["{ name: g, kind: global_pool }", "{ name: s, kind: sigmoid }",
                        "{ name: y, kind: multiply, in: [image, s] }"],
     lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)))
case("attention", ["{ name: m, kind: mean }", "{ name: s, kind: sigmoid }",
                   "{ name: y, kind: multiply, in: [s, image] }"],
     lambda x: torch.sigmoid(x.mean(1, keepdim=True)) * x)
case("channel_attention", ["{ name: m, kind: max, in: image }", "{ name: s, kind: tanh }",
                           "{ name: y, kind: multiply, in: [image, s] }"],
     lambda x: x * torch.tanh(x.max(1, keepdim=True)[0]))
case("both_broadcast", ["{ name: g, kind: global_pool, in: image }", "{ name: m, kind: mean, in: image }",
                        "{ name: y, kind: multiply, in: [g, m] }"],
     lambda x: x.mean((2, 3), keepdim=True) * x.mean(1, keepdim=True))
case("add_vector", ["{ name: g, kind: global_pool }", "{ name: y, kind: add, in: [image, g] }"],
     lambda x: x + x.mean((2, 3), keepdim=True))
case("subtract_map", ["{ name: m, kind: mean }", "{ name: y, kind: subtract, in: [image, m] }"],
     lambda x: x - x.mean(1, keepdim=True))
one("mean_height", "mean", lambda x: x.mean(2, keepdim=True), attributes="axis: height")
one("max_width", "max", lambda x: x.max(3, keepdim=True)[0], attributes="axis: width")
one("global_max", "global_max_pool", lambda x: F.adaptive_max_pool2d(x, 1), shape=(1, 2, 19, 17))
one("adaptive_avg", "adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), shape=(1, 2, 7, 5), attributes="size: [3, 2]")
one("adaptive_avg_3d", "adaptive_avg_pool", lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), shape=VOLUME, attributes="size: [2, 3, 4]")
one("adaptive_max", "adaptive_max_pool", lambda x: F.adaptive_max_pool2d(x, (3, 2)), shape=(1, 2, 7, 5), attributes="size: [3, 2]")
one("max_ceil", "max_pool", lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), shape=(1, 2, 6, 7), attributes="kernel: 3, stride: 2, pad: 1, ceil: true")
one("avg_ceil", "avg_pool", lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), shape=(1, 2, 6, 7), attributes="kernel: 3, stride: 2, pad: 1, ceil: true")
one("avg_pad", "avg_pool", lambda x: F.avg_pool2d(x, 3, 2, 1), attributes="kernel: 3, stride: 2, pad: 1, count_pad: true")
one("avg_ceil_pad", "avg_pool", lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), shape=(1, 2, 6, 7),
    attributes="kernel: 3, stride: 2, pad: 1, ceil: true, count_pad: true")
for mode, name, corners in [("nearest", "nearest", None), ("nearest-exact", "nearest_exact", None),
                            ("bilinear", "linear", False), ("bilinear", "linear_corners", True),
                            ("bicubic", "cubic", False), ("bicubic", "cubic_corners", True)]:
    keys = {} if corners is None else {"align_corners": corners}
    one(name + "_up", "upsample", lambda x, m=mode, k=keys: F.interpolate(x, (7, 11), mode=m, **k),
        shape=(1, 2, 4, 5), attributes="mode: %s, size: [7, 11]" % name)
    one(name + "_down", "upsample", lambda x, m=mode, k=keys: F.interpolate(x, (3, 4), mode=m, **k),
        shape=(1, 1, 7, 9), attributes="mode: %s, size: [3, 4]" % name)
    if not corners:
        one(name + "_scale", "upsample", lambda x, m=mode, k=keys: F.interpolate(x, scale_factor=(1.7, 0.6), mode=m, **k),
            shape=(1, 2, 5, 7), attributes="mode: %s, scale: [1.7, 0.6]" % name)
one("linear_3d", "upsample", lambda x: F.interpolate(x, scale_factor=2.5, mode="trilinear", align_corners=False),
    shape=(1, 1, 2, 3, 3), attributes="mode: linear, scale: 2.5")
one("pixel_shuffle", "pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), shape=(1, 8, 2, 3), attributes="factor: 2")
one("pixel_unshuffle", "pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), shape=(1, 2, 4, 6), attributes="factor: 2")
one("channel_shuffle", "channel_shuffle", lambda x: F.channel_shuffle(x, 3), shape=(1, 6, 3, 2), attributes="groups: 3")
one("pad_channels", "pad_channels", lambda x: F.pad(x, (0, 0, 0, 0, 1, 2)), attributes="from: 1, to: 2")


def run(name):
    layers, function, shape, shapes = CASES[name]
    x = torch.from_numpy(image(shape)).requires_grad_()
    weights = {key: torch.from_numpy(weight(s)).requires_grad_() for key, s in shapes.items()}
    y = function(x, **weights)
    y.backward(torch.from_numpy(gradient(tuple(y.shape))))
    tensors = {f"{name}.y": y, f"{name}.dx": x.grad}
    tensors |= {f"{name}.grad.y.{key}": w.grad for key, w in weights.items()}
    text = f"dims: {len(shape) - 2}\nin: {shape[1]}\nlayers:\n" + "".join(f"  - {line}\n" for line in layers)
    metadata = {f"net.{name}": text, f"shape.{name}": " ".join(map(str, shape))}
    return {key: t.detach().numpy().astype(np.float32) for key, t in tensors.items()}, metadata


def make():
    tensors, metadata = {}, {"cases": " ".join(CASES)}
    for name in CASES:
        more, about = run(name)
        tensors |= more
        metadata |= about
    return tensors, metadata


def check(path):
    tensors, metadata = make()
    with safe_open(path, "np") as file:
        if file.metadata() != metadata or set(file.keys()) != set(tensors):
            sys.exit(f"{path}: other cases than make_layers.py has")
        for name, fresh in tensors.items():
            if not np.allclose(file.get_tensor(name), fresh, rtol=1e-6, atol=1e-7):
                sys.exit(f"{path}: '{name}' is not what PyTorch makes")
    print(f"{path}: {len(tensors)} tensors as PyTorch makes them")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        check(sys.argv[2])
    elif len(sys.argv) == 2:
        made, about_all = make()
        save_file(made, sys.argv[1], about_all)
    else:
        sys.exit(__doc__)
