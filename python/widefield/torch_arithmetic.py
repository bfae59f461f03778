"""Rules of sums and products, with numbers, parameters and other images; and of noise that samples are dropped by."""

from __future__ import annotations

from typing import Any

from .torch_import import Noise, Parameter, Stack, Translator, Uniform, Value, same
from .torch_rules import rule


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float))


def _pair(t: Translator, kind: str, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value):
        if a.last != b.last:
            raise t.fail("one of its inputs has the channels last, the other first")
        return t.layer(kind, [a, b], last=a.last)
    value, parameter = (a, b) if isinstance(a, Value) else (b, a)
    if not isinstance(value, Value) or not isinstance(parameter, Parameter):
        raise t.fail("its inputs are not two tensors that depend on the image")
    return _with_parameter(t, kind, value, parameter)


def _with_parameter(t: Translator, kind: str, x: Value, parameter: Parameter) -> Value:
    """A parameter of one number for each channel, such as layer scale."""
    shape = parameter.shape
    axes = len(x.shape)
    axis = axes - 1 if x.last else 1
    full = (1,) * (axes - len(shape)) + tuple(shape)
    if any(n != 1 for i, n in enumerate(full) if i != axis):
        raise t.fail(f"a parameter of shape {tuple(shape)} is not one number for each channel")
    count = full[axis]
    if count not in (1, x.channels):
        raise t.fail(f"a parameter of {count} numbers for {x.channels} channels")
    if count != x.channels:
        raise t.fail(f"a parameter of one number for {x.channels} channels: give it one for each")
    name, part = ("channel_scale", "weight") if kind == "multiply" else ("channel_shift", "bias")
    return t.weighted(name, [x], {part: parameter}, shapes={part: (count,)}, last=x.last)


def _scaled(t: Translator, x: Any, factor: float) -> Any:
    if factor == 1:
        return x
    if _is_number(x):
        return x * factor
    if isinstance(x, Parameter):
        raise t.fail("it scales a parameter")
    return t.layer("scale", [x], last=x.last, factor=float(factor), shape=x.shape)


def _shifted(t: Translator, x: Value, offset: float) -> Value:
    if not isinstance(x, Value):
        raise t.fail("its input does not depend on the image")
    return x if offset == 0 else t.layer("shift", [x], last=x.last, offset=float(offset))


@rule("add")
def add(t: Translator, x: Any, other: Any, alpha: Any = 1) -> Any:
    if isinstance(other, Uniform) or isinstance(x, Uniform):
        drawn, low = (x, other) if isinstance(x, Uniform) else (other, x)
        return Uniform(drawn.low + t.constant(low, "bound"))
    if _is_number(other):
        return _shifted(t, x, other * alpha)
    if _is_number(x):
        return _shifted(t, _scaled(t, other, alpha), x)
    return _pair(t, "add", x, _scaled(t, other, alpha))


@rule("sub")
def sub(t: Translator, x: Any, other: Any, alpha: Any = 1) -> Value:
    if isinstance(x, Value) and isinstance(other, Value) and alpha == 1:
        return _pair(t, "subtract", x, other)
    return add(t, x, other, -alpha)


@rule("rsub")
def rsub(t: Translator, x: Any, other: Any, alpha: Any = 1) -> Value:
    return add(t, other, x, -alpha)


@rule("mul")
def mul(t: Translator, x: Any, other: Any) -> Value:
    if isinstance(other, Noise) and isinstance(x, Value):
        return _drop_samples(t, x, other)
    if isinstance(x, Noise):
        return mul(t, other, x)
    if _is_number(other):
        return _scaled(t, x, other)
    if _is_number(x):
        return _scaled(t, other, x)
    return _pair(t, "multiply", x, other)


@rule("div")
def div(t: Translator, x: Any, other: Any, rounding_mode: Any = None) -> Any:
    if isinstance(x, Noise) and other == x.p:
        return Noise(x.p, divided=True)
    if not _is_number(other) or rounding_mode is not None:
        raise t.fail("it divides by a tensor")
    return _scaled(t, x, 1 / other)


@rule("sum")
def sum_(t: Translator, x: Any, dim: Any = None, **_: Any) -> Value:
    if not isinstance(x, Stack) or dim not in (0, [0]):
        raise t.fail("there is no rule for it, but for torch.stack(...).sum(0)")
    return t.layer("add", x.values, last=x.values[0].last)


@rule("neg")
def neg(t: Translator, x: Any) -> Value:
    return _scaled(t, x, -1.0)


# --- noise ---
#
# Stochastic depth is written out in modules: a number of 0 or 1 for each sample, drawn and divided by its probability.


@rule("empty", "new_empty")
def empty(t: Translator, **_: Any) -> Noise | None:
    shape = t.shape()
    if any(same(n, 0) for n in shape):
        return None
    if any(n != 1 for n in shape[1:]):
        raise t.fail("it makes a tensor that is not one number for each sample")
    return Noise(1.0)


@rule("bernoulli")
def bernoulli(t: Translator, x: Any, p: Any = None, **_: Any) -> Noise:
    if not isinstance(x, Noise) or not _is_number(p):
        raise t.fail("it draws other numbers than 0 or 1 for each sample")
    return Noise(float(p))


@rule("rand")
def rand(t: Translator, **_: Any) -> Uniform:
    empty(t)
    return Uniform()


@rule("floor")
def floor(t: Translator, x: Any) -> Noise:
    if not isinstance(x, Uniform) or not 0 < x.low < 1:
        raise t.fail("there is no rule for it")
    return Noise(x.low)


def _drop_samples(t: Translator, x: Value, noise: Noise) -> Value:
    """The layer divides by the probability: where the module has divided the image by it, that is taken back."""
    made = t.made_by(x)
    if not noise.divided:
        if made is None or made["kind"] != "scale" or abs(made["factor"] * noise.p - 1) > 1e-6:
            raise t.fail("it drops samples without a division by the probability that they are kept")
        x = Value(made["in"], x.shape, x.last)
    return t.layer("dropout_samples", [x], last=x.last, p=1 - noise.p)
