"""Writes network files: YAML with a line for each layer; and reads the form that the library writes them in."""

from __future__ import annotations

import json
import os
import pathlib
import re
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


# --- reading: what wf_net_print() writes, a layer on each line; the library reads all other YAML ---

TOKEN = re.compile(r'\s*(?:([\[\]{},])|("(?:\\.|[^"\\])*")|([^\[\]{},"\s][^\[\]{},"]*))')


def _scalar(word: str) -> Any:
    if word in ("true", "false"):
        return word == "true"
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word


def _tokens(line: str) -> list[str]:
    found, at = [], 0
    line = line.rstrip()
    while at < len(line):
        match = TOKEN.match(line, at)
        if not match:
            raise ValueError(line)
        found.append(next(group for group in match.groups() if group is not None).strip())
        at = match.end()
    return found


def _value(tokens: list[str]) -> Any:
    """A flow value from the head of the list, which is consumed."""
    word = tokens.pop(0)
    if word == "[":
        items = []
        while tokens[0] != "]":
            items.append(_value(tokens))
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
        return items
    if word == "{":
        return _mapping(tokens)
    return json.loads(word) if word.startswith('"') else _scalar(word)


def _mapping(tokens: list[str]) -> dict[str, Any]:
    """Behind its brace."""
    found: dict[str, Any] = {}
    while tokens[0] != "}":
        key, _, rest = tokens.pop(0).partition(":")
        found[key.strip()] = _scalar(rest.strip()) if rest.strip() else _value(tokens)
        if tokens[0] == ",":
            tokens.pop(0)
    tokens.pop(0)
    return found


def parse(written: str) -> dict[str, Any]:
    """The list of layers of a network file in the form of text() or of 'widefield model show --net'.

    >>> parse("name: one\\ndims: 2\\nlayers:\\n  - { name: c, kind: conv, pad: [[1, 2], [0, 1]], bias: true }\\nheads: [c]\\n")
    {'name': 'one', 'dims': 2, 'layers': [{'name': 'c', 'kind': 'conv', 'pad': [[1, 2], [0, 1]], 'bias': True}], 'heads': ['c']}
    """
    spec: dict[str, Any] = {}
    entries: list[Any] = []
    for line in written.splitlines():
        if line.startswith("  - "):
            entries.append(_value(_tokens(line[4:])))
            continue
        key, _, rest = line.partition(":")
        if not key.strip() or line.startswith("#"):
            continue
        if rest.strip():
            spec[key] = _value(_tokens(rest))
        else:
            spec[key] = entries = []
    return spec
