"""Rules of operations that move elements: concatenation, parts, borders, other shapes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .torch_import import Blocks, Cropped, Grouped, Parameter, Stack, Translator, Value, same
from .torch_rules import _image, rule

AXES = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}
END = 2**63 - 1


def _axis(t: Translator, x: Value, dim: int) -> str:
    """The name of an axis of PyTorch's tensor."""
    place = dim % len(x.shape)
    if place == 0:
        raise t.fail("it works along the batch")
    if x.last:
        place = 1 if place == len(x.shape) - 1 else place + 1
    return "channels" if place == 1 else AXES[t.dims][place - 2]


@rule("cat", "concat", "concatenate")
def cat(t: Translator, tensors: Any, dim: int = 0) -> Value:
    values = [x for x in tensors if isinstance(x, Value)]
    if len(values) + list(tensors).count(None) != len(tensors):  # None: without elements
        raise t.fail("it has an input that does not depend on the image")
    if _axis(t, values[0], dim) != "channels":
        raise t.fail("it is not along the channels")
    if any(x.last != values[0].last for x in values):
        raise t.fail("some of its inputs have the channels last")
    return t.layer("concat", values, last=values[0].last)


@rule("stack")
def stack(t: Translator, tensors: Any, dim: int = 0) -> Stack:
    if not all(isinstance(x, Value) for x in tensors):
        raise t.fail("it has an input that does not depend on the image")
    return Stack(tuple(tensors), dim % (len(tensors[0].shape) + 1))


@rule("repeat", "tile")
def repeat(t: Translator, x: Any, repeats: Any = None, dims: Any = None) -> Value:
    counts = list(repeats if repeats is not None else dims)
    if x.last or len(counts) != len(x.shape) or not same(counts[0], 1):
        raise t.fail("it repeats something else than channels or positions")
    if all(same(n, 1) for n in x.extents) and not all(same(n, 1) for n in counts[2:]):
        x = _spread(t, x, [*x.shape[:2], *t.shape()[2:]])
    elif any(not same(n, 1) for n in counts[2:]):
        raise t.fail("it repeats an image of more than one position")
    copies = int(t.constant(counts[1], "number of copies"))
    return x if copies == 1 else t.layer("concat", [x] * copies)


def _part(t: Translator, x: Value, axis: str, start: int, end: int, shape: Any) -> Value:
    to = None if end >= END else end
    bounds: dict[str, Any] = {"from": start or None, "to": to}  # `from` is a word of Python's
    return t.layer("slice", [x], last=x.last, axis=axis, shape=shape, **bounds)


@rule("slice", "narrow")
def slice_(
    t: Translator, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1, length: Any = None
) -> Any:
    if not isinstance(x, (Value, Cropped)):
        raise t.fail("its input does not depend on the image")
    whole = x.shape[dim % len(x.shape)]
    first, last = t.number(start) or 0, t.number(end) if end is not None else END
    if length is not None:
        last = t.number(length) if first == 0 else first + t.number(length)
    if step != 1:
        return _strided(t, x, dim, first, last, int(t.constant(step, "step")))
    if first == 0 and (isinstance(last, int) and last >= END or same(last, whole)):
        return x
    image = x.image if isinstance(x, Cropped) else x
    axis = _axis(t, image, dim)
    if isinstance(first, int) and isinstance(last, int) and isinstance(x, Value):
        return _part(t, x, axis, first, last, t.shape())
    # To the size of another value, from the beginning: what is too much is cut off at the end.
    like = t.find_like(Value("", t.shape(), image.last).extents)
    if first != 0 or axis == "channels":
        raise t.fail("it cuts at a position that depends on the size of the image")
    if like is None:
        return Cropped(image, t.shape())
    return t.layer("fit", [image], last=image.last, align="start", like=like)


def _strided(t: Translator, x: Any, dim: int, first: Any, last: Any, step: int) -> Value:
    """Every n-th position along a spatial axis: the mean of windows of one."""
    whole = _image(t, x).shape[dim % len(x.shape)]
    axis = _axis(t, x, dim)
    if axis == "channels" or not isinstance(first, int) or not (isinstance(last, int) and last >= END or same(last, whole)):
        raise t.fail("steps can be had along an axis of the image, to its end")
    if first:
        shape = tuple(whole - first if i == dim % len(x.shape) else n for i, n in enumerate(x.shape))
        x = _part(t, x, axis, first, END, shape)
    stride = [step if name == axis else 1 for name in AXES[t.dims]]
    return t.layer("avg_pool", [x], kernel=[1] * t.dims, stride=stride)


def _parts(t: Translator, x: Value, dim: int, sizes: list[int]) -> list[Value]:
    axis = _axis(t, x, dim)
    place = dim % len(x.shape)
    found, at = [], 0
    for size in sizes:
        shape = tuple(size if i == place else n for i, n in enumerate(x.shape))
        found.append(_part(t, x, axis, at, at + size, shape))
        at += size
    return found


def split_in_two(t: Translator, x: Any, dim: int) -> list[Value]:
    half = _length(t, x, dim) // 2
    return _parts(t, x, dim, [half, half])


def _length(t: Translator, x: Value, dim: int) -> int:
    return int(t.constant(x.shape[dim % len(x.shape)], "length"))


@rule("chunk")
def chunk(t: Translator, x: Any, chunks: int, dim: int = 0) -> list[Value]:
    length = _length(t, x, dim)
    size = -(-length // chunks)
    return _parts(t, x, dim, [min(size, length - at) for at in range(0, length, size)])


@rule("split", "split_with_sizes")
def split(t: Translator, x: Any, dim: int = 0, **sizes: Any) -> list[Value]:
    given = sizes.get("split_sizes", sizes.get("split_size"))
    if isinstance(given, list):
        return _parts(t, x, dim, [int(t.constant(n, "size")) for n in given])
    length, size = _length(t, x, dim), int(t.constant(given, "size"))
    return _parts(t, x, dim, [min(size, length - at) for at in range(0, length, size)])


@rule("unbind")
def unbind(t: Translator, **_: Any) -> Value:
    raise t.fail("it takes an axis away")


MODES = {"constant": None, "reflect": "reflect", "replicate": "edge", "circular": "circular"}


@rule("pad", "constant_pad_nd", "reflection_pad2d", "replication_pad2d")
def pad(t: Translator, x: Any, pad: Any = None, mode: str = "constant", value: Any = None, **rest: Any) -> Value:
    amounts = [t.number(n) for n in (pad if pad is not None else rest["padding"])]
    name = str(t.node.target)
    mode = "reflect" if "reflection" in name else "replicate" if "replication" in name else mode
    image = _image(t, x)
    if value not in (None, 0, 0.0):
        return _pad_with(t, image, amounts, float(value))
    if len(amounts) > 2 * t.dims:
        return _pad_channels(t, image, amounts, mode)
    if all(isinstance(n, int) for n in amounts):
        return t.layer("pad", [image], pad=_pairs(t, amounts), pad_mode=MODES[mode]) if any(amounts) else image
    # To the size of another value: as much before as behind, or all behind.
    like = t.find_like(t.shape()[2:])
    if like is None or mode != "constant":
        raise t.fail("it pads by amounts that depend on the size of the image")
    return t.layer("fit", [image], align=_alignment(t, amounts), like=like)


def _pairs(t: Translator, amounts: list[int]) -> list[list[int]]:
    """Before and behind, for each axis: PyTorch has the last axis first."""
    pairs = [[amounts[i], amounts[i + 1]] for i in range(0, len(amounts), 2)]
    pairs += [[0, 0]] * (t.dims - len(pairs))
    return pairs[::-1]


def _pad_with(t: Translator, image: Value, amounts: list[Any], number: float) -> Value:
    """Zeros around the image less the number, which is added again."""
    if len(amounts) > 2 * t.dims or not all(isinstance(n, int) for n in amounts) or math.isinf(number):
        raise t.fail(f"it pads with {number}: that can be had for fixed amounts around the image, and numbers")
    less = t.layer("shift", [image], offset=-number, shape=image.shape)
    return t.layer("shift", [t.layer("pad", [less], pad=_pairs(t, amounts))], offset=number)


def _pad_channels(t: Translator, image: Value, amounts: list[Any], mode: str) -> Value:
    others = amounts[: 2 * t.dims] + amounts[2 * t.dims + 2 :]
    if any(not same(n, 0) for n in others) or mode != "constant":
        raise t.fail("it pads channels and positions at once, or the batch")
    before, behind = (int(t.constant(n, "padding")) for n in amounts[2 * t.dims : 2 * t.dims + 2])
    bounds: dict[str, Any] = {"from": before or None, "to": behind or None}
    return t.layer("pad_channels", [image], **bounds)


def _alignment(t: Translator, amounts: list[Any]) -> str:
    """Where what is missing goes, from the amounts before and behind."""
    before, behind = amounts[0::2], amounts[1::2]
    if all(same(n, 0) for n in before):
        return "start"
    # Half before, rounded down, the rest behind: n // 2 and n - n // 2.
    if all(same(b, (b + h) // 2) for b, h in zip(before, behind)):
        return "centre"
    raise t.fail("it pads neither by half on each side nor at the end")


# --- other shapes ---


def _ungrouped(t: Translator, x: Grouped) -> Value:
    if len(t.shape()) != len(x.image.shape) or not x.swapped:
        raise t.fail("channels in groups are not exchanged and joined again")
    return t.layer("channel_shuffle", [x.image], groups=x.groups)


def _reshaped(t: Translator, x: Value) -> Any:
    """view(), reshape(), flatten() and their like: to a vector, and between a vector and an image of one position."""
    shape = t.shape()
    if len(shape) == len(x.shape) and all(same(a, b) for a, b in zip(shape, x.shape)):
        return x
    ones = all(same(n, 1) for n in x.extents)
    if len(shape) == 2 and same(shape[0], x.shape[0]):
        if ones or len(x.shape) == 2:
            return dataclasses.replace(x, shape=shape, last=False)
        if x.last:
            raise t.fail("it flattens an image with the channels last")
        return t.layer("flatten", [x])
    if ones and len(shape) == t.dims + 2 and same(shape[1], x.channels) and all(same(n, 1) for n in shape[2:]):
        return dataclasses.replace(x, shape=shape, last=False)
    if ones and len(shape) == 3 and same(shape[1], 1) and same(shape[2], x.channels):
        return dataclasses.replace(x, shape=shape, last=True)
    if len(shape) == len(x.shape) + 1 and not x.last and all(same(a, b) for a, b in zip(shape[3:], x.shape[2:])):
        return Grouped(x, int(t.constant(shape[1], "groups")))
    factor = shape[2] if len(shape) == 2 + 2 * t.dims else 0
    blocks = (*[factor] * t.dims, *x.shape[2:]) if isinstance(factor, int) and factor > 1 and not x.last else ()
    if blocks and all(same(a, b) for a, b in zip(shape[2:], blocks)) and same(shape[1] * factor**t.dims, x.channels):
        return Blocks(x, factor)
    raise t.fail(f"from shape {tuple(x.shape)} to {tuple(shape)}: only images to vectors can be had")


def _unblocked(t: Translator, x: Blocks) -> Value:
    shape, extents = t.shape(), x.image.extents
    joined = len(shape) == len(x.image.shape) and all(same(a, x.factor * b) for a, b in zip(shape[2:], extents))
    if not x.moved or not joined:
        raise t.fail("blocks of positions are not joined as pixel_shuffle() does")
    return t.layer("pixel_shuffle", [x.image], factor=x.factor)


@rule("flatten", "view", "reshape", "unsqueeze", "squeeze", "_unsafe_view", "unflatten")
def reshape(t: Translator, x: Any, **_: Any) -> Any:
    if isinstance(x, Parameter):
        return dataclasses.replace(x, shape=tuple(int(n) for n in t.shape()))
    if isinstance(x, Grouped):
        return _ungrouped(t, x)
    if isinstance(x, Blocks):
        return _unblocked(t, x)
    if not isinstance(x, Value):
        raise t.fail("its input does not depend on the image")
    if t.node.meta.get("val") is not None and "squeeze" in str(t.node.target):
        return _squeezed(t, x)
    return _reshaped(t, x)


def _squeezed(t: Translator, x: Value) -> Value:
    """Axes of one are added or taken away: a vector and an image of one position are the same."""
    shape = t.shape()
    kept = [n for n in shape if not same(n, 1)]
    mine = [n for n in x.shape if not same(n, 1)]
    if len(kept) == len(mine) and all(same(a, b) for a, b in zip(kept, mine)) and 1 <= len(shape) <= t.dims + 2:
        return dataclasses.replace(x, shape=shape, last=False)
    raise t.fail("it changes more than axes of one")


@rule("permute", "transpose", "movedim")
def permute(t: Translator, x: Any, **arguments: Any) -> Any:
    if isinstance(x, Grouped):
        axes = len(x.image.shape) + 1
        if x.swapped or _order(t, axes, arguments) != [0, 2, 1, *range(3, axes)]:
            raise t.fail("it moves groups of channels")
        return dataclasses.replace(x, swapped=True)
    if isinstance(x, Blocks):
        pairs = [n for i in range(t.dims) for n in (2 + t.dims + i, 2 + i)]
        if x.moved or _order(t, 2 + 2 * t.dims, arguments) != [0, 1, *pairs]:
            raise t.fail("it moves blocks of positions otherwise than pixel_shuffle()")
        return dataclasses.replace(x, moved=True)
    axes = len(x.shape)
    order = _order(t, axes, arguments)
    first, last = list(range(axes)), [0, *range(2, axes), 1]
    back = [0, axes - 1, *range(1, axes - 1)]
    if order == first:
        return x
    if order == last and not x.last:
        return dataclasses.replace(x, shape=t.shape(), last=True)
    if order == back and x.last:
        return dataclasses.replace(x, shape=t.shape(), last=False)
    raise t.fail("it neither moves the channels to the end nor back")


def _order(t: Translator, axes: int, arguments: dict[str, Any]) -> list[int]:
    if "dims" in arguments:
        return [int(n) % axes for n in arguments["dims"]]
    order = list(range(axes))
    if "dim0" in arguments:
        a, b = int(arguments["dim0"]) % axes, int(arguments["dim1"]) % axes
        order[a], order[b] = order[b], order[a]
        return order
    raise t.fail("it moves axes")


@rule("contiguous", "clone", "alias", "detach", "to", "_to_copy", "lift_fresh_copy", "type_as", "float")
def identity(t: Translator, x: Any, **_: Any) -> Any:
    return x


def _spread(t: Translator, x: Value, shape: Any) -> Value:
    """One position copied to the extents of an image."""
    like = t.find_like(shape[2:])
    sizes: dict[str, Any] = {"like": like}
    if like is None:
        sizes = {"size": [int(t.constant(n, "size")) for n in shape[2:]]}
    return t.layer("upsample", [x], shape=shape, mode="nearest", **sizes)


BROADCAST = ("add", "sub", "mul", "div", "rsub", "maximum", "minimum")


@rule("expand", "expand_as")
def expand(t: Translator, x: Any, **_: Any) -> Value:
    """Sums and products repeat what has one element along an axis by themselves; for others it is copied."""
    shape = t.shape()
    if not isinstance(x, Value) or len(shape) != len(x.shape):
        raise t.fail("it repeats something else than an image")
    if all(same(a, b) for a, b in zip(shape, x.shape)):
        return x
    users = {str(getattr(user.target, "_schema", user.target).name).partition("::")[2].rstrip("_") for user in t.node.users}
    if users <= set(BROADCAST):
        return x
    if x.last or not same(shape[1], x.channels) or not all(same(n, 1) for n in x.extents):
        raise t.fail("it repeats something else than one position")
    return _spread(t, x, shape)
