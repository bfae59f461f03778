"""A network as a function of arrays, with gradients: for losses, updates and checks of one's own.

>>> import numpy as np
>>> network = Network("unet", base=4, depth=1)
>>> x = np.random.default_rng(1).normal(size=(1, 3, 16, 16)).astype(np.float32)
>>> with Session(network, mesh="space=2x1") as session, Exec(session, x.shape, gradients=True) as function:
...     y = function.forward(x)
...     gradients = function.backward(2 * y)          # of the sum of squares
>>> y.shape, gradients["image"].shape, gradients["enc0.conv0.weight"].shape
((1, 2, 16, 16), (1, 3, 16, 16), (4, 3, 3, 3))
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import _calls, session as _session
from ._native import AXES, F32, GraphOptions, Shape, lib
from .arrays import DeviceArray, as_dtype, empty_like, is_on_gpu, pointer
from .errors import UsageError
from .network import Network
from .session import Session, devices


def _shape(size: tuple[int, ...]) -> Shape:
    """N, C and extents as the library's axes."""
    n, channels, *extents = size
    return Shape((ctypes.c_int64 * AXES)(n, *[1] * (3 - len(extents)), *extents, channels))


def _size(shape: Shape, axes: int) -> tuple[int, ...]:
    at = list(shape.at)
    return (at[0], at[4], *at[4 - (axes - 2) : 4])


@functools.cache
def _has_one_gpu() -> bool:
    """Ranks on several GPUs take parts of an array that only one of them reaches: it goes through host memory then."""
    return sum(device.name.startswith("cuda") for device in devices()) == 1


class Exec:
    """The session's network for images of one size (N, C, extents), on the session's mesh.

    `training`: batch statistics and dropout; otherwise running statistics. With `gradients` there is a backward pass.
    Arrays are whole, float32, numpy's or any with __dlpack__. A session has one exec or one trainer at a time.

    With `device="cuda"` and ranks on one GPU, tensors of that GPU are taken where they are and results come back as
    tensors there: one copy on the GPU each way, ordered behind the producer's stream. Elsewhere they go through host
    memory, and results are numpy's.
    """

    def __init__(
        self, session: Session, size: tuple[int, ...], *, training: bool = False, gradients: bool = False
    ) -> None:
        if session.network is None and session.options["model.name"] is None:
            raise UsageError("the session has no network: give it one")
        self.session = session
        self.size = tuple(int(n) for n in size)
        self._handle: int | None = None
        self._graph = lib.wf_graph_new(ctypes.byref(GraphOptions(training=training)))
        self._end = weakref.finalize(self, _free, None, self._graph)
        self._build(gradients)
        handle = _calls.call(session.handle, lib.wf_exec_new, session.handle, self._graph)
        self._end.detach()
        self._handle = handle
        self._end = weakref.finalize(self, _free, handle, self._graph)
        self._weights = _Weights(self, self._layers())
        if session.network is not None and session.network.weights is not None:
            self._weights.update(session.network.weights)

    def _layers(self) -> Network:
        network = self.session.network
        return network if network is not None else Network(self.session.options["model.name"] or "")

    def _build(self, gradients: bool) -> None:
        graph = self._graph
        image = lib.wf_input(graph, b"image", F32, _shape(self.size))
        result = lib.wf_model_add(graph, image, self.session.options._handle)
        _calls.finish(lib.wf_graph_ok, graph)
        lib.wf_graph_output(graph, result)
        self._result: bytes = lib.wf_value_name(result)
        self.shape = _size(lib.wf_value_shape(result), len(self.size))
        self._image_gradient: bytes | None = None
        if not gradients:
            return
        given = lib.wf_input(graph, b"gradient", F32, lib.wf_value_shape(result))
        of, into = (ctypes.c_void_p * 1)(image), (ctypes.c_void_p * 1)()
        _calls.finish(lib.wf_graph_grad, graph, result, given, 1, of, into)
        lib.wf_graph_output(graph, into[0])
        self._image_gradient = lib.wf_value_name(into[0])

    @property
    def handle(self) -> int:
        """The C handle."""
        if self._handle is None:
            raise _session._closed("exec")
        return self._handle

    @property
    def weights(self) -> Mapping[str, np.ndarray]:
        """Weights and running statistics by name: copies; assigning sets one."""
        return self._weights

    def _stays_on_gpu(self, array: Any) -> bool:
        return (is_on_gpu(array) and self.session.options["run.device"] == "cuda" and self.session.size == 1
                and _has_one_gpu())

    def _put(self, name: bytes, array: Any, shape: tuple[int, ...], what: str) -> None:
        if self._stays_on_gpu(array):
            there = DeviceArray(array)
            if there.size != int(np.prod(shape)):
                raise UsageError(f"{what} of shape {there.shape}: give {shape}")
            _calls.finish(lib.wf_exec_put_device, self.handle, name, there.pointer, there.size)
            return
        given = as_dtype(array, np.float32)
        if given.size != int(np.prod(shape)):
            raise UsageError(f"{what} of shape {given.shape}: give {shape}")
        _calls.finish(lib.wf_exec_put, self.handle, name, pointer(given), given.size)

    def _get(self, name: bytes, shape: tuple[int, ...], like: Any = None) -> Any:
        if like is not None and self._stays_on_gpu(like):
            there = DeviceArray(empty_like(like, shape))
            _calls.finish(lib.wf_exec_get_device, self.handle, name, there.pointer, there.size)
            return there.array
        array = np.empty(shape, np.float32)
        _calls.finish(lib.wf_exec_get, self.handle, name, pointer(array), array.size)
        return array

    def forward(self, image: Any) -> Any:
        """The network's result for a batch of images: numpy's, or a tensor on the GPU where the images are one."""
        self._put(b"image", image, self.size, "images")
        if self._image_gradient is not None:
            self._put(b"gradient", np.zeros(self.shape, np.float32), self.shape, "a gradient")
        _calls.call(self.session.handle, lib.wf_exec_step, self.handle)
        return self._get(self._result, self.shape, image)

    def backward(self, gradient: Any) -> dict[str, Any]:
        """Gradients of a loss whose gradient by the last result is given: of all weights by name, and of the "image". The
        forward pass runs again with it."""
        if self._image_gradient is None:
            raise UsageError("this exec has no backward pass: make it with gradients=True")
        self._put(b"gradient", gradient, self.shape, "a gradient")
        _calls.call(self.session.handle, lib.wf_exec_step, self.handle)
        found = {"image": self._get(self._image_gradient, self.size, gradient)}
        for name, shape in self._weights.trained():
            found[name] = self._get(b"grad." + name.encode(), shape, gradient)
        return found

    def close(self) -> None:
        """Frees it."""
        if self._handle is not None:
            self._handle = None
            self._end()

    def __enter__(self) -> Exec:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Weights(Mapping[str, np.ndarray]):
    """By name; the graph's values that are weights are found through the network's layers."""

    def __init__(self, owner: Exec, network: Network) -> None:
        self._owner = weakref.proxy(owner)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._frozen: set[str] = set()
        spec = network.spec if network.spec is not None else network.layers()
        for layer in spec["layers"]:
            for part in ("weight", "bias", "running_mean", "running_var"):
                self._find(f"{layer['name']}.{part}", layer, int(spec.get("dims", 2)))

    def _find(self, name: str, layer: Mapping[str, Any], dims: int) -> None:
        value = lib.wf_graph_find(self._owner._graph, name.encode())
        if value is None:
            return
        at = list(lib.wf_value_shape(value).at)  # kernels have their output channels as N and their input as C
        shape: tuple[int, ...] = (at[4],)
        if layer["kind"] in ("conv", "conv_transpose", "linear") and name.endswith(".weight"):
            extents = at[4 - dims : 4] if layer["kind"] != "linear" else []
            shape = (at[0], at[4], *extents)
        self._shapes[name] = shape
        if layer.get("frozen") or "running_" in name:
            self._frozen.add(name)

    def trained(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, shape) for name, shape in self._shapes.items() if name not in self._frozen]

    def __getitem__(self, name: str) -> np.ndarray:
        return self._owner._get(name.encode(), self._shapes[name])

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._shapes:
            raise UsageError(f"the network has no weight '{name}'")
        self._owner._put(name.encode(), value, self._shapes[name], f"'{name}'")

    def update(self, weights: Mapping[str, Any]) -> None:
        """Sets several."""
        for name, value in weights.items():
            self[name] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def _free(handle: int | None, graph: int) -> None:
    if handle is not None:
        lib.wf_exec_free(handle)
    lib.wf_graph_free(graph)
