"""Data to train on: folders of images, or arrays."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _calls, _native
from ._native import Arrays, DataInfo, lib
from .arrays import pointer, to_numpy
from .errors import InputError, UsageError
from .options import Options


class Data:
    """Images with labels. `Data("data/nuclei")` is a folder in any layout that the command knows; from_arrays() takes
    arrays.

    >>> import numpy as np
    >>> images = np.zeros((4, 1, 32, 32), np.float32)
    >>> labels = np.zeros((4, 32, 32), np.uint8)
    >>> labels[:, 8:16] = 1
    >>> data = Data.from_arrays(images, labels)
    >>> data.samples, data.channels, data.classes
    (4, 1, 2)

    `options` are keys of the section "data": `Data(path, format="pairs")`.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        settings = Options({f"data.{key}" if "." not in key else key: value for key, value in options.items()})
        handle = _calls.finish(lib.wf_data_open, os.fsencode(path), settings._handle)
        self._set(handle, None)

    def _set(self, handle: int, kept: Any) -> None:
        self._handle: int | None = handle
        self._kept = kept  # the library borrows the arrays
        self._end = weakref.finalize(self, lib.wf_data_free, handle)
        info = DataInfo()
        lib.wf_data_describe(handle, ctypes.byref(info))
        self.samples: int = info.samples
        self.dims: int = info.dims
        self.channels: int = info.channels
        self.per_image: bool = info.per_image
        names = [lib.wf_data_class(handle, label) for label in range(info.classes)]
        self.class_names: list[str] = [name.decode() if name else str(i) for i, name in enumerate(names)]

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.class_names)

    @property
    def handle(self) -> int:
        """The C handle."""
        if self._handle is None:
            raise UsageError("this data is closed")
        return self._handle

    @classmethod
    def from_arrays(
        cls,
        images: Any,
        labels: Any = None,
        *,
        validation: Any = None,
        raw: bool = False,
    ) -> Data:
        """Images [N, C, H, W] or [N, C, D, H, W] of float32 or uint8, or a list of [C, ...] of different sizes (then
        "data.crop" is set); labels [N, ...] of integers, one for each pixel (a negative one does not count), or [N],
        one for each image. `validation` marks the samples of the validation part. `raw`: pixels as they are; otherwise
        the mean of each channel becomes 0 and its deviation 1. The arrays are not copied where they have these types,
        and are not to change while the data is used."""
        blocks = _Blocks(images, labels)
        marks = None
        if validation is not None:
            marks = np.ascontiguousarray(validation, dtype=np.bool_)
            if marks.shape != (blocks.samples,):
                raise UsageError(f"validation marks of shape {marks.shape} for {blocks.samples} samples")
        blocks.arrays.validation = pointer(marks)
        blocks.arrays.raw = raw
        handle = _calls.finish(lib.wf_data_arrays, ctypes.byref(blocks.arrays))
        data = cls.__new__(cls)
        data._set(handle, (blocks, marks))
        return data

    def close(self) -> None:
        """Frees it; trainers that use it are closed before."""
        if self._handle is not None:
            self._handle = None
            self._end()

    def __len__(self) -> int:
        return self.samples

    def __enter__(self) -> Data:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        what = "labels of images" if self.per_image else f"{self.dims}D"
        return f"Data({self.samples} samples, {what}, {self.channels} channels, {self.classes} classes)"


def _pixels(image: Any) -> np.ndarray:
    """As float32 or uint8, contiguous."""
    array = to_numpy(image)
    return np.ascontiguousarray(array, dtype=np.uint8 if array.dtype == np.uint8 else np.float32)


def _classes(labels: Any) -> np.ndarray:
    """As int32 or uint8, contiguous."""
    array = to_numpy(labels)
    if array.dtype in (np.uint8, np.bool_):
        return np.ascontiguousarray(array, dtype=np.uint8)
    if array.dtype.kind not in "iu":
        raise InputError(f"labels of type {array.dtype}: give integers, one number for each class")
    if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        raise InputError(f"labels from {array.min()} to {array.max()}: they are classes from 0 up")
    return np.ascontiguousarray(array, dtype=np.int32)


class _Blocks:
    """struct wf_arrays and the arrays that it points to."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.arrays = Arrays()
        self.kept: list[Any] = []
        if isinstance(images, (list, tuple)):
            self._take_list([_pixels(image) for image in images])
        else:
            self._take_block(_pixels(images))
        if labels is not None:
            self._take_labels(labels)

    def _take_block(self, block: np.ndarray) -> None:
        if block.ndim not in (4, 5):
            raise UsageError(f"images of shape {block.shape}: give [N, C, H, W] or [N, C, D, H, W]")
        self.samples = block.shape[0]
        self.shapes = [block.shape[2:]] * self.samples
        self._describe(block.shape[2:], block.shape[1], block.dtype)
        self.arrays.image_block = pointer(block)
        self.kept.append(block)

    def _take_list(self, images: Sequence[np.ndarray]) -> None:
        if not images or any(i.ndim != images[0].ndim or i.dtype != images[0].dtype for i in images):
            raise UsageError("a list of images is not empty, and all have the same number of axes and the same type")
        if images[0].ndim not in (3, 4) or any(i.shape[0] != images[0].shape[0] for i in images):
            raise UsageError(f"images of shape {images[0].shape}: give [C, H, W] or [C, D, H, W], the same C in all")
        self.samples = len(images)
        self.shapes = [image.shape[1:] for image in images]
        extents = [n for shape in self.shapes for n in shape]
        self._describe(extents, images[0].shape[0], images[0].dtype, images[0].ndim - 1)
        self.arrays.sizes_differ = True
        self.arrays.images = self._pointers(images)

    def _describe(self, extents: Sequence[int], channels: int, dtype: Any, dims: int = 0) -> None:
        a = self.arrays
        a.samples, a.channels, a.dims = self.samples, channels, dims or len(extents)
        numbers = (ctypes.c_int64 * len(extents))(*extents)
        self.kept.append(numbers)
        a.extents = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64))
        a.image_dtype = _native.U8 if dtype == np.uint8 else _native.F32

    def _pointers(self, arrays: Sequence[np.ndarray]) -> Any:
        numbers = (ctypes.c_void_p * len(arrays))(*[pointer(a) for a in arrays])
        self.kept += [numbers, arrays]
        return ctypes.cast(numbers, ctypes.POINTER(ctypes.c_void_p))

    def _take_labels(self, labels: Any) -> None:
        a = self.arrays
        if isinstance(labels, (list, tuple)) and len(labels) and np.ndim(labels[0]) > 0:
            maps = [_classes(one) for one in labels]
            if any(m.dtype != maps[0].dtype for m in maps):
                maps = [m.astype(np.int32) for m in maps]
            self._check([m.shape for m in maps])
            a.label_dtype = _native.U8 if maps[0].dtype == np.uint8 else _native.I32
            a.labels = self._pointers(maps)
            return
        block = _classes(labels)
        if block.ndim == 1:
            if block.shape != (self.samples,):
                raise UsageError(f"{block.shape[0]} labels for {self.samples} images")
            block = block.astype(np.int32)
            a.image_labels = pointer(block)
        else:
            self._check([m.shape for m in block])
            a.label_dtype = _native.U8 if block.dtype == np.uint8 else _native.I32
            a.label_block = pointer(block)
        self.kept.append(block)

    def _check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        if len(shapes) != self.samples:
            raise UsageError(f"{len(shapes)} label maps for {self.samples} images")
        for i, (label, image) in enumerate(zip(shapes, self.shapes)):
            if tuple(label) != tuple(image):
                raise UsageError(f"sample {i}: labels of shape {tuple(label)} for an image of extents {tuple(image)}")
