"""Safetensors, network files, the library's place, and the examples of the docstrings."""

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import widefield
from widefield import _library, safetensors


def test_safetensors_by_the_bytes_of_its_specification(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.save(path, {"a": np.array([[1.0, 2.0]], np.float32), "n": np.int64(7)})
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert length % 8 == 0
    assert b'"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}' in raw[8 : 8 + length]
    assert raw[8 + length :] == b"\x00\x00\x80\x3f\x00\x00\x00\x40" + (7).to_bytes(8, "little")
    back = safetensors.load(path)
    assert back["a"].dtype == np.float32 and back["a"].tolist() == [[1.0, 2.0]]
    assert back["n"].shape == () and int(back["n"]) == 7


def test_bf16_is_read_as_float32(tmp_path):
    header = b'{"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    path = tmp_path / "b.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x80\x3f\x40\xc0")  # 1, -3
    assert safetensors.load(path)["x"].tolist() == [1.0, -3.0]


@pytest.mark.parametrize("cut", [0, 5, 20, 60])
def test_a_truncated_file_is_refused(tmp_path, cut):
    path = tmp_path / "x.safetensors"
    safetensors.save(path, {"a": np.zeros(100, np.float32)})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(widefield.InputError, match="not a safetensors file"):
        safetensors.load(path)


def test_packages_of_libraries():
    assert _library.package_of("libfyaml.so.0") == "libfyaml0"
    assert _library.package_of("libdnnl.so.2") == "libdnnl2"
    assert _library.package_of("libother.so.1") is None


def test_a_library_that_is_missing_is_named_with_its_package(tmp_path):
    """A shared library that asks for a libfyaml that no machine has."""
    compiler = os.environ.get("CC", "cc")
    (tmp_path / "none.c").write_text("int none(void) { return 0; }\n")
    make = [compiler, "-shared", "-fPIC", str(tmp_path / "none.c"), "-o"]
    try:
        subprocess.run([*make, str(tmp_path / "libfyaml.so"), "-Wl,-soname,libfyaml.so.99"], check=True)
    except OSError:
        pytest.skip("no C compiler")
    needs = ["-Wl,--no-as-needed", f"-L{tmp_path}", "-lfyaml"]
    subprocess.run([*make, str(tmp_path / "libwidefield.so"), *needs], check=True)
    environment = {**os.environ, "WIDEFIELD_LIBRARY": str(tmp_path / "libwidefield.so")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    ran = subprocess.run([sys.executable, "-c", "import widefield"], env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "needs libfyaml.so.99" in ran.stderr and "apt-get install libfyaml0" in ran.stderr
    environment["WIDEFIELD_LIBRARY"] = str(tmp_path / "nowhere.so")
    ran = subprocess.run([sys.executable, "-c", "import widefield"], env=environment, capture_output=True, text=True)
    assert "WIDEFIELD_LIBRARY" in ran.stderr and "nowhere.so" in ran.stderr


def _modules():
    return ["widefield"] + [f"widefield.{m.name}" for m in pkgutil.iter_modules(widefield.__path__)]


@pytest.mark.parametrize("name", _modules())
def test_examples_of_docstrings(name):
    try:
        module = importlib.import_module(name)
    except ImportError as missing:
        pytest.skip(str(missing))
    assert doctest.testmod(module).failed == 0
