"""A torch.nn.Module that runs a list of layers. Its state_dict() has the names of the network's weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn

from .errors import UnsupportedError, UsageError
from .network import Network

WEIGHTS = ("conv", "conv_transpose", "linear", "batch_norm", "instance_norm", "group_norm", "layer_norm", "prelu",
           "channel_scale", "channel_shift")  # fmt: skip


class Layers(nn.Module):
    """Runs the layers of a network file in their order. Modules under dotted names hold the weights."""

    def __init__(
        self, spec: Mapping[str, Any], classes: int | None = None, shapes: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        super().__init__()
        self._dims = int(spec.get("dims", 2))
        self._layers = [dict(layer) for layer in spec["layers"]]
        self._classes = classes
        self._shapes = shapes or {}  # of weights that are known: the channels behind `flatten` are found there
        names = [layer["name"] for layer in self._layers]
        given = spec.get("heads") or [names[-1]]
        self._heads = [head["layer"] if isinstance(head, Mapping) else head for head in given]
        for i, layer in enumerate(self._layers):
            layer.setdefault("in", names[i - 1] if i else "image")
        channels = {"image": int(spec.get("in", 3))}
        for layer in self._layers:
            channels[layer["name"]] = self._declare(layer, channels)

    # --- weights ---

    def _numbers(self, layer: Mapping[str, Any], key: str, usual: Any) -> list[Any]:
        value = layer.get(key, usual)
        return list(value) if isinstance(value, (list, tuple)) else [value] * self._dims

    def _out(self, layer: Mapping[str, Any]) -> int:
        out = layer.get("out", "classes")
        if out == "classes":
            if self._classes is None:
                raise UsageError(f"layer '{layer['name']}' has as many channels as there are classes: give classes=")
            return self._classes
        return int(out)

    def _declare(self, layer: Mapping[str, Any], channels: Mapping[str, int]) -> int:
        """Makes its parameters, and says how many channels it has."""
        inputs = _inputs(layer)
        into, kind = channels[inputs[0]], layer["kind"]
        tensors: dict[str, Any] = {}
        out = into
        if kind in ("conv", "conv_transpose", "linear"):
            out = self._out(layer)
            known = self._shapes.get(f"{layer.get('weights', layer['name'])}.weight")
            into = known[1] if known is not None and kind == "linear" else into
            kernel = self._numbers(layer, "kernel", 1) if kind != "linear" else []
            groups = int(layer.get("groups", 1))
            pair = (into, out // groups) if kind == "conv_transpose" else (out, into // groups)
            tensors["weight"] = torch.empty(*pair, *kernel)
            nn.init.kaiming_uniform_(tensors["weight"], a=5**0.5)
            if layer.get("bias"):
                tensors["bias"] = torch.zeros(out)
        elif kind.endswith("_norm") and not layer.get("plain"):
            tensors = {"weight": torch.ones(into), "bias": torch.zeros(into)}
        elif kind == "prelu":
            tensors["weight"] = torch.full((1 if layer.get("shared") else into,), 0.25)
        elif kind == "channel_scale":
            tensors["weight"] = torch.full((1 if layer.get("shared") else into,), float(layer.get("factor", 1)))
        elif kind == "channel_shift":
            tensors["bias"] = torch.zeros(1 if layer.get("shared") else into)
        elif kind == "concat":
            out = sum(channels[name] for name in inputs)
        else:
            out = _channels(layer, into, channels, self._dims)
        if "weights" not in layer:
            self._register(layer, tensors)
        return out

    def _register(self, layer: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        buffers = {}
        if layer["kind"] == "batch_norm":
            count = tensors["weight"].numel() if tensors else 0
            buffers = {"running_mean": torch.zeros(count), "running_var": torch.ones(count)}
        if not tensors and not buffers:
            return
        holder: nn.Module = self
        for part in layer["name"].split("."):
            found = getattr(holder, part, None) if part in dict(holder.named_children()) else None
            if found is None:
                found = nn.Module()
                holder.add_module(part, found)
            holder = found
        for name, tensor in tensors.items():
            holder.register_parameter(name, nn.Parameter(tensor, requires_grad=not layer.get("frozen")))
        for name, tensor in buffers.items():
            holder.register_buffer(name, tensor)

    def _tensor(self, layer: Mapping[str, Any], part: str) -> Any:
        """A weight of the layer, or None."""
        holder: Any = self
        for name in layer.get("weights", layer["name"]).split("."):
            holder = getattr(holder, name, None)
            if holder is None:
                return None
        return getattr(holder, part, None)

    # --- running ---

    def forward(self, image: Any) -> Any:
        """The prediction; with further heads a list of all."""
        values = {"image": image}
        for layer in self._layers:
            run = RUN.get(layer["kind"])
            if run is None:
                raise UnsupportedError(f"layer '{layer['name']}': kind '{layer['kind']}' has no PyTorch form yet")
            inputs = [values[name] for name in _inputs(layer)]
            like = values[layer["like"]] if "like" in layer else None
            values[layer["name"]] = run(self, layer, inputs, like)
        heads = [values[name] for name in self._heads]
        return heads[0] if len(heads) == 1 else heads


def _inputs(layer: Mapping[str, Any]) -> list[str]:
    return layer["in"] if isinstance(layer["in"], list) else [layer["in"]]


def _channels(layer: Mapping[str, Any], into: int, channels: Mapping[str, int], dims: int) -> int:
    kind = layer["kind"]
    if kind == "slice" and layer.get("axis", "channels") == "channels":
        return len(range(into)[slice(layer.get("from", 0), layer.get("to"))])
    if kind in ("pixel_shuffle", "pixel_unshuffle"):
        factor = int(layer["factor"]) ** dims
        return into // factor if kind == "pixel_shuffle" else into * factor
    if kind in ("mean", "max") and layer.get("axis", "channels") == "channels":
        return 1
    if kind == "pad_channels":
        return into + int(layer.get("from", 0)) + int(layer.get("to", 0))
    if kind in ("add", "multiply", "subtract"):
        return max(channels[name] for name in _inputs(layer))
    return into


# --- what each kind does ---

Run = Callable[[Layers, Mapping[str, Any], Sequence[Any], Any], Any]


def _padded(m: Layers, layer: Mapping[str, Any], x: Any) -> tuple[Any, list[int]]:
    """Padding that PyTorch's layers do not have is added before."""
    pad = layer.get("pad", 0)
    kernel = m._numbers(layer, "kernel", 1)
    dilation = m._numbers(layer, "dilation", 1)
    if pad == "same":
        pairs = [[d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2] for k, d in zip(kernel, dilation)]
    else:
        given = list(pad) if isinstance(pad, list) else [pad] * m._dims
        pairs = [list(p) if isinstance(p, (list, tuple)) else [p, p] for p in given]
    mode = layer.get("pad_mode", "zero")
    if mode == "zero" and all(lo == hi for lo, hi in pairs):
        return x, [lo for lo, _ in pairs]
    return _pad(x, pairs, mode), [0] * m._dims


def _pad(x: Any, pairs: Sequence[Sequence[int]], mode: str) -> Any:
    flat = [n for pair in reversed(list(pairs)) for n in pair]
    return F.pad(x, flat, mode={"zero": "constant", "edge": "replicate"}.get(mode, mode))


def _as_image(m: Layers, x: Any) -> Any:
    return x if x.dim() == m._dims + 2 else x.reshape(*x.shape[:2], *[1] * m._dims)


def _conv(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], _like: Any) -> Any:
    x, pad = _padded(m, layer, _as_image(m, inputs[0]))
    run = (F.conv1d, F.conv2d, F.conv3d)[m._dims - 1]
    return run(x, m._tensor(layer, "weight"), m._tensor(layer, "bias"), m._numbers(layer, "stride", 1), pad,
               m._numbers(layer, "dilation", 1), int(layer.get("groups", 1)))  # fmt: skip


def _conv_transpose(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], like: Any) -> Any:
    run = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[m._dims - 1]
    y = run(inputs[0], m._tensor(layer, "weight"), m._tensor(layer, "bias"), m._numbers(layer, "stride", 1),
            m._numbers(layer, "pad", 0), m._numbers(layer, "output_pad", 0), int(layer.get("groups", 1)),
            m._numbers(layer, "dilation", 1))  # fmt: skip
    return y if like is None else _crop(y, like.shape[2:])


def _crop(x: Any, extents: Sequence[int]) -> Any:
    return x[(..., *[slice(0, n) for n in extents])]


def _linear(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], _like: Any) -> Any:
    return F.linear(inputs[0].flatten(1), m._tensor(layer, "weight"), m._tensor(layer, "bias"))


def _act(name: str, layer: Mapping[str, Any], x: Any) -> Any:
    if name == "leaky_relu":
        return F.leaky_relu(x, layer.get("slope", 0.01))
    if name == "elu":
        return F.elu(x, layer.get("slope", 1.0))
    if name == "softplus":
        return F.softplus(x, layer.get("slope", 1.0))
    if name == "clip":
        return torch.clamp(x, layer["lo"], layer["hi"])
    return ACTIVATIONS[name](x)


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x, "relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "gelu": F.gelu, "silu": F.silu,
    "mish": F.mish, "hard_swish": F.hardswish, "hard_sigmoid": F.hardsigmoid, "relu6": F.relu6,
    "exp": torch.exp, "abs": torch.abs, "selu": F.selu, "softsign": F.softsign, "log_sigmoid": F.logsigmoid,
    "log": torch.log, "sqrt": torch.sqrt, "reciprocal": torch.reciprocal,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}  # fmt: skip


def _norm(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], _like: Any) -> Any:
    x, kind = inputs[0], layer["kind"]
    weight, bias, eps = m._tensor(layer, "weight"), m._tensor(layer, "bias"), layer.get("eps", 1e-5)
    if kind == "batch_norm":
        mean, var = m._tensor(layer, "running_mean"), m._tensor(layer, "running_var")
        y = F.batch_norm(x, mean, var, weight, bias, m.training and not layer.get("frozen"),
                         layer.get("momentum", 0.1), eps)  # fmt: skip
    elif kind == "instance_norm":
        y = F.instance_norm(x, weight=weight, bias=bias, eps=eps)
    elif kind == "group_norm":
        y = F.group_norm(x, int(layer["groups"]), weight, bias, eps)
    else:
        y = F.layer_norm(x.movedim(1, -1), (x.shape[1],), weight, bias, eps).movedim(-1, 1)
    return _act(layer.get("act", "none"), layer, y)


def _pool(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], _like: Any) -> Any:
    kernel, ceil = m._numbers(layer, "kernel", 1), bool(layer.get("ceil"))
    stride, pad = m._numbers(layer, "stride", kernel), m._numbers(layer, "pad", 0)
    stride = kernel if "stride" not in layer else stride
    if layer["kind"] == "max_pool":
        return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[m._dims - 1](inputs[0], kernel, stride, pad, 1, ceil)
    run = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[m._dims - 1]
    return run(inputs[0], kernel, stride, pad, ceil, bool(layer.get("count_pad")))


def _adaptive(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], _like: Any) -> Any:
    average = layer["kind"] in ("global_pool", "adaptive_avg_pool")
    name = f"adaptive_{'avg' if average else 'max'}_pool{m._dims}d"
    return getattr(F, name)(inputs[0], m._numbers(layer, "size", 1))


def _upsample(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], like: Any) -> Any:
    mode, corners = layer.get("mode", "nearest"), None
    if mode.startswith(("linear", "cubic")):
        corners = mode.endswith("_corners")
        base = {"linear": ("linear", "bilinear", "trilinear"), "cubic": ("", "bicubic", "")}[mode.split("_")[0]]
        mode = base[m._dims - 1]
    mode = mode.replace("nearest_exact", "nearest-exact")
    x = _as_image(m, inputs[0])
    if like is not None:
        return F.interpolate(x, size=list(_as_image(m, like).shape[2:]), mode=mode, align_corners=corners)
    if "size" in layer:
        return F.interpolate(x, size=m._numbers(layer, "size", 1), mode=mode, align_corners=corners)
    return F.interpolate(x, scale_factor=m._numbers(layer, "scale", 1.0), mode=mode, align_corners=corners)


def _fit(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], like: Any) -> Any:
    """Zeros added or positions cut off."""
    missing = [w - n for w, n in zip(like.shape[2:], inputs[0].shape[2:])]
    front = {"centre": lambda n: n // 2, "start": lambda n: 0, "cut_end": lambda n: max(n, 0) // 2}
    before = [front[layer.get("align", "centre")](n) for n in missing]
    return _pad(inputs[0], [[b, n - b] for b, n in zip(before, missing)], "zero")


def _axis(m: Layers, layer: Mapping[str, Any]) -> int:
    axes = ["channels", *("depth", "height", "width")[3 - m._dims :]]
    return 1 + axes.index(layer.get("axis", "channels"))


def _slice(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], _like: Any) -> Any:
    place = _axis(m, layer)
    part = slice(layer.get("from", 0), layer.get("to"))
    return inputs[0][(slice(None),) * place + (part,)]


def _dropout(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], _like: Any) -> Any:
    x, p = inputs[0], layer["p"]
    if layer["kind"] == "dropout_channels":
        return F.dropout2d(x, p, m.training)
    if layer["kind"] == "dropout":
        return F.dropout(x, p, m.training)
    keep = torch.ones(x.shape[0], *[1] * (x.dim() - 1), dtype=x.dtype, device=x.device)
    return x * F.dropout(keep, p, m.training)


def _combine(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], _like: Any) -> Any:
    most = max(x.dim() for x in inputs)
    full = [x if x.dim() == most else _as_image(m, x) for x in inputs]
    result = full[0]
    for x in full[1:]:
        result = result * x if layer["kind"] == "multiply" else result + x if layer["kind"] == "add" else result - x
    return result


def _channelwise(m: Layers, layer: Mapping[str, Any], inputs: Sequence[Any], _like: Any) -> Any:
    scales = layer["kind"] == "channel_scale"
    weight = m._tensor(layer, "weight" if scales else "bias").reshape(-1, *[1] * (inputs[0].dim() - 2))
    return inputs[0] * weight if scales else inputs[0] + weight


def _simple(run: Callable[[Mapping[str, Any], Any], Any]) -> Run:
    return lambda m, layer, inputs, like: run(layer, inputs[0])


RUN: dict[str, Run] = {
    "conv": _conv, "conv_transpose": _conv_transpose, "linear": _linear, "batch_norm": _norm, "instance_norm": _norm,
    "group_norm": _norm, "layer_norm": _norm, "max_pool": _pool, "avg_pool": _pool, "global_pool": _adaptive,
    "global_max_pool": _adaptive, "adaptive_avg_pool": _adaptive, "adaptive_max_pool": _adaptive,
    "upsample": _upsample, "fit": _fit, "slice": _slice, "dropout": _dropout, "dropout_channels": _dropout,
    "dropout_samples": _dropout, "add": _combine, "multiply": _combine, "subtract": _combine,
    "channel_scale": _channelwise, "channel_shift": _channelwise,
    "prelu": lambda m, layer, inputs, like: F.prelu(inputs[0], m._tensor(layer, "weight")),
    "pad": lambda m, layer, inputs, like: _pad_layer(m, layer, inputs[0]),
    "concat": lambda m, layer, inputs, like: torch.cat(list(inputs), 1),
    "scale": _simple(lambda layer, x: x * layer["factor"]),
    "shift": _simple(lambda layer, x: x + layer["offset"]),
    "pad_channels": lambda m, layer, inputs, like: F.pad(
        inputs[0], [0, 0] * m._dims + [int(layer.get("from", 0)), int(layer.get("to", 0))]),
    "softmax": _simple(lambda layer, x: torch.softmax(x, 1)),
    "flatten": _simple(lambda layer, x: x.flatten(1)),
    "pixel_shuffle": _simple(lambda layer, x: F.pixel_shuffle(x, int(layer["factor"]))),
    "pixel_unshuffle": _simple(lambda layer, x: F.pixel_unshuffle(x, int(layer["factor"]))),
    "channel_shuffle": _simple(lambda layer, x: F.channel_shuffle(x, int(layer["groups"]))),
    "global_sum": lambda m, layer, inputs, like: inputs[0].sum(list(range(2, 2 + m._dims)), keepdim=True),
    "mean": lambda m, layer, inputs, like: inputs[0].mean(_axis(m, layer), keepdim=True),
    "max": lambda m, layer, inputs, like: inputs[0].amax(_axis(m, layer), keepdim=True),
    **{name: _simple(lambda layer, x: _act(layer["kind"], layer, x))
       for name in (*ACTIVATIONS, "leaky_relu", "elu", "softplus", "clip")},
}  # fmt: skip


def _pad_layer(m: Layers, layer: Mapping[str, Any], x: Any) -> Any:
    given = layer["pad"] if isinstance(layer["pad"], list) else [layer["pad"]] * m._dims
    pairs = [list(p) if isinstance(p, (list, tuple)) else [p, p] for p in given]
    return _pad(x, pairs, layer.get("pad_mode", "zero"))


def module_of(network: Network) -> Layers:
    """A module of the network's layers."""
    spec = network.spec
    if spec is None:
        spec = network.layers()
    shapes = {name: array.shape for name, array in (network.weights or {}).items()}
    return Layers(spec, network.options.get("classes"), shapes)
