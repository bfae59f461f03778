"""Arrays of other libraries as numpy arrays, without a copy where that is possible."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .errors import UsageError

CPU_DEVICES = (1, 3)  # DLPack: kDLCPU, kDLCUDAHost
CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
FLOAT = 2  # kDLFloat
DEFAULT_STREAM = 1  # CUDA's legacy default stream, in the numbers of __dlpack__(stream=)


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


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def is_on_gpu(x: Any) -> bool:
    """Whether it is an array in the memory of a CUDA device."""
    return hasattr(x, "__dlpack_device__") and int(x.__dlpack_device__()[0]) in CUDA_DEVICES


class DeviceArray:
    """The elements of an array of another library where they are, contiguous float32, for as long as this lives.

    The producer is asked to order its work before what is on CUDA's default stream, which the library waits for: what
    another stream of PyTorch still computes is complete when it is read, and memory that one still reads is not written.
    """

    def __init__(self, x: Any) -> None:
        if hasattr(x, "detach"):  # PyTorch
            x = x.detach().float().contiguous()
        self.array = x
        self._capsule = x.__dlpack__(stream=DEFAULT_STREAM)
        tensor = ctypes.cast(_capsule_pointer(self._capsule, b"dltensor"), ctypes.POINTER(_DLTensor))[0]
        self.shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        if (tensor.code, tensor.bits, tensor.lanes) != (FLOAT, 32, 1):
            raise UsageError(f"an array of DLPack type {tensor.code} of {tensor.bits} bits on a GPU: give float32")
        expected = 1
        for i in reversed(range(tensor.ndim)):
            if tensor.strides and self.shape[i] != 1 and tensor.strides[i] != expected:
                raise UsageError(f"an array of shape {self.shape} on a GPU that is not contiguous: copy it first")
            expected *= self.shape[i]
        self.size = expected
        self.pointer = (tensor.data or 0) + tensor.byte_offset


def empty_like(x: Any, shape: tuple[int, ...]) -> Any:
    """A new float32 array of the library and on the device of `x`."""
    if hasattr(x, "new_empty"):  # PyTorch
        return x.detach().float().new_empty(shape)
    return type(x)(shape, dtype="float32")  # CuPy's ndarray
