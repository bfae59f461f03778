"""Arrays of other libraries as numpy arrays, without a copy where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import UsageError

CPU_DEVICES = (1, 3)  # DLPack: kDLCPU, kDLCUDAHost


def to_numpy(x: Any) -> np.ndarray:
    """A numpy array that shares memory with `x` where `x` is in host memory: a numpy array, an object with __dlpack__
    (PyTorch, JAX, CuPy), or what numpy.asarray() takes. A tensor of a GPU is copied to the host.

    >>> import numpy as np
    >>> a = np.zeros((2, 3), np.float32)
    >>> to_numpy(a) is a
    True
    """
    if isinstance(x, np.ndarray):
        return x
    if not hasattr(x, "__dlpack__"):
        return np.asarray(x)
    if hasattr(x, "detach"):  # PyTorch exports no tensor that requires a gradient
        x = x.detach()
    device = x.__dlpack_device__()[0]
    if int(device) not in CPU_DEVICES:
        if hasattr(x, "cpu"):
            x = x.cpu()
        elif hasattr(x, "get"):  # CuPy
            return np.asarray(x.get())
        else:
            raise UsageError(f"an array on DLPack device {device}: copy it to host memory first")
    return np.from_dlpack(x)


def as_dtype(x: Any, dtype: Any) -> np.ndarray:
    """The same, contiguous and of that type; a copy only where it is not yet."""
    return np.ascontiguousarray(to_numpy(x), dtype=dtype)


def pointer(a: np.ndarray | None) -> int | None:
    """Where its elements are; it has to live as long as that is used."""
    return a.ctypes.data if a is not None else None
