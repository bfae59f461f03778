"""Settings, by the keys of the command's config file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _native
from ._native import Err, lib
from .errors import UsageError

# As the command's flags: --mesh, --ranks and so on.
FLAGS = {
    "mesh": "mesh",
    "ranks": "run.ranks",
    "device": "run.device",
    "precision": "train.precision",
    "seed": "train.seed",
    "threads": "run.threads",
}


def keys() -> list[str]:
    """All keys, in the order of docs/config.md.

    >>> "train.epochs" in keys()
    True
    """
    found: list[str] = []
    while True:
        key = lib.wf_options_key(len(found))
        if key is None:
            return found
        found.append(key.decode())


def text_of(value: Any) -> str:
    """A value as the config writes it.

    >>> text_of([2, 2]), text_of(True), text_of(1e-3), text_of({"data": 2, "space": (2, 1)})
    ('2,2', 'true', '0.001', 'data=2,space=2x1')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):  # a mesh
        axes = {axis: "x".join(map(str, n)) if isinstance(n, (list, tuple)) else n for axis, n in value.items()}
        return ",".join(f"{axis}={n}" for axis, n in axes.items())
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(item) for item in value)
    if isinstance(value, float):
        return repr(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def flatten(settings: Mapping[str, Any], section: str = "") -> Iterable[tuple[str, Any]]:
    """Keys with dots, from sections as mappings; what is None is left out.

    >>> list(flatten({"train": {"epochs": 3, "lr": None}, "mesh": "space=2x1"}))
    [('train.epochs', 3), ('mesh', 'space=2x1')]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping) and key != "mesh":
            yield from flatten(value, f"{section}{key}.")
        elif value is not None:
            yield section + key, value


def resolve(name: str, section: str = "") -> str:
    """The key that a keyword argument means: a flag of the command (`mesh`), a key of the section at hand (`epochs` of a
    Trainer is "train.epochs"), or section and key with an underscore between them (`data_crop`).

    >>> resolve("device"), resolve("epochs", "train"), resolve("memory_limit")
    ('run.device', 'train.epochs', 'memory.limit')
    """
    known = set(keys())
    sections = {key.split(".")[0] for key in known}
    if name in sections or "." in name:
        return FLAGS.get(name, name)
    if section and f"{section}.{name}" in known:
        return f"{section}.{name}"
    if name in FLAGS:
        return FLAGS[name]
    head, _, rest = name.partition("_")
    if head in sections and rest:
        exact = f"{head}.{rest}"
        nested = f"{head}.{rest.replace('_', '.', 1)}"
        return nested if exact not in known and nested in known else exact
    return f"{section}.{name}" if section else name


def from_keywords(keywords: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Keyword arguments as keys and values."""
    found: dict[str, Any] = {}
    for name, value in keywords.items():
        key = resolve(name, section)
        for full, item in flatten({key: value}):
            found[full] = item
    return found


class Options(Mapping[str, "str | None"]):
    """A set of settings: a mapping from keys to values as texts; keys that are not set have None.

    >>> o = Options({"model": {"name": "unet", "base": 8}}, train_lr=0.01, mesh="space=2x1")
    >>> o["model.base"], o["train.lr"], o["mesh.space"]
    ('8', '0.01', '[2, 1]')
    >>> o["model.base"] = 16
    >>> o["model.base"]
    '16'
    """

    def __init__(self, settings: Mapping[str, Any] | str | os.PathLike[str] | None = None, **keywords: Any) -> None:
        self._handle = lib.wf_options_new()
        if isinstance(settings, (str, os.PathLike)):
            self.read(settings)
        elif settings is not None:
            self.update(settings)
        self.update(from_keywords(keywords))

    def read(self, path: str | os.PathLike[str]) -> None:
        """Reads a YAML or JSON file. What was set in the program stays."""
        err = Err()
        if not lib.wf_options_read_file(self._handle, os.fsencode(path), err):
            _native.fail(err)

    def update(self, settings: Mapping[str, Any]) -> None:
        """Sets several keys; sections may be mappings."""
        for key, value in flatten(settings):
            self[key] = value

    def __setitem__(self, key: str, value: Any) -> None:
        err = Err()
        if not lib.wf_options_set(self._handle, key.encode(), text_of(value).encode(), err):
            _native.fail(err)

    def __getitem__(self, key: str) -> str | None:
        if key not in set(keys()):
            raise KeyError(key)
        value = lib.wf_options_value(self._handle, key.encode())
        return value.decode() if value is not None else None

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(keys())

    def __len__(self) -> int:
        return len(keys())

    def copy(self) -> Options:
        """Another set with the same values."""
        other = Options()
        defaults = Options()
        for key in self:
            if self[key] is not None and self[key] != defaults[key]:
                other[key] = self[key]
        return other

    def __repr__(self) -> str:
        defaults = Options()
        changed = {key: self[key] for key in self if self[key] != defaults[key]}
        return f"Options({changed!r})"

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.wf_options_free(self._handle)
            self._handle = None


def as_options(settings: Options | Mapping[str, Any] | str | os.PathLike[str] | None) -> Options:
    """Options of what a user gives: options, a mapping, or a config file."""
    if isinstance(settings, Options):
        return settings.copy()
    if settings is None or isinstance(settings, (str, os.PathLike, Mapping)):
        return Options(settings)
    raise UsageError(f"settings of type {type(settings).__name__}: give a mapping, Options, or the path of a config")
