"""Safetensors files: a header in JSON and the elements of named arrays behind it."""

from __future__ import annotations

import json
import os
import pathlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import InputError

NAMES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16,
    "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
OF_DTYPE = {np.dtype(dtype): name for name, dtype in NAMES.items()}


def save(path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Writes arrays under their names."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    offset = 0
    for name, array in arrays.items():
        if array.dtype not in OF_DTYPE:
            raise InputError(f"'{path}': tensor '{name}' has elements of type {array.dtype}, which have no name there")
        shape = list(np.shape(tensors[name]))  # ascontiguousarray() makes a vector of a scalar
        header[name] = {"dtype": OF_DTYPE[array.dtype], "shape": shape, "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    target = pathlib.Path(path)
    part = target.with_name(target.name + ".part")
    with open(part, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(array.tobytes())
    os.replace(part, target)


def _bfloat16(raw: bytes) -> np.ndarray:
    return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)


def load(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a file by name; bf16 becomes float32."""
    raw = pathlib.Path(path).read_bytes()
    try:
        (length,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + length])
        found = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + at for at in entry["data_offsets"])
            part = raw[begin:end]
            flat = _bfloat16(part) if entry["dtype"] == "BF16" else np.frombuffer(part, NAMES[entry["dtype"]])
            if end > len(raw):
                raise ValueError("it is shorter than its header says")
            found[name] = flat.reshape(entry["shape"]).copy()
    except (ValueError, KeyError, TypeError, struct.error, AttributeError) as cause:
        raise InputError(f"'{path}' is not a safetensors file: {cause}") from None
    return found
