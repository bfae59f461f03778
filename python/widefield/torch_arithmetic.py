"""Rules of sums and products, with numbers, parameters and other images; and of noise that samples are dropped by."""

from __future__ import annotations

import math
from typing import Any

from . import torch_shapes
from .torch_import import Noise, Parameter, Stack, Translator, Uniform, Value, same
from .torch_rules import reduced, rule


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
    name, part = ("channel_scale", "weight") if kind == "multiply" else ("channel_shift", "bias")
    shared = True if count != x.channels else None
    return t.weighted(name, [x], {part: parameter}, shapes={part: (count,)}, last=x.last, shared=shared)


def _changed(t: Translator, parameter: Parameter, function: Any) -> Parameter:
    """A function of a buffer, which is as constant as the buffer."""
    tensor = t.state[parameter.target]
    if getattr(tensor, "requires_grad", False):
        raise t.fail(f"it computes with the parameter '{parameter.target}': only sums and products with images can be had")
    name = f"{parameter.target}.{t.node.name}"
    t.state[name] = function(tensor.detach())
    return Parameter(name, parameter.shape)


def scaled(t: Translator, x: Any, factor: float) -> Any:
    if factor == 1:
        return x
    if _is_number(x):
        return x * factor
    if isinstance(x, Parameter):
        return _changed(t, x, lambda tensor: tensor * factor)
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
        return _shifted(t, scaled(t, other, alpha), x)
    return _pair(t, "add", x, scaled(t, other, alpha))


@rule("sub")
def sub(t: Translator, x: Any, other: Any, alpha: Any = 1) -> Value:
    if isinstance(x, Value) and isinstance(other, Value) and alpha == 1:
        return _pair(t, "subtract", x, other)
    if isinstance(x, Parameter) and isinstance(other, Value):
        return _pair(t, "add", scaled(t, other, -alpha), x)
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
        return scaled(t, x, other)
    if _is_number(x):
        return scaled(t, other, x)
    return _pair(t, "multiply", x, other)


@rule("div")
def div(t: Translator, x: Any, other: Any, rounding_mode: Any = None) -> Any:
    if isinstance(x, Noise) and other == x.p:
        return Noise(x.p, divided=True)
    if rounding_mode is not None:
        raise t.fail("it rounds its quotients")
    if isinstance(other, Value):
        return mul(t, x, t.layer("reciprocal", [other], shape=other.shape, last=other.last))
    if isinstance(other, Parameter):
        return mul(t, x, _changed(t, other, lambda tensor: 1 / tensor))
    return scaled(t, x, 1 / other)


@rule("sum")
def sum_(t: Translator, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    if isinstance(x, Stack) and x.is_along(dim):
        return t.layer("add", x.values, last=x.values[0].last)
    return reduced(t, x, dim, keepdim, "global_sum", "sum")


@rule("var")
def var(t: Translator, x: Any, dim: Any = None, keepdim: bool = False, correction: Any = 1, unbiased: bool = True) -> Value:
    mean = reduced(t, x, dim, True, "global_pool", "mean")
    less = t.layer("subtract", [x, mean], shape=x.shape, last=x.last)
    square = t.layer("multiply", [less, less], shape=x.shape, last=x.last)
    y = reduced(t, square, dim, keepdim, "global_pool", "mean")
    less_by = (1 if correction is None else correction) if unbiased else 0
    if not less_by:
        return y
    axes = dim if isinstance(dim, (list, tuple)) else [dim]
    count = math.prod(int(t.constant(x.shape[n], "number of elements")) for n in axes)
    return scaled(t, y, count / (count - less_by))


@rule("std")
def std(t: Translator, x: Any, **arguments: Any) -> Value:
    y = var(t, x, **arguments)
    return t.layer("sqrt", [y], shape=y.shape, last=y.last)


@rule("linalg_vector_norm")
def vector_norm(t: Translator, x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    if ord != 2 or not isinstance(x, Value):
        raise t.fail("only the root of a sum of squares over parts of an image can be had")
    square = t.layer("multiply", [x, x], shape=x.shape, last=x.last)
    y = reduced(t, square, dim, keepdim, "global_sum", "sum")
    return t.layer("sqrt", [y], last=y.last)


# --- powers, the larger of two, and what is made of several layers ---


@rule("pow")
def power(t: Translator, x: Any, exponent: Any) -> Value:
    if not isinstance(x, Value) or not _is_number(exponent) or 2 * exponent % 1 or not 0 < abs(exponent) <= 8:
        raise t.fail("it is no constant power of an image up to 8, whole or with a half")
    factors = [x] * int(abs(exponent))
    if exponent % 1:
        factors.append(t.layer("sqrt", [x], last=x.last))
    y = factors[0] if len(factors) == 1 else t.layer("multiply", factors, last=x.last)
    return y if exponent > 0 else t.layer("reciprocal", [y], last=x.last)


@rule("square")
def square(t: Translator, x: Any) -> Value:
    return power(t, x, 2)


@rule("rsqrt")
def rsqrt(t: Translator, x: Any) -> Value:
    return power(t, x, -0.5)


def _two(t: Translator, x: Any, other: Any) -> None:
    alike = isinstance(x, Value) and isinstance(other, Value) and x.last == other.last and len(x.shape) == len(other.shape)
    if not alike or any(not same(a, b) for a, b in zip(x.shape, other.shape)):
        raise t.fail("its inputs are not two images of the same extents")


@rule("maximum")
def larger(t: Translator, x: Any, other: Any) -> Value:
    _two(t, x, other)
    above = t.layer("relu", [t.layer("subtract", [x, other], last=x.last)], last=x.last)
    return t.layer("add", [other, above], last=x.last)


@rule("minimum")
def smaller(t: Translator, x: Any, other: Any) -> Value:
    _two(t, x, other)
    above = t.layer("relu", [t.layer("subtract", [x, other], last=x.last)], last=x.last)
    return t.layer("subtract", [x, above], last=x.last)


@rule("glu")
def glu(t: Translator, x: Any, dim: int = -1) -> Value:
    a, b = torch_shapes.split_in_two(t, x, dim)
    return t.layer("multiply", [a, t.layer("sigmoid", [b], last=x.last)], last=x.last)


@rule("celu")
def celu(t: Translator, x: Any, alpha: float = 1.0) -> Value:
    return scaled(t, t.layer("elu", [scaled(t, x, 1 / alpha)], last=x.last), alpha)


@rule("log_softmax", "_log_softmax")
def log_softmax(t: Translator, x: Any, dim: int, **_: Any) -> Value:
    largest = reduced(t, x, dim, True, "global_max_pool", "max")
    below = t.layer("subtract", [x, largest], last=x.last)
    total = reduced(t, t.layer("exp", [below], last=x.last), dim, True, "global_sum", "sum")
    return t.layer("subtract", [below, t.layer("log", [total], shape=total.shape, last=x.last)], last=x.last)


@rule("addcmul")
def addcmul(t: Translator, x: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    first, second = (tensor1, tensor2) if isinstance(tensor1, Value) else (tensor2, tensor1)
    return add(t, x, scaled(t, _pair(t, "multiply", first, second), value))


@rule("neg")
def neg(t: Translator, x: Any) -> Value:
    return scaled(t, x, -1.0)


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
