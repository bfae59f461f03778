"""The structures of ctypes against the headers, as the compiler lays them out."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from widefield import _native

INCLUDE = pathlib.Path(__file__).parents[2] / "include"
COMPILER = os.environ.get("CC") or shutil.which("cc")


@pytest.mark.skipif(not COMPILER or not INCLUDE.exists(), reason="no C compiler, or no headers")
def test_structures_are_those_of_the_headers(tmp_path):
    lines = []
    for name, structure in _native.STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field in structure._fields_:
            lines.append(f'printf("{name}.{field[0]} %zu\\n", offsetof(struct {name}, {field[0]}));')
    source = tmp_path / "layout.c"
    source.write_text('#include <stdio.h>\n#include "widefield.h"\nint main(void) {\n' + "\n".join(lines) + "\n}\n")
    program = tmp_path / "layout"
    subprocess.run([COMPILER, "-std=c2x", f"-I{INCLUDE}", str(source), "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    theirs = dict(line.split() for line in printed.splitlines())
    for name, structure in _native.STRUCTURES.items():
        assert int(theirs[name]) == __import__("ctypes").sizeof(structure), name
        for field in structure._fields_:
            assert int(theirs[f"{name}.{field[0]}"]) == getattr(structure, field[0]).offset, (name, field[0])


@pytest.mark.skipif(not INCLUDE.exists(), reason="no headers")
def test_functions_are_declared_with_as_many_arguments():
    text = "\n".join(path.read_text() for path in INCLUDE.glob("*.h"))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for name, (_, arguments) in _native.FUNCTIONS.items():
        found = re.search(rf"\b{name}\(([^)]*)\)", text)
        assert found, f"{name} is in no header"
        declared = [] if found[1].strip() in ("", "void") else found[1].split(",")
        assert len(declared) == len(arguments), name
