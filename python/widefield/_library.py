"""Finds and opens libwidefield.

The order: the file that the environment variable WIDEFIELD_LIBRARY names, the one that lies inside this package (a
wheel has it there), the system's.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import re

SONAME = "libwidefield.so.0.1"

# Libraries that libwidefield may be linked to, and the Debian 12 packages that have them.
PACKAGES = {
    "libcjson.so": "libcjson1",
    "libxxhash.so": "libxxhash0",
    "libfyaml.so": "libfyaml0",
    "libpng16.so": "libpng16-16",
    "libjpeg.so": "libjpeg62-turbo",
    "libtiff.so": "libtiff6",
    "libz.so": "zlib1g",
    "libexpat.so": "libexpat1",
    "libfreetype.so": "libfreetype6",
    "libprotobuf-c.so": "libprotobuf-c1",
    "libdnnl.so": "libdnnl2",
    "libgomp.so": "libgomp1",
}


def package_of(library: str) -> str | None:
    """The package that has a shared library of this name, where it is known.

    >>> package_of("libfyaml.so.0")
    'libfyaml0'
    """
    return PACKAGES.get(re.sub(r"\.so\b.*", ".so", library))


def _candidates() -> list[str]:
    given = os.environ.get("WIDEFIELD_LIBRARY")
    if given:
        return [given]
    inside = pathlib.Path(__file__).parent / "lib" / SONAME
    return [str(inside)] if inside.exists() else [SONAME]


def missing_libraries(path: str) -> list[str]:
    """Names of libraries that this file asks for and that cannot be opened."""
    try:
        content = pathlib.Path(path).read_bytes()
    except OSError:
        return []
    missing = []
    for stem in PACKAGES:
        for found in set(re.findall(rb"\0(" + re.escape(stem.encode()) + rb"[.0-9]*)\0", content)):
            try:
                ctypes.CDLL(found.decode())
            except OSError:
                missing.append(found.decode())
    return missing


def _explain(path: str, cause: OSError) -> str:
    missing = missing_libraries(path)
    if not missing:
        first = re.match(r"(lib[^:]+): cannot open", str(cause))
        missing = [first[1]] if first and not first[1].startswith("libwidefield") else []
    if not missing:
        return (
            f"cannot open '{path}': {cause}; install the package with 'pip install .' in Widefield's sources, or set "
            "WIDEFIELD_LIBRARY to a libwidefield.so"
        )
    names = [package_of(library) for library in missing]
    install = [name for name in names if name and name.startswith(("lib", "zlib"))]
    others = [name for name in names if name and name not in install]
    advice = [f"apt-get install {' '.join(install)}"] if install else []
    advice += [f"install {name}" for name in dict.fromkeys(others)]
    return f"'{path}' needs {', '.join(missing)}, which this machine does not have: {'; '.join(advice) or 'install it'}"


def open_library() -> ctypes.CDLL:
    """The library; ImportError with what to install where something is missing."""
    path = _candidates()[0]
    try:
        return ctypes.CDLL(path)
    except OSError as cause:
        raise ImportError(_explain(path, cause)) from None
