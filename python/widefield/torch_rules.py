"""Rules that make layers of ATen operations: one function for each, named in the table at the end.

A rule takes the translator (torch_import.Translator) and the node's arguments by name, as values: Value, Parameter,
numbers, lists. It returns the value of the node's result.
"""

from __future__ import annotations

import operator
from typing import Any, Callable

from .torch_import import Noise, Parameter, Stack, Translator, Value, same

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}

# Of shapes, which torch's own symbols already have.
SYMBOLIC = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod, operator.neg,
            operator.eq, operator.ne, operator.ge, operator.gt, operator.le, operator.lt, operator.pow)  # fmt: skip
SKIPPED = ("sym_size", "sym_constrain_range", "_assert_scalar", "_assert_async", "_assert_tensor_metadata", "sym_numel")


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a function for operators of these names, in place or not."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def apply(t: Translator, node: Any) -> None:
    """Makes what the node stands for."""
    target = node.target
    if target is operator.getitem:
        t.values[node] = t.value(node.args[0])[node.args[1]]
        return
    packet = getattr(target, "_schema", None)
    if packet is None:
        _symbols(t, node)
        return
    name = packet.name.partition("::")[2]
    if any(name.startswith(skipped) for skipped in SKIPPED):
        return
    arguments = _arguments(t, node, packet)
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    first = next(iter(arguments.values()), None)
    if isinstance(first, Parameter) and name.endswith("_"):
        t.values[node] = first  # num_batches_tracked += 1
        return
    if plain not in RULES:
        raise t.fail("there is no rule for it; write this part with layers that docs/python.md lists")
    try:
        result = RULES[plain](t, **arguments)
    except AttributeError as cause:  # a rule for images was given another form of one
        raise t.fail(f"its input is no image here, but parts of one in another order ({cause})") from cause
    t.values[node] = result
    if plain != name and isinstance(first, Noise):
        for other, value in list(t.values.items()):
            if value is first:
                t.values[other] = result
    if plain != name and isinstance(first, Value):
        # In place: whoever reads the old value from here on sees the new one.
        for other, value in list(t.values.items()):
            if isinstance(value, Value) and value.layer == first.layer and value.layer != "image":
                t.values[other] = result


def _symbols(t: Translator, node: Any) -> None:
    """Arithmetic on sizes: the node's own value has its symbol."""
    name = getattr(node.target, "__name__", "")
    if node.target in SYMBOLIC or name.startswith("sym_") or not hasattr(node.meta.get("val"), "shape"):
        return
    raise t.fail("there is no rule for it")


def _arguments(t: Translator, node: Any, schema: Any) -> dict[str, Any]:
    """By name, with defaults; nodes that are numbers become numbers or symbols."""
    given = dict(zip((a.name for a in schema.arguments), node.args))
    given.update(node.kwargs)
    found = {}
    for argument in schema.arguments:
        if argument.name in given:
            found[argument.name] = _resolve(t, given[argument.name])
        elif argument.has_default_value():
            found[argument.name] = argument.default_value
    if "self" in found:
        found["x"] = found.pop("self")
        found = {"x": found.pop("x"), **found}
    return found


def _resolve(t: Translator, x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_resolve(t, item) for item in x]
    if hasattr(x, "meta"):
        return t.values[x] if x in t.values else t.number(x)
    return x


def _image(t: Translator, x: Any) -> Value:
    if not isinstance(x, Value):
        raise t.fail("its input is a parameter, or does not depend on the image")
    if x.last:
        raise t.fail("its input has the channels last (behind permute())")
    return x


def _list(t: Translator, x: Any, what: str) -> list[int]:
    """A number for each axis, from one or as many."""
    numbers = [int(t.constant(n, what)) for n in (x if isinstance(x, (list, tuple)) else [x])]
    if len(numbers) not in (1, t.dims):
        raise t.fail(f"its {what} has {len(numbers)} numbers, the image {t.dims} axes")
    return numbers * t.dims if len(numbers) == 1 else numbers


def _unless(x: list[int], usual: int) -> list[int] | None:
    return None if all(n == usual for n in x) else x


def _bool(flag: Any) -> bool | None:
    return True if flag else None


# --- layers with weights ---


def _same_padding(kernel: list[int], dilation: list[int]) -> list[list[int]]:
    total = [d * (k - 1) for k, d in zip(kernel, dilation)]
    return [[n // 2, n - n // 2] for n in total]


@rule("conv1d", "conv2d", "conv3d")
def conv(t: Translator, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Value:
    if not isinstance(weight, Parameter):
        raise t.fail("its weight is computed, not a parameter of the module")
    if len(weight.shape) == 3 and t.dims > 1 and isinstance(input, Value):
        return _along_channels(t, input, weight, bias, stride, padding, dilation)
    x = _image(t, input)
    kernel = list(weight.shape[2:])
    spread = _list(t, dilation, "dilation")
    if isinstance(padding, str):
        pad: Any = _same_padding(kernel, spread) if padding == "same" else None
    else:
        pad = _unless(_list(t, padding, "padding"), 0)
    return t.weighted(
        "conv", [x], {"weight": weight, "bias": bias}, out=weight.shape[0], kernel=kernel,
        stride=_unless(_list(t, stride, "stride"), 1), pad=pad, dilation=_unless(spread, 1),
        groups=groups if groups != 1 else None, bias=_bool(bias is not None),
    )  # fmt: skip


def _along_channels(
    t: Translator, x: Value, weight: Parameter, bias: Any, stride: Any, padding: Any, dilation: Any
) -> Value:  # fmt: skip
    """Along the channels of a vector, [N, 1, C]: in a row of as many positions (efficient channel attention)."""
    size = weight.shape[2]
    keeps = size % 2 and tuple(weight.shape[:2]) == (1, 1) and (padding == "same" or list(padding) == [size // 2])
    if not x.last or not all(same(n, 1) for n in x.extents) or not keeps or [*stride, *dilation] != [1, 1]:
        raise t.fail("along an axis of an image there is one for vectors only, with one filter that keeps their length")
    ones = [1] * (t.dims - 1)
    shape = (x.shape[0], 1, *ones, x.channels)
    row = t.layer("transpose", [x], name=t.unique(f"{weight.target.rpartition('.')[0]}.row"), shape=shape)
    y = t.weighted("conv", [row], {"weight": weight, "bias": bias}, shapes={"weight": (1, 1, *ones, size)}, shape=shape,
                   out=1, kernel=[*ones, size], pad=[*[0] * (t.dims - 1), size // 2], bias=_bool(bias is not None))  # fmt: skip
    return t.layer("transpose", [y], last=True)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    t: Translator, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int,
    dilation: Any,
) -> Value:  # fmt: skip
    x = _image(t, input)
    if not isinstance(weight, Parameter):
        raise t.fail("its weight is computed, not a parameter of the module")
    return t.weighted(
        "conv_transpose", [x], {"weight": weight, "bias": bias}, out=weight.shape[1] * groups,
        kernel=list(weight.shape[2:]), stride=_unless(_list(t, stride, "stride"), 1),
        pad=_unless(_list(t, padding, "padding"), 0), output_pad=_unless(_list(t, output_padding, "output_padding"), 0),
        dilation=_unless(_list(t, dilation, "dilation"), 1), groups=groups if groups != 1 else None,
        bias=_bool(bias is not None),
    )  # fmt: skip


@rule("linear")
def linear(t: Translator, input: Any, weight: Any, bias: Any) -> Value:
    if not isinstance(input, Value) or not isinstance(weight, Parameter):
        raise t.fail("it needs a tensor that depends on the image, and a parameter as weight")
    tensors = {"weight": weight, "bias": bias}
    out, into = weight.shape
    has_bias = _bool(bias is not None)
    if len(input.shape) == 2:
        return t.weighted("linear", [input], tensors, out=out, bias=has_bias)
    if input.last:  # over the channels of each position
        ones = [1] * t.dims
        return t.weighted("conv", [input], tensors, shapes={"weight": (out, into, *ones)}, out=out, kernel=ones,
                          bias=has_bias, last=True)  # fmt: skip
    raise t.fail("it works along the image's last axis: use a convolution, or permute channels last")


def _affine(t: Translator, kind: str, x: Value, tensors: dict[str, Any], **attributes: Any) -> Value:
    plain = tensors.get("weight") is None and tensors.get("bias") is None
    if not plain and (tensors.get("weight") is None or tensors.get("bias") is None):
        if tensors.get("weight") is None or kind == "batch_norm":
            raise t.fail("it has a weight without a bias, or the other way round: give it both or none")
        weight = tensors["weight"]
        name = t.unique(f"{weight.target.rpartition('.')[0]}.plain") if isinstance(weight, Parameter) else None
        y = t.layer(kind, [x], name=name, plain=True, last=x.last, **attributes)
        return t.weighted("channel_scale", [y], {"weight": weight}, last=x.last)
    return t.weighted(kind, [x], tensors, plain=_bool(plain), last=x.last, **attributes)


@rule("batch_norm")
def batch_norm(
    t: Translator, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Value:  # fmt: skip
    if running_mean is None:
        raise t.fail("it has no running statistics: use track_running_stats=True")
    tensors = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
    frozen = not training
    return _affine(t, "batch_norm", _image(t, input), tensors, eps=eps, momentum=momentum, frozen=frozen)


@rule("instance_norm")
def instance_norm(
    t: Translator, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Value:  # fmt: skip
    if running_mean is not None:
        raise t.fail("it has running statistics: use track_running_stats=False")
    return _affine(t, "instance_norm", _image(t, input), {"weight": weight, "bias": bias}, eps=eps)


@rule("group_norm")
def group_norm(
    t: Translator, input: Any, num_groups: int, weight: Any, bias: Any, eps: float, cudnn_enabled: bool
) -> Value:
    tensors = {"weight": weight, "bias": bias}
    return _affine(t, "group_norm", _image(t, input), tensors, groups=num_groups, eps=eps)


@rule("layer_norm")
def layer_norm(
    t: Translator, input: Any, normalized_shape: list[Any], weight: Any, bias: Any, eps: float, cudnn_enable: bool
) -> Value:
    channels_last = isinstance(input, Value) and (input.last or len(input.shape) == 2)
    if not channels_last or len(normalized_shape) != 1:
        raise t.fail("it is not over the channels alone: permute channels last before it, or use group norm with one group")
    return _affine(t, "layer_norm", input, {"weight": weight, "bias": bias}, eps=eps)


@rule("prelu")
def prelu(t: Translator, x: Any, weight: Any) -> Value:
    shared = _bool(isinstance(weight, Parameter) and weight.shape == (1,) and x.channels != 1)
    return t.weighted("prelu", [_image(t, x)], {"weight": weight}, shared=shared)


# --- activations ---


def _plain(kind: str) -> Rule:
    def make(t: Translator, x: Any) -> Value:
        if not isinstance(x, Value):
            raise t.fail("its input does not depend on the image")
        return t.layer(kind, [x], last=x.last)

    return make


for _name, _kind in {
    "relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "silu": "silu", "mish": "mish", "hardswish": "hard_swish",
    "hardsigmoid": "hard_sigmoid", "relu6": "relu6", "exp": "exp", "abs": "abs", "selu": "selu", "log": "log",
    "sqrt": "sqrt", "reciprocal": "reciprocal", "log_sigmoid": "log_sigmoid", "softsign": "softsign",
}.items():  # fmt: skip
    RULES[_name] = _plain(_kind)


@rule("leaky_relu")
def leaky_relu(t: Translator, x: Any, negative_slope: float) -> Value:
    return t.layer("leaky_relu", [x], last=x.last, slope=float(negative_slope))


@rule("gelu")
def gelu(t: Translator, x: Any, approximate: str) -> Value:
    return t.layer("gelu" if approximate == "none" else "gelu_tanh", [x], last=x.last)


@rule("elu")
def elu(t: Translator, x: Any, alpha: float, scale: float, input_scale: float) -> Value:
    if scale != 1 or input_scale != 1:
        raise t.fail("its scales are not 1")
    return t.layer("elu", [x], last=x.last, slope=float(alpha) if alpha != 1 else None)


@rule("softplus")
def softplus(t: Translator, x: Any, beta: float, threshold: float) -> Value:
    return t.layer("softplus", [x], last=x.last, slope=float(beta) if beta != 1 else None)


OPEN = 1e30  # where a clip has no bound


@rule("hardtanh", "clamp")
def clip(t: Translator, x: Any, min_val: Any = None, max_val: Any = None, **bounds: Any) -> Value:
    lo, hi = bounds.get("min", min_val), bounds.get("max", max_val)
    if lo == 0 and hi is None:
        return t.layer("relu", [x], last=x.last)
    if not all(bound is None or isinstance(bound, (int, float)) for bound in (lo, hi)):
        raise t.fail("its bounds are no numbers")
    lo, hi = (-OPEN if lo is None else lo), (OPEN if hi is None else hi)
    if (lo, hi) == (0, 6):
        return t.layer("relu6", [x], last=x.last)
    return t.layer("clip", [x], last=x.last, lo=float(lo), hi=float(hi))


@rule("clamp_min")
def clamp_min(t: Translator, x: Any, min: float) -> Value:
    return clip(t, x, min, None)


@rule("softmax", "_softmax")
def softmax(t: Translator, x: Any, dim: int, **_: Any) -> Value:
    if _axes(x, dim) != {_channels(x)}:
        raise t.fail("it is not over the channels")
    return t.layer("softmax", [x], last=x.last)


@rule("dropout", "feature_dropout")
def dropout(t: Translator, p: float, train: bool, **rest: Any) -> Value:
    input: Any = rest.get("input", rest.get("x"))
    if not train or p == 0:
        return input
    kind = "dropout_channels" if "feature" in str(t.node.target) else "dropout"
    return t.layer(kind, [input], last=input.last, p=float(p))


# --- poolings ---


def _pool(t: Translator, kind: str, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil: bool, **more: Any) -> Value:
    kernel = _list(t, kernel_size, "kernel")
    steps = _list(t, stride, "stride") if stride else kernel
    return t.layer(
        kind, [_image(t, x)], kernel=kernel, stride=None if steps == kernel else steps,
        pad=_unless(_list(t, padding, "padding"), 0), ceil=_bool(ceil), **more,
    )  # fmt: skip


@rule("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(t: Translator, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Value:
    if _unless(_list(t, dilation, "dilation"), 1):
        raise t.fail("it has a dilation")
    return _pool(t, "max_pool", x, kernel_size, stride, padding, ceil_mode)


@rule("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(t: Translator, **arguments: Any) -> list[Any]:
    if any(user.target is operator.getitem and user.args[1] == 1 and user.users for user in t.node.users):
        raise t.fail("its indices are used: unpooling has no layer")
    return [max_pool(t, **arguments), None]


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    t: Translator, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
    divisor_override: Any = None,
) -> Value:  # fmt: skip
    if divisor_override is not None:
        raise t.fail("divisor_override is given")
    padded = any(_list(t, padding, "padding"))
    return _pool(t, "avg_pool", x, kernel_size, stride, padding, ceil_mode, count_pad=_bool(count_include_pad and padded))


def _adaptive(t: Translator, kind: str, x: Any, output_size: Any) -> Value:
    sizes = [t.number(n) for n in (output_size if isinstance(output_size, (list, tuple)) else [output_size])]
    sizes = sizes * t.dims if len(sizes) == 1 else sizes
    image = _image(t, x)
    if all(same(n, 1) for n in sizes):
        return t.layer("global_pool" if kind == "adaptive_avg_pool" else "global_max_pool", [image])
    if all(same(n, m) for n, m in zip(sizes, image.extents)):
        return image
    numbers = [int(t.constant(n, "output size")) for n in sizes]
    return t.layer(kind, [image], size=numbers)


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_avg_pool(t: Translator, x: Any, output_size: Any) -> Value:
    return _adaptive(t, "adaptive_avg_pool", x, output_size)


@rule("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(t: Translator, x: Any, output_size: Any) -> list[Any]:
    return [_adaptive(t, "adaptive_max_pool", x, output_size), None]


def _axes(x: Value, dim: Any) -> set[int]:
    numbers = dim if isinstance(dim, (list, tuple)) else [dim]
    return {int(n) % len(x.shape) for n in numbers}


def _spatial(x: Value) -> set[int]:
    return set(range(1, len(x.shape) - 1)) if x.last else set(range(2, len(x.shape)))


def _channels(x: Value) -> int:
    return len(x.shape) - 1 if x.last else 1


def reduced(t: Translator, x: Any, dim: Any, keepdim: bool, spatial: str, along: str) -> Value:
    """Over all spatial axes by the layer `spatial`, over single axes by `along`; a sum is the mean of the channels times
    their number."""
    if not isinstance(x, Value):
        raise t.fail("its input does not depend on the image")
    axes = _axes(x, dim) if dim is not None else set()
    places = _spatial(x)
    left, y, shape = set(axes), x, list(x.shape)
    if not axes or 0 in axes:
        raise t.fail("it is not over the axes of each image")
    for axis in axes:
        shape[axis] = 1
    if places and places <= axes:
        y = t.layer(spatial, [y], shape=shape, last=x.last)
        left -= places
    for axis in sorted(left):
        where = "channels" if axis == _channels(x) else ("depth", "height", "width")[3 - t.dims + sorted(places).index(axis)]
        y = t.layer("mean" if along == "sum" else along, [y], shape=shape, last=x.last, axis=where)
        if along == "sum":
            y = t.layer("scale", [y], shape=shape, last=x.last, factor=float(t.constant(x.shape[axis], "extent")))
    kept = shape if keepdim else [n for i, n in enumerate(shape) if i not in axes]
    return Value(y.layer, tuple(kept), x.last and len(kept) > 2)


@rule("mean")
def mean(t: Translator, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    if isinstance(x, Stack) and x.is_along(dim):
        return torch_arithmetic.scaled(t, t.layer("add", x.values, last=x.values[0].last), 1 / len(x.values))
    return reduced(t, x, dim, keepdim, "global_pool", "mean")


@rule("amax")
def amax(t: Translator, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
    return reduced(t, x, dim, keepdim, "global_max_pool", "max")


@rule("max")
def max_over(t: Translator, x: Any, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
    if other is not None:
        return torch_arithmetic.larger(t, x, other)
    return [reduced(t, x, dim, keepdim, "global_max_pool", "max"), None]


# --- resampling ---


def _resample(t: Translator, x: Any, mode: str, sizes: Any, factors: Any) -> Value:
    image = _image(t, x)
    if factors is not None:
        scale = [float(t.constant(n, "scale")) for n in factors]
        return t.layer("upsample", [image], scale=scale, mode=mode)
    wanted = [t.number(n) for n in sizes]
    return t.layer("upsample", [image], mode=mode, **_to_size(t, image, wanted))


def _to_size(t: Translator, image: Value, wanted: list[Any]) -> dict[str, Any]:
    """`like` a value that always has this size, a `scale` where it is a multiple, or `size`."""
    like = t.find_like(wanted)
    if like is not None:
        return {"like": like}
    for factor in (2, 4, 8, 16, 32):
        if all(same(n, factor * m, even=True) for n, m in zip(wanted, image.extents)):
            return {"scale": [float(factor)] * t.dims}
    return {"size": [int(t.constant(n, "size")) for n in wanted]}


@rule("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(t: Translator, output_size: Any, scale_factors: Any = None, **rest: Any) -> Value:
    return _resample(t, rest.get("input", rest.get("x")), "nearest", output_size, scale_factors)


@rule("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def upsample_nearest_exact(t: Translator, output_size: Any, scale_factors: Any = None, **rest: Any) -> Value:
    return _resample(t, rest.get("input", rest.get("x")), "nearest_exact", output_size, scale_factors)


@rule("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def upsample_linear(
    t: Translator, output_size: Any, align_corners: bool, scale_factors: Any = None, **rest: Any
) -> Value:
    mode = "linear_corners" if align_corners else "linear"
    return _resample(t, rest.get("input", rest.get("x")), mode, output_size, scale_factors)


@rule("upsample_bicubic2d")
def upsample_cubic(t: Translator, output_size: Any, align_corners: bool, scale_factors: Any = None, **rest: Any) -> Value:
    mode = "cubic_corners" if align_corners else "cubic"
    return _resample(t, rest.get("input", rest.get("x")), mode, output_size, scale_factors)


@rule("pixel_shuffle")
def pixel_shuffle(t: Translator, x: Any, upscale_factor: int) -> Value:
    return t.layer("pixel_shuffle", [_image(t, x)], factor=int(upscale_factor))


@rule("pixel_unshuffle")
def pixel_unshuffle(t: Translator, x: Any, downscale_factor: int) -> Value:
    return t.layer("pixel_unshuffle", [_image(t, x)], factor=int(downscale_factor))


@rule("channel_shuffle")
def channel_shuffle(t: Translator, x: Any, groups: int) -> Value:
    return t.layer("channel_shuffle", [_image(t, x)], groups=int(groups))


# --- more rules ---

# As modules: whichever of them is imported first, they find each other half made.
from . import torch_arithmetic, torch_shapes  # noqa: E402,F401: they register their own
