#!/usr/bin/env python3
"""Compares the command's numbers with PyTorch's.

    compare.py WIDEFIELD COMMITTED FRESH

COMMITTED and FRESH are folders of make_golden.py: the one in the repository and one made just now.
They must agree to 1e-6, those of make_domains.py too. Then every case goes through `widefield step`, whole and on each of its
meshes, and what it dumps must agree with FRESH to 1e-4 of each tensor's norm.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from networks import SEED

SAME = 1e-6
TOLERANCE = 1e-4
NOISE = 1e-6  # of the norm of all gradients: for a gradient that is exactly zero in PyTorch's file
LEAST = 1e-3  # of the norm of all gradients: a smaller one is what is left of larger ones


def read(path):
    with safe_open(path, "np") as f:
        return load_file(path), f.metadata()


def relative(ours, theirs, all_gradients, is_gradient=False):
    """norm(ours - theirs) / norm(theirs); 1 is as bad as can be said of another shape or NaN."""
    if ours.shape != theirs.shape or not np.isfinite(ours).all():
        return 1.0
    off = np.linalg.norm((ours.astype(np.float64) - theirs).ravel())
    norm = np.linalg.norm(theirs.astype(np.float64).ravel())
    if norm > 0:
        return off / max(norm, LEAST * all_gradients if is_gradient else 0)
    return off / all_gradients * TOLERANCE / NOISE if off > 0 else 0.0


def gradient_norm(tensors):
    parts = [np.linalg.norm(t.astype(np.float64)) for n, t in tensors.items() if n.startswith("grad.")]
    return float(np.linalg.norm(parts))


def same_files(committed, fresh):
    """Names of cases whose committed file differs from PyTorch's current output."""
    bad = []
    names = {p.name for folder in (committed, fresh) for p in folder.glob("*.safetensors")}
    for name in sorted(names):
        if not ((committed / name).exists() and (fresh / name).exists()):
            bad.append(f"{name}: only in {'committed' if (committed / name).exists() else 'fresh'}")
            continue
        (old, old_meta), (new, new_meta) = read(committed / name), read(fresh / name)
        if old_meta != new_meta or old.keys() != new.keys():
            bad.append(f"{name}: other tensors or metadata")
            continue
        total = gradient_norm(new)
        worst, tensor = max((relative(old[k], new[k], total), k) for k in new)
        if worst > SAME:
            bad.append(f"{name}: '{tensor}' differs by {worst:.2g}")
    return bad


def step(widefield, folder, tensors, meta, mesh):
    """What `widefield step` dumps for a case on a mesh."""
    folder = pathlib.Path(folder)
    start = "weight."
    weights = {n[len(start) :]: t for n, t in tensors.items() if n.startswith(start)}
    save_file(weights, folder / "weights.safetensors")
    np.save(folder / "input.npy", tensors["input"])
    target = tensors["target"]
    np.save(folder / "target.npy", target.astype(np.int64) if target.dtype == np.int32 else target)
    model = {k: int(meta[k]) for k in ("dims", "classes", "base", "depth") if int(meta[k])}
    if "tiles" in meta:
        model["tiles"] = [int(t) for t in meta["tiles"].split("x")]
        model["comm"] = {k: int(meta[m]) for k, m in (("channels", "comm"), ("layers", "layers"), ("kernel", "kernel"))}
    config = {
        "model": {"name": meta["model"], **model},
        "train": {k: meta[k] for k in ("loss", "optimizer")} | {"lr": float(meta["lr"]), "seed": SEED},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    dump = folder / "dump.safetensors"
    command = [widefield, "step", "config.yaml", "--weights", "weights.safetensors"]
    command += ["--input", "input.npy", "--target", "target.npy", "--dump", dump.name, "--quiet"]
    if mesh:
        command += ["--mesh", mesh]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"'{' '.join(command)}' failed with {done.returncode}:\n{done.stderr}")
    return load_file(dump)


def compare(ours, theirs):
    """Worst relative difference per kind of tensor, and of all of them with its name."""
    kinds = dict.fromkeys(("loss", "pred", "grad", "param", "state"), 0.0)
    total = gradient_norm(theirs)
    worst = (0.0, "")
    for name, want in theirs.items():
        kind = name.split(".", 1)[0]
        if kind not in kinds:
            continue
        if name not in ours:
            return kinds, (1.0, f"{name} (not in the dump)")
        off = relative(ours[name], want, total, kind == "grad")
        kinds[kind] = max(kinds[kind], off)
        worst = max(worst, (off, name))
    return kinds, worst


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: compare.py WIDEFIELD COMMITTED FRESH")
    widefield = str(pathlib.Path(sys.argv[1]).resolve())
    committed, fresh = map(pathlib.Path, sys.argv[2:])
    problems = same_files(committed, fresh) + same_files(committed.parent / "domains", fresh / "domains")
    if problems:
        problems.append("run tests/parity/make_golden.py tests/parity/golden and look at the change")
    else:
        print(f"committed numbers equal PyTorch's of now to {SAME:g}")
    row = "{:<14} {:<18} " + " {:>8}" * 5
    print(row.format("case", "mesh", "loss", "pred", "grad", "param", "state"))
    for path in sorted(fresh.glob("*.safetensors")):
        tensors, meta = read(path)
        for mesh in ["", *meta["meshes"].split()]:
            with tempfile.TemporaryDirectory() as folder:
                kinds, worst = compare(step(widefield, folder, tensors, meta, mesh), tensors)
            numbers = (f"{kinds[k]:.1e}" for k in kinds)
            print(row.format(path.stem, mesh or "whole", *numbers), flush=True)
            if worst[0] > TOLERANCE:
                problems.append(f"{path.stem} on {mesh or 'one rank'}: '{worst[1]}' is off by {worst[0]:.2g}")
    for problem in problems:
        print(f"parity: {problem}", file=sys.stderr)
    print("parity: FAILED" if problems else f"parity: all within {TOLERANCE:g} of PyTorch")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
