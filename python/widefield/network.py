"""Networks: those of the library, of a network file, of a PyTorch module."""

from __future__ import annotations

import ctypes
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _calls, netfile, safetensors
from ._native import F32, GraphOptions, Shape, lib
from .errors import UsageError
from .options import Options, from_keywords

WEIGHTS = "weights.safetensors"


def models() -> dict[str, str]:
    """The library's networks: name and description.

    >>> "unet" in models()
    True
    """
    count = lib.wf_model_count()
    return {lib.wf_model_name(i).decode(): lib.wf_model_about(i).decode() for i in range(count)}


class Network:
    """What is trained: the name of a network of the library with its options, or a list of layers of one's own.

    >>> Network("unet", base=8, depth=3)
    Network('unet', base=8, depth=3)

    `weights` are its initial ones by name, numpy arrays in PyTorch's layout, or None: as the seed says. `spec` is the
    list of layers (see docs/networks.md), or None for a network of the library.
    """

    def __init__(
        self,
        name: str,
        *,
        spec: Mapping[str, Any] | None = None,
        weights: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.spec: dict[str, Any] | None = dict(spec) if spec is not None else None
        self.weights: dict[str, np.ndarray] | None = (
            {key: np.asarray(value) for key, value in weights.items()} if weights is not None else None
        )
        self.options = {key: value for key, value in options.items() if value is not None}
        # Names in the module that it was made from, where they differ from those of the weights.
        self.torch_names: dict[str, str] = {}
        self._file: pathlib.Path | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], weights: Any = None, **options: Any) -> Network:
        """A network file (YAML or JSON). `weights` is a mapping or a safetensors file; None takes the file
        weights.safetensors beside a network that save() wrote, where there is one."""
        file = pathlib.Path(path)
        if file.is_dir():
            file = file / "net.yaml"
        if not file.exists():
            raise UsageError(f"'{file}': there is no such network file")
        beside = file.parent / WEIGHTS
        if weights is None and beside.exists():
            weights = beside
        if isinstance(weights, (str, os.PathLike)):
            weights = safetensors.load(weights)
        network = cls(str(file), weights=weights, **options)
        network._file = file
        return network

    def save(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Writes net.yaml, and weights.safetensors where it has weights, into a folder; the network file's path. The
        command takes both: model.name=FOLDER/net.yaml model.weights=FOLDER/weights.safetensors."""
        target = pathlib.Path(folder)
        if self.spec is None and self._file is None:
            raise UsageError(f"'{self.name}' is a network of the library: its name and options are all there is to save")
        target.mkdir(parents=True, exist_ok=True)
        path = target / "net.yaml"
        if self.spec is not None:
            netfile.write(path, self.spec)
        elif self._file is not None and not (path.exists() and path.samefile(self._file)):
            path.write_bytes(self._file.read_bytes())
        if self.weights is not None:
            safetensors.save(target / WEIGHTS, self.weights)
        return path

    def _place(self) -> pathlib.Path:
        """A folder of its own with its files, for the library to read."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="widefield-")
        return pathlib.Path(self._folder.name)

    def apply(self, options: Options) -> None:
        """Sets the options that make a session use this network."""
        if self.spec is not None:
            path = self.save(self._place())
            options["model.name"] = path
        else:
            options["model.name"] = self._file if self._file is not None else self.name
            if self.weights is not None:
                safetensors.save(self._place() / WEIGHTS, self.weights)
        if self.weights is not None:
            options["model.weights"] = self._place() / WEIGHTS
        for key, value in from_keywords(self.options, "model").items():
            options[key] = value

    def check(self, size: tuple[int, ...], training: bool = True) -> tuple[int, ...]:
        """Builds it for images of this size (N, C, extents): the shape of the prediction. UsageError where layers do not
        fit together; nothing runs."""
        graph = lib.wf_graph_new(ctypes.byref(GraphOptions(training=training)))
        options = Options()
        self.apply(options)
        try:
            n, channels, *extents = size
            shape = Shape((ctypes.c_int64 * 5)(n, *[1] * (3 - len(extents)), *extents, channels))
            image = lib.wf_input(graph, b"image", F32, shape)
            result = lib.wf_model_add(graph, image, options._handle)
            _calls.finish(lib.wf_graph_ok, graph)
            made = list(lib.wf_value_shape(result).at)
            self.parameters: int = lib.wf_graph_parameters(graph, True)
        finally:
            lib.wf_graph_free(graph)
        return (made[0], made[4], *made[4 - len(extents) : 4])

    def layers(self) -> dict[str, Any]:
        """Its list of layers, also of a network of the library: what `spec` of another one may be made from.

        >>> Network("unet", base=4, depth=1, classes=2).layers()["layers"][0]["name"]
        'enc0.conv0'
        """
        options = Options()
        self.apply(options)
        text = _calls.finish(lib.wf_model_text, options._handle)
        try:
            return netfile.parse(ctypes.string_at(text).decode())
        finally:
            lib.wf_text_free(text)

    def plan(self, size: tuple[int, ...], **options: Any) -> Any:
        """Memory, messages and time of a training step on images of this size (N, C, extents); nothing runs."""
        from .session import Session

        with Session(self, **options) as session:
            return session.plan(size)

    def verify(self, size: tuple[int, ...], **options: Any) -> Any:
        """One step on the mesh against the same step on one rank."""
        from .session import Session

        with Session(self, **options) as session:
            return session.verify(size)

    def to_torch(self, module: Any = None, weights: Mapping[str, Any] | None = None) -> Any:
        """Weights of Widefield in PyTorch. With a module they are loaded into it, by its names; without one a
        torch.nn.Module is built from the list of layers. `weights` are a trainer's; None: the network's own."""
        from . import to_torch

        return to_torch.to_torch(self, module, weights)

    def __repr__(self) -> str:
        extra = "".join(f", {key}={value!r}" for key, value in self.options.items())
        if self.spec is not None:
            extra += f", {len(self.spec['layers'])} layers"
        if self.weights is not None:
            extra += f", {sum(w.size for w in self.weights.values()):,} numbers"
        return f"Network({self.name!r}{extra})"


def as_network(network: Network | str | os.PathLike[str]) -> Network:
    """A network of what a user gives: itself, the name of one, or the path of a network file."""
    if isinstance(network, Network):
        return network
    text = os.fspath(network)
    if os.sep in text or text.endswith((".yaml", ".yml", ".json")):
        return Network.from_file(text)
    return Network(text)
