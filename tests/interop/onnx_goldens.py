#!/usr/bin/env python3
"""Steps of foreign networks on a machine that has neither PyTorch nor their packages, such as one with a GPU.

    tests/interop/onnx_goldens.py make FOLDER [--widefield build/widefield] [NAME ...]
    tests/interop/onnx_goldens.py compare FOLDER [--widefield build/cuda/widefield] [--device cuda]

'make' needs what onnx_networks.py needs; names are as there. It imports each network, computes a training step by
PyTorch in f64 and in f32, and keeps the network file, and of prediction and gradients norms and elements: all of a small
tensor, ELEMENTS at random places of a large one. Weights and images follow from raw bits of a generator, so they need
no room. 'compare' needs numpy only. It prints a row for each network and image: norm(a - b) / norm(b) of what was kept, of
the worst tensor for gradients, and PyTorch's own f32 beside it. It fails where no image of a network is within forward
1e-5 and gradients 1e-4: f32 may turn a ReLU or a pooling of one image, see onnx_networks.py.
"""
import argparse
import hashlib
import json
import os
import struct
import subprocess
import sys

import numpy as np

ELEMENTS = 2048
SEEDS = (2, 5, 6)


# --- numbers that every machine makes alike --------------------------------------------------

def bits(name):
    return np.random.PCG64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


def uniform(name, shape, lo, hi):
    count = int(np.prod(shape))
    unit = (bits(name).random_raw(count) >> np.uint64(40)).astype(np.float64) / 2.0**24
    return (lo + (hi - lo) * unit).astype(np.float32).reshape(shape)


def weight(name, shape, norm):
    """As onnx_networks.make() has them: norms that keep most activations off their kinks."""
    if name.endswith("running_mean"):
        return uniform(name, shape, -0.2, 0.2)
    if name.endswith("running_var"):
        return uniform(name, shape, 0.5, 1.5)
    if norm:
        return uniform(name, shape, 0.05, 0.2) if name.endswith("weight") else uniform(name, shape, 0.2, 0.5)
    bound = (6.0 / np.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.1
    return uniform(name, shape, -bound, bound)


def image(name, shape, seed):
    each = (shape[0], shape[1]) + (1,) * (len(shape) - 2)
    contrast, brightness = uniform(f"{name} contrast {seed}", each, 0.5, 1.5), uniform(f"{name} mean {seed}", each, -1, 1)
    return uniform(f"{name} noise {seed}", shape, -1.7, 1.7) * contrast + brightness


def target(shape):
    """One class per sample."""
    label = np.arange(shape[0]) % shape[1]
    return np.broadcast_to(label.reshape(-1, *[1] * (len(shape) - 2)), (shape[0], *shape[2:])).astype(np.int32)


def places(name, count):
    if count <= ELEMENTS:
        return np.arange(count)
    return np.sort((bits("places " + name).random_raw(ELEMENTS) % np.uint64(count)).astype(np.int64))


# --- safetensors files, without a package ---------------------------------------------------

def save(path, tensors):
    header, offset = {}, 0
    for name, a in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [offset, offset + a.nbytes]}
        offset += a.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for a in tensors.values():
            file.write(a.tobytes())


def load(path):
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack_from("<Q", raw)
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32}
    found = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            found[name] = np.frombuffer(raw[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return found


# --- make: with PyTorch ----------------------------------------------------------------------

def norms_of(names):
    """Layers whose weight is a vector: names of their weights and biases."""
    vectors = {n[: -len("weight")] for n, shape in names.items() if n.endswith("weight") and len(shape) == 1}
    return {n for n in names if n.rsplit(".", 1)[0] + "." in vectors}


def kept(tensors):
    found = {}
    for name, t in tensors.items():
        flat = t.detach().double().reshape(-1).numpy()
        found[name] = flat[places(name, flat.size)]
        found["norm " + name] = np.linalg.norm(flat)
    return found


def torch_steps(net, name, seed, shape, torch_step):
    import torch
    x = torch.from_numpy(image(name, shape, seed))
    with torch.no_grad():
        y = net(x)
    y = y[0] if isinstance(y, (list, tuple)) else y
    labels = torch.from_numpy(target(tuple(y.shape))).long()
    pred, grads = torch_step(net, x, labels, torch.float64)
    pred32, grads32 = torch_step(net, x, labels, torch.float32)
    return tuple(y.shape), {"pred": pred, **grads}, {"pred": pred32, **grads32}


def make_one(args, name):
    import torch

    import onnx_networks
    folder = os.path.join(args.folder, name)
    os.makedirs(folder, exist_ok=True)
    net, shape = onnx_networks.make(name), onnx_networks.NETS[name][1]
    shape = (*shape[:2], *(min(n, 96) for n in shape[2:]))
    onnx_networks.export(net, torch.zeros(shape), f"{folder}/net.onnx", False)
    onnx_networks.call(args, "model", "import", f"{folder}/net.onnx", "--out", folder, "--json")
    theirs = dict(net.state_dict())
    found = load(f"{folder}/weights.safetensors")
    names = {n: list(w.shape) for n, w in found.items()}
    norms = norms_of(names)
    for n, s in names.items():
        if n not in theirs or list(theirs[n].shape) != s:
            raise SystemExit(f"{name}: the weight '{n}' of {s} is not one of the module's")
        theirs[n].copy_(torch.from_numpy(weight(n, s, n in norms)))
    about = {"shape": shape, "weights": names, "seeds": SEEDS}
    for seed in SEEDS:
        about["out"], exact, single = torch_steps(net, name, seed, shape, onnx_networks.torch_step)
        exact = {n: t for n, t in exact.items() if n == "pred" or n in names}
        about[f"pytorch_f32 {seed}"] = errors({n: t.numpy() for n, t in single.items()}, kept(exact))
        np.savez_compressed(f"{folder}/{seed}.npz", **kept(exact))
    for n in ("net.onnx", "weights.safetensors"):
        os.unlink(f"{folder}/{n}")
    with open(f"{folder}/about.json", "w", encoding="utf8") as file:
        json.dump(about, file)
    print(name, "made", flush=True)


# --- compare ---------------------------------------------------------------------------------

def errors(ours, want):
    """Forward, and the worst gradient with its name; gradients that are nearly zero are compared with the others' size."""
    def difference(name):
        flat = np.asarray(ours[name], np.float64).reshape(-1)
        at = places(name, flat.size)
        return np.linalg.norm(flat[at] - want[name]), at.size / flat.size

    def size(name):
        return float(want["norm " + name])

    grads = [n for n in want if n != "pred" and not n.startswith("norm ")]
    rows = []
    scale = max(size(n) / np.asarray(ours[n]).size ** 0.5 for n in grads)
    for n in grads:
        off, part = difference(n)
        rows.append((float(off / (max(size(n), 1e-3 * scale * np.asarray(ours[n]).size ** 0.5) * part**0.5)), n))
    off, part = difference("pred")
    return [float(off / (size("pred") * part**0.5)), *max(rows)]


def compare_one(args, folder, work):
    with open(f"{folder}/about.json", encoding="utf8") as file:
        about = json.load(file)
    name, shape = os.path.basename(folder), about["shape"]
    norms = norms_of(about["weights"])
    save(f"{work}/weights.safetensors", {n: weight(n, s, n in norms) for n, s in about["weights"].items()})
    np.save(f"{work}/y.npy", target(about["out"]))
    with open(f"{work}/job.yaml", "w", encoding="utf8") as file:
        file.write(f"model: {{ name: {os.path.abspath(folder)}/net.yaml }}\ndata: {{ size: {shape} }}\n"
                   "train: { loss: ce, optimizer: sgd, lr: 0.01 }\n")
    good = False
    for seed in about["seeds"]:
        np.save(f"{work}/x.npy", image(name, shape, seed))
        done = subprocess.run(
            [args.widefield, "step", f"{work}/job.yaml", "--device", args.device, "--weights", f"{work}/weights.safetensors",
             "--input", f"{work}/x.npy", "--target", f"{work}/y.npy", "--dump", f"{work}/step.safetensors"],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{name} | {done.stderr.strip()[-300:]}", flush=True)
            return False
        ours = {n.removeprefix("grad."): a for n, a in load(f"{work}/step.safetensors").items()
                if n == "pred" or n.startswith("grad.")}
        with np.load(f"{folder}/{seed}.npz") as want:
            want = {n: want[n] for n in want.files}
        missing = [n for n in want if not n.startswith("norm ") and n not in ours]
        if missing:
            print(f"{name} | no gradient of {missing[:5]}", flush=True)
            return False
        forward, gradient, worst = errors(ours, want)
        f32 = about[f"pytorch_f32 {seed}"]
        print(f"{name} | {seed} | {forward:.1e} | {f32[0]:.1e} | {gradient:.1e} | {f32[1]:.1e} | "
              f"{len(want) // 2 - 1} | {worst}", flush=True)
        good |= forward <= 1e-5 and gradient <= 1e-4
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "compare"])
    parser.add_argument("folder")
    parser.add_argument("--widefield", default="build/widefield")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--work", default="/tmp", help="compare: a folder for weights and results")
    parser.add_argument("names", nargs="*", help="make: networks; default five")
    args = parser.parse_args()
    if args.what == "make":
        import onnx_networks
        for word in args.names or ["five"]:
            for name in onnx_networks.GROUPS.get(word) or [word]:
                make_one(args, name)
        return 0
    print("network | image | forward | (f32) | gradients | (f32) | tensors | the worst")
    good = [compare_one(args, os.path.join(args.folder, name), args.work) for name in sorted(os.listdir(args.folder))]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
