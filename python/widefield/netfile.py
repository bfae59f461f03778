"""Writes network files: YAML with a line for each layer, whose values are JSON."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any


def _line(values: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{key}: {json.dumps(value)}" for key, value in values.items()) + " }"


def text(spec: Mapping[str, Any]) -> str:
    """The network file of a list of layers.

    >>> print(text({"name": "one", "dims": 2, "in": 3, "layers": [{"name": "c", "kind": "conv", "kernel": [3, 3]}]}))
    name: "one"
    dims: 2
    in: 3
    layers:
      - { name: "c", kind: "conv", kernel: [3, 3] }
    <BLANKLINE>
    """
    lines = [f"{key}: {json.dumps(value)}" for key, value in spec.items() if key not in ("layers", "heads")]
    lines += ["layers:"] + [f"  - {_line(layer)}" for layer in spec["layers"]]
    heads = spec.get("heads")
    if heads:
        lines += ["heads:"] + [f"  - {_line(h) if isinstance(h, Mapping) else json.dumps(h)}" for h in heads]
    return "\n".join(lines) + "\n"


def write(path: str | os.PathLike[str], spec: Mapping[str, Any]) -> None:
    """Writes it to a file."""
    pathlib.Path(path).write_text(text(spec), encoding="utf-8")
