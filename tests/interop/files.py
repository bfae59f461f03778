#!/usr/bin/env python3
"""Round trip of files: Python writes, Widefield reads and writes, Python reads.

    python3 tests/interop/files.py        (needs safetensors, numpy and a C compiler)
"""
import glob
import os
import subprocess
import sys
import tempfile

import numpy
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
checks = 0


def build(folder):
    program = os.path.join(folder, "files")
    sources = [os.path.join(ROOT, "tests/interop/files.c")]
    for pattern in ["base/*.c", "tensor/*.c", "ckpt/safetensors*.c", "image/npy*.c"]:
        sources += glob.glob(os.path.join(ROOT, "src", pattern))
    subprocess.run([os.environ.get("CC", "cc"), "-std=c2x", "-O1", "-D_GNU_SOURCE", "-I" + os.path.join(ROOT, "src"),
                    *sources, "-o", program, "-lcjson", "-lm"], check=True)
    return program


def same(a, b, what):
    global checks
    checks += 1
    if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
        sys.exit(f"{what}: {a.dtype}{a.shape} and {b.dtype}{b.shape} differ")


def arrays(run):
    random = numpy.random.default_rng(7)
    shapes = [(), (0,), (5,), (2, 3), (2, 3, 4), (1, 3, 17, 19), (2, 1, 3, 5, 7)]
    types = {"f32": ["float16", "float32", "float64", "uint8", "int8", "int16", "uint16", "bool", ">f4", ">f8", ">i2"],
             "i64": ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool", ">i8"],
             "i32": ["int32", "int64", "uint8"]}
    target = {"f32": numpy.float32, "i64": numpy.int64, "i32": numpy.int32}
    for to, kinds in types.items():
        for kind in kinds:
            for shape in shapes:
                given = (random.standard_normal(shape) * 50).astype("int8" if "u" not in kind else "uint8").astype(kind)
                if "f" in kind:
                    given = random.standard_normal(shape).astype(kind)
                numpy.save("in.npy", given)
                run("npy", "in.npy", "out.npy", to)
                back = numpy.load("out.npy")
                same(back, numpy.asarray(given).astype(target[to]), f"{kind} {shape} as {to}")
    # What we write is what numpy would have written, to the byte.
    image = random.standard_normal((1, 3, 5, 7)).astype(numpy.float32)
    numpy.save("in.npy", image)
    run("npy", "in.npy", "out.npy", "f32")
    if open("in.npy", "rb").read() != open("out.npy", "rb").read():
        sys.exit("numpy writes this array in other bytes")
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open("in.npy", "wb") as file:
            numpy.lib.format.write_array(file, image, version=version)
        run("npy", "in.npy", "out.npy", "f32")
        same(numpy.load("out.npy"), image, f"version {version}")
    numpy.save("in.npy", numpy.asfortranarray(image[0, 0]))
    run("npy", "in.npy", "out.npy", "f32", refused="Fortran order")


def tensors(run):
    random = numpy.random.default_rng(8)
    given = {"step": numpy.array(3, numpy.int64), "mask": numpy.arange(7, dtype=numpy.uint8),
             "none": numpy.zeros((0, 4), numpy.float32), "labels": numpy.arange(6, dtype=numpy.int32).reshape(2, 3),
             "half": random.standard_normal((3, 3)).astype(numpy.float16),
             "double": random.standard_normal(9), "name with \"quotes\" \\ and \u4e16\u754c": numpy.ones(2, numpy.float32)}
    for i in range(40):
        given[f"enc{i}.conv.weight"] = random.standard_normal((i + 1, 3, 3, 3)).astype(numpy.float32)
    note = "line\nand \"quotes\" \\ \u00e9"
    save_file(given, "in.safetensors", metadata={"note": note, "format": "np"})
    run("st", "in.safetensors", "out.safetensors")
    back = load_file("out.safetensors")
    if set(back) != set(given):
        sys.exit("names differ")
    for name, value in given.items():
        same(back[name], value, name)
    with safe_open("out.safetensors", "numpy") as file:
        if file.metadata() != {"note": note}:
            sys.exit(f"metadata {file.metadata()}")
    save_file({}, "in.safetensors")
    run("st", "in.safetensors", "out.safetensors")
    if load_file("out.safetensors") != {}:
        sys.exit("the empty file is not empty")
    try:
        import torch
        from safetensors.torch import load_file as load_torch, save_file as save_torch
    except ImportError:
        return
    weights = {"b": torch.randn(4, 5).to(torch.bfloat16), "f": torch.randn(3, 2, 2)}
    save_torch(weights, "in.safetensors")
    run("st", "in.safetensors", "out.safetensors")
    for name, value in load_torch("out.safetensors").items():
        same(value.view(torch.int8).numpy(), weights[name].view(torch.int8).numpy(), name)
    save_torch({"x": torch.zeros(3, dtype=torch.int16)}, "in.safetensors")
    run("st", "in.safetensors", "out.safetensors", refused="cannot be read here")


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)
        os.chdir(folder)

        def run(*words, refused=None):
            done = subprocess.run([program, *words], capture_output=True, text=True)
            if (done.returncode == 0) != (refused is None) or (refused and refused not in done.stderr):
                sys.exit(f"{words}: exit {done.returncode}, {done.stderr}")

        arrays(run)
        tensors(run)
    print(f"files: {checks} arrays and tensors are the same on both sides")


main()
