"""Networks of PyTorch modules: torch.export gives the operations, rules (torch_rules.py) make layers of them.

A value of the exported graph is an image [N, C, *spatial] or a vector [N, C], which a layer makes; a parameter; or a
number. Extents are symbols of the image's: where an operation takes a size, another value of the same symbolic extents
is found, and the layer is `like` it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .errors import UnsupportedError, UsageError
from .network import Network

log = logging.getLogger("widefield")

NORMS = ("batch_norm", "instance_norm", "group_norm", "layer_norm")
FUSED = ("relu", "leaky_relu")


@dataclasses.dataclass(frozen=True)
class Value:
    """What a layer makes. `shape` is PyTorch's, with symbols; `last`: it has its channels last there."""

    layer: str
    shape: tuple[Any, ...]
    last: bool = False

    @property
    def extents(self) -> tuple[Any, ...]:
        """Along the spatial axes."""
        return self.shape[1:-1] if self.last else self.shape[2:]

    @property
    def channels(self) -> Any:
        return self.shape[-1] if self.last else self.shape[1]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter or buffer of the module, or a constant; `target` is its name there."""

    target: str
    shape: tuple[int, ...]


@dataclasses.dataclass(eq=False)
class Noise:
    """0 or 1 for each sample, 1 with probability `p`: what stochastic depth multiplies with. `divided`: by `p`."""

    p: float
    divided: bool = False


@dataclasses.dataclass(eq=False)
class Uniform:
    """A number for each sample between `low` and `low` + 1: drop connect draws such, and rounds down."""

    low: float = 0.0


@dataclasses.dataclass(frozen=True)
class Stack:
    """Values side by side along a new axis."""

    values: tuple[Value, ...]
    axis: int = 0

    def is_along(self, dim: Any) -> bool:
        """A dim of a reduction: this axis alone."""
        dims = dim if isinstance(dim, (list, tuple)) else [dim]
        return len(dims) == 1 and dims[0] is not None and dims[0] % (len(self.values[0].shape) + 1) == self.axis


@dataclasses.dataclass(frozen=True)
class Cropped:
    """An image of which a part is taken whose extents become another value's when other axes are cut too."""

    image: Value
    shape: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Grouped:
    """An image whose channels are seen as groups, [N, groups, C / groups, ...], or the other way round."""

    image: Value
    groups: int
    swapped: bool = False


@dataclasses.dataclass(frozen=True)
class Blocks:
    """An image whose channels are seen as channels of blocks of positions, [N, C / f^d, f, ..., *extents], or `moved`: each
    f behind its extent."""

    image: Value
    factor: int
    moved: bool = False


# Sizes of images at which symbolic extents are compared: all remainders of 64, and some far ones. Networks have
# extents of divisions by powers of two, which sympy does not tell apart by itself. The second list is of images that
# every network takes: modules that refuse others have extents that are equal there only.
POINTS = (*range(640, 704), 1023, 2049, 4095, 8190, 99991)
EVEN = (640, 704, 1280, 4096, 8192)
_seen: dict[tuple[Any, bool], tuple[Any, ...]] = {}


def _numbers(x: Any, even: bool) -> tuple[Any, ...]:
    """An extent at all points, or as it is where it has no symbols."""
    points = EVEN if even else POINTS
    if isinstance(x, int):
        return (x,) * len(points)
    expression = getattr(getattr(x, "node", None), "expr", x)
    key = (expression, even)
    if key not in _seen:
        symbols = sorted(getattr(expression, "free_symbols", ()), key=str)
        # Other factors for other axes, so that height and width are not taken for each other.
        _seen[key] = tuple(
            int(expression.xreplace({s: _integer(p * (1, 3, 5, 7)[i % 4]) for i, s in enumerate(symbols)}).doit())
            if symbols else int(expression)
            for p in points
        )  # fmt: skip
    return (tuple(str(s) for s in sorted(getattr(expression, "free_symbols", ()), key=str)), *_seen[key])


def _integer(n: int) -> Any:
    import sympy

    return sympy.Integer(n)


def same(a: Any, b: Any, even: bool = False) -> bool:
    """Two extents are equal for every size of the image, or for every `even` one."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if isinstance(a, int) or isinstance(b, int):
        left, right = ((x,) if isinstance(x, int) else set(_numbers(x, even)[1:]) for x in (a, b))
        return set(left) == set(right)
    return _numbers(a, even) == _numbers(b, even)


class Translator:
    """Walks over an exported program. Rules call layer(), and look at what is here."""

    def __init__(self, program: Any, dims: int) -> None:
        self.program = program
        self.dims = dims
        self.values: dict[Any, Any] = {}  # of nodes
        self.layers: list[dict[str, Any]] = []
        self.made: list[Value] = []  # in order, the image first
        self.weights: dict[str, np.ndarray] = {}
        self.torch_names: dict[str, str] = {}
        self.owners: dict[str, str] = {}  # of weights that are shared: parameter to layer
        self.origins: dict[str, tuple[str, str, str]] = {}  # of layers: node, operator, module
        self.names = {"image"}
        self.node: Any = None
        self.state = {**dict(program.state_dict), **dict(program.constants)}
        signature = program.graph_signature
        self.targets = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **getattr(signature, "inputs_to_lifted_tensor_constants", {}),
        }
        self.inputs = list(signature.user_inputs)

    # --- names and errors ---

    def module(self) -> tuple[str, str]:
        """Path and class of the module that the node comes from."""
        stack = list((self.node.meta.get("nn_module_stack") or {}).values()) if self.node is not None else []
        if not stack or str(stack[-1][0]).startswith("_empty"):
            return "", ""
        path, kind = stack[-1][0], stack[-1][1]
        return str(path), kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"

    def fail(self, why: str) -> UnsupportedError:
        """An error that names the node, the operator and the module."""
        path, kind = self.module()
        operator = str(self.node.target)
        where = f"module '{path}' ({kind.rpartition('.')[2]})" if path else "the module's own forward()"
        return UnsupportedError(f"{where}, node '{self.node.name}', operator {operator}: {why}",
                                self.node.name, operator, path)  # fmt: skip

    def unique(self, name: str) -> str:
        """A name that no layer has."""
        plain = re.sub(r"[^A-Za-z0-9_.\-/]", "_", name) or "layer"
        found, n = plain, 1
        while found in self.names:
            n += 1
            found = f"{plain}_{n}"
        self.names.add(found)
        return found

    def free_name(self) -> str:
        """For a layer without weights: the module's path where that is the operation, else path and operation."""
        path, kind = self.module()
        if path and kind.startswith("torch.nn.modules.") and "container" not in kind:
            return self.unique(path)
        return self.unique(f"{path}.{self.node.name}" if path else self.node.name)

    # --- layers ---

    def shape(self, node: Any = None) -> tuple[Any, ...]:
        """Of the node's result, with symbols; of one of several results the first."""
        value = (node if node is not None else self.node).meta.get("val")
        if isinstance(value, (tuple, list)):
            value = value[0]
        return tuple(value.shape)

    def layer(
        self, kind: str, inputs: Sequence[Value], *, name: str | None = None, shape: Any = None, last: bool = False,
        **attributes: Any,
    ) -> Value:  # fmt: skip
        """Adds one; attributes that are None are left out."""
        made: dict[str, Any] = {"name": name or self.free_name(), "kind": kind}
        names = [value.layer for value in inputs]
        made["in"] = names[0] if len(names) == 1 else names
        made.update({key: value for key, value in attributes.items() if value is not None})
        path, _ = self.module()
        self.origins[made["name"]] = (self.node.name, str(self.node.target), path)
        self.layers.append(made)
        value = Value(made["name"], tuple(shape) if shape is not None else self.shape(), last)
        self.made.append(value)
        return value

    def weighted(
        self, kind: str, inputs: Sequence[Value], tensors: Mapping[str, Any], *, shapes: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> Value:  # fmt: skip
        """Adds a layer with weights: `tensors` are parameters by the last part of their name ("weight"), `shapes` those
        that a tensor has here where PyTorch's differs."""
        given = {part: p for part, p in tensors.items() if p is not None}
        for part, parameter in given.items():
            if not isinstance(parameter, Parameter):
                raise self.fail(f"its {part} is computed, not a parameter of the module: weights are parameters")
        first = next(iter(given.values()), None)
        if first is None:
            return self.layer(kind, inputs, **attributes)
        owner = self.owners.get(first.target)
        prefix = first.target.rpartition(".")[0]
        if owner is not None:
            return self.layer(kind, inputs, name=self.unique(prefix or owner), weights=owner, **attributes)
        name = self.unique(prefix) if prefix else self.free_name()
        self.owners[first.target] = name
        trained = False
        for part, parameter in given.items():
            tensor = self.state[parameter.target]
            trained = trained or bool(getattr(tensor, "requires_grad", False))
            array = tensor.detach().cpu().float().numpy()
            self.weights[f"{name}.{part}"] = array.reshape((shapes or {}).get(part, array.shape)).copy()
            if parameter.target not in self.program.state_dict:  # computed of a buffer, or a constant of forward()
                self.torch_names[f"{name}.{part}"] = ""
            elif parameter.target != f"{name}.{part}":
                self.torch_names[f"{name}.{part}"] = parameter.target
        # Running statistics alone have nothing to train, and are still of batches in training.
        fixed = not trained and any(not part.startswith("running_") for part in given)
        frozen = True if attributes.pop("frozen", False) or fixed else None
        return self.layer(kind, inputs, name=name, frozen=frozen, **attributes)

    def made_by(self, value: Value) -> dict[str, Any] | None:
        """The layer that makes a value; None: it is the image."""
        return next((layer for layer in reversed(self.layers) if layer["name"] == value.layer), None)

    # --- sizes ---

    def find_like(self, extents: Sequence[Any]) -> str | None:
        """The first value that always has these extents."""
        for even in (False, True):
            for value in self.made:
                mine = value.extents
                if len(mine) == len(extents) and all(same(a, b, even) for a, b in zip(mine, extents)):
                    return value.layer
        return None

    def number(self, x: Any) -> Any:
        """A number that a node computes, as it is, or with its symbol."""
        return x.meta["val"] if hasattr(x, "meta") else x

    def constant(self, x: Any, what: str) -> float:
        """A number that does not depend on the image's size."""
        x = self.number(x)
        if isinstance(x, (int, float)):
            return x
        raise self.fail(f"its {what} depends on the size of the image")

    # --- the walk ---

    def take_input(self, node: Any) -> None:
        if node.name in self.targets:
            target = self.targets[node.name]
            self.values[node] = Parameter(target, tuple(self.state[target].shape))
        elif node.name in self.inputs[:1]:
            value = Value("image", self.shape(node))
            self.values[node] = value
            self.made.append(value)
        else:
            raise UsageError(f"forward() takes more than one tensor ('{node.name}'): a network has one image")

    def value(self, x: Any) -> Any:
        """An argument of a node: nodes become their values, also in lists."""
        if isinstance(x, (list, tuple)):
            return [self.value(item) for item in x]
        return self.values.get(x, x) if hasattr(x, "meta") else x

    def run(self) -> list[Any]:
        """The values that the module returns."""
        from .torch_rules import apply

        for node in self.program.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                self.take_input(node)
            elif node.op == "call_function":
                apply(self, node)
            elif node.op == "output":
                return self.value(list(node.args[0]))
            else:
                raise self.fail(f"a node of kind {node.op}")
        return []


# --- behind the walk ---


def _readers(layers: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    readers: dict[str, list[Mapping[str, Any]]] = {}
    for layer in layers:
        inputs = layer["in"] if isinstance(layer["in"], list) else [layer["in"]]
        for name in inputs + ([layer["like"]] if "like" in layer else []):
            readers.setdefault(name, []).append(layer)
    return readers


def drop_unused(layers: list[dict[str, Any]], heads: Sequence[str]) -> list[dict[str, Any]]:
    """Without layers that no head depends on."""
    needed = set(heads)
    for layer in reversed(layers):
        if layer["name"] in needed:
            needed.update(layer["in"] if isinstance(layer["in"], list) else [layer["in"]])
            needed.update(layer[key] for key in ("like", "weights") if key in layer)
    return [layer for layer in layers if layer["name"] in needed]


def fuse_activations(layers: list[dict[str, Any]], heads: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """An activation that alone reads a normalisation becomes its `act`; and new names of heads."""
    readers = _readers(layers)
    by_name = {layer["name"]: layer for layer in layers}
    renamed: dict[str, str] = {}
    kept = []
    for layer in layers:
        source = by_name.get(layer["in"]) if isinstance(layer["in"], str) else None
        fuses = (
            layer["kind"] in FUSED
            and source is not None
            and source["kind"] in NORMS
            and "act" not in source
            and source["name"] not in heads
            and len(readers[source["name"]]) == 1
        )
        if fuses and source is not None:
            source["act"] = layer["kind"]
            if "slope" in layer:
                source["slope"] = layer["slope"]
            renamed[layer["name"]] = source["name"]
        else:
            kept.append(layer)
    for layer in kept:
        if isinstance(layer["in"], list):
            layer["in"] = [renamed.get(name, name) for name in layer["in"]]
        else:
            layer["in"] = renamed.get(layer["in"], layer["in"])
        if "like" in layer:
            layer["like"] = renamed.get(layer["like"], layer["like"])
    return kept, renamed


# --- the export ---


def _modes(module: Any) -> list[tuple[Any, bool]]:
    return [(m, m.training) for m in module.modules()]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's reports of sizes that it cannot follow: what comes of them is an error of ours."""
    loggers = [logging.getLogger(f"torch.{name}") for name in ("fx.experimental.symbolic_shapes", "_subclasses.fake_tensor")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def export(module: Any, example: Any) -> Any:
    """The module's operations in training, with symbols for batch and extents where it allows them."""
    import torch

    dims = example.dim() - 2
    auto = torch.export.Dim.AUTO
    tried: list[str] = []
    axes = {axis: auto for axis in (0, *range(2, 2 + dims))}
    multiples = [None, 2, 4, 8, 16, 32, 64]
    for multiple in multiples:
        spec: dict[int, Any] = dict(axes)
        if multiple is not None:
            spec = {0: auto}
            for axis in range(2, 2 + dims):
                if example.shape[axis] % multiple == 0 and example.shape[axis] > multiple:
                    spec[axis] = multiple * torch.export.Dim(f"_e{axis}", min=2)
        try:
            program = torch.export.export(module, (example,), dynamic_shapes=(spec,), strict=False)
        except Exception as cause:  # noqa: BLE001: whatever torch raises for a module that it cannot trace
            tried.append(f"{type(cause).__name__}: {cause}")
            continue
        if _is_dynamic(program, dims):
            return program
        tried.append("its sizes are fixed")
    log.warning("the module cannot be traced for all sizes (%s): sizes that are fixed in it stay so", tried[0].split("\n")[0])
    try:
        return torch.export.export(module, (example,), strict=False)
    except Exception as cause:  # noqa: BLE001
        raise UnsupportedError(f"torch.export cannot trace the module: {cause}") from cause


def _is_dynamic(program: Any, dims: int) -> bool:
    """The image's extents are symbols."""
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs:
            return all(not isinstance(n, int) for n in node.meta["val"].shape[2 : 2 + dims])
    return False


def _outputs(program: Any, values: Sequence[Any]) -> dict[str, Value]:
    """The module's results by name: keys of a dict, or numbers."""
    from torch.utils import _pytree

    structure = _pytree.tree_unflatten(list(range(len(values))), program.call_spec.out_spec)
    if isinstance(structure, dict):
        order = sorted(structure.items(), key=lambda item: item[0] != "out")
        pairs = [(str(key), index) for key, index in order]
    else:
        pairs = [(str(i), index) for i, index in enumerate(_pytree.tree_leaves(structure))]
    found = {key: values[index] for key, index in pairs if isinstance(index, int) and isinstance(values[index], Value)}
    if not found:
        raise UsageError("forward() returns no tensor that depends on the image")
    return found


def _heads(outputs: Mapping[str, Value], wanted: Any) -> dict[str, float]:
    """Layers and weights of the heads that are wanted."""
    if wanted is None:
        first = next(iter(outputs))
        if len(outputs) > 1:
            log.info("forward() returns %s: the first is the prediction, others are left out (heads= takes them)",
                     ", ".join(outputs))  # fmt: skip
        return {outputs[first].layer: 1.0}
    pairs = wanted.items() if isinstance(wanted, Mapping) else zip(outputs, wanted)
    found: dict[str, float] = {}
    for key, weight in pairs:
        if str(key) not in outputs:
            raise UsageError(f"forward() returns no '{key}': it returns {', '.join(outputs)}")
        if weight:
            found[outputs[str(key)].layer] = float(weight)
    return found


def _as_example(example: Any) -> Any:
    import torch

    if isinstance(example, (tuple, list)) and all(isinstance(n, int) for n in example):
        example = torch.zeros(*example)
    tensor = torch.as_tensor(np.asarray(example) if not isinstance(example, torch.Tensor) else example)
    if not 3 <= tensor.dim() <= 5:
        raise UsageError(f"an example of shape {tuple(tensor.shape)}: give a batch [N, C, *spatial] with 1 to 3 extents")
    if tensor.shape[0] < 2:  # torch.export takes an axis of 1 for fixed
        tensor = tensor.expand(2, *tensor.shape[1:])
    return tensor.detach().float()


def from_torch(module: Any, example: Any, *, name: str | None = None, heads: Any = None, check: bool = True) -> Network:
    """A Network of a PyTorch module, with its weights under the names of module.state_dict().

        network = widefield.from_torch(module, torch.zeros(1, 3, 256, 256))
        trainer = widefield.Trainer(network, data, mesh="space=2x1")
        ...
        trainer.to_torch(module)

    `example` is a batch of images, or its shape. A module in eval() mode is traced as in training; one in train() mode as
    it is, so that batch norms in it that are in eval() mode stay frozen. `heads` are weights of the losses of what forward()
    returns, by key or position; None: the first result alone, "out" of a dict. UnsupportedError names the node, the
    operator and the module of what has no rule.
    """
    import torch

    if not hasattr(torch, "export") or not hasattr(torch.export.Dim, "AUTO"):
        raise UsageError(f"from_torch() needs PyTorch 2.6 or newer, this is {torch.__version__}")
    tensor = _as_example(example)
    module = module.to("cpu") if any(p.device.type != "cpu" for p in module.parameters()) else module
    modes = _modes(module)
    try:
        if not module.training:
            module.train()
        with torch.no_grad(), _quiet():
            program = export(module, tensor)
    finally:
        for part, mode in modes:
            part.training = mode
    translator = Translator(program, tensor.dim() - 2)
    found = _heads(_outputs(program, translator.run()), heads)
    network = _network(translator, found, tensor, name or type(module).__name__)
    if check:
        _check(network, translator, tuple(tensor.shape))
    return network


def _network(t: Translator, heads: Mapping[str, float], example: Any, name: str) -> Network:
    layers, renamed = fuse_activations(drop_unused(t.layers, list(heads)), list(heads))
    used = {layer["name"] for layer in layers}
    entries: list[Any] = [
        {"layer": renamed.get(layer, layer), "weight": weight} for layer, weight in heads.items()
    ]
    if len(entries) == 1 and entries[0]["weight"] == 1.0:
        entries = [entries[0]["layer"]]
    weights = {key: array for key, array in t.weights.items() if key.rpartition(".")[0] in used}
    spec = {"name": name, "dims": t.dims, "in": int(example.shape[1]), "size": list(example.shape[2:]), "layers": layers,
            "heads": entries}  # fmt: skip
    network = Network(name, spec=spec, weights=weights)
    network.torch_names = {key: target for key, target in t.torch_names.items() if key in weights}
    return network


def _check(network: Network, t: Translator, size: tuple[int, ...]) -> None:
    """The library builds it, and an error of a layer names the operation that it came from."""
    try:
        network.check(size)
    except UsageError as error:
        for name, (node, operator, module) in t.origins.items():
            if re.search(rf"'{re.escape(name)}'", str(error)):
                where = f"module '{module}', " if module else ""
                text = f"{where}node '{node}', operator {operator}: {error}"
                raise UnsupportedError(text, node, operator, module) from None
        raise
