#!/usr/bin/env python3
"""steps.py WIDEFIELD FOLDER [NAME ...]: a training step of every network on the GPU and by the reference
kernels, from the same weights and the same image.

Compared are the loss, the prediction, and the gradients before an optimiser has touched them (Adam's
first step is the sign of a gradient, so one that is rounding alone becomes a whole step). Errors are
norm(got - want) / norm(want). A gradient is compared relative to the norm of all gradients of its layer: in
front of a batch norm a bias has gradient zero, and what rounding leaves of it has no digits to compare.

  exact  f32, run.deterministic=mesh   loss, prediction and every layer's gradient: 1e-5
  f32    as it trains, with cuDNN      loss and prediction: 1e-5
  tf32                                 loss and prediction: 1e-3, or what its rounding does
  bf16                                 loss and prediction: 1e-2, or what its rounding does

If kernels add in another order, a ReLU or a maximum may decide differently, and the gradient then differs
by the effect of that decision, however small the cause. So in the last three the gradient, all layers
together, is compared with the effect of the same cause on the reference; and so is a prediction that many
layers of rounding have moved further (the tolerance above is always allowed):
  f32   three times what moving the image by 1e-6 does (1e-5 at least);
  tf32  three times what rounding the factors of every convolution does to exact sums: the run
        tf32.want, our own kernels with run.deterministic=mesh, which otherwise equal the reference bit for
        bit (last layers of few classes and linear ones are not rounded). cuDNN truncates instead of
        rounding, which is twice as much; the rest is chance;
  bf16  one and a half times what the reference in bf16 differs, or tf32.want where that is more: where few
        ReLUs change it is chance in which of the two more change.
"""
import concurrent.futures
import json
import os
import struct
import subprocess
import sys

import numpy as np

CASES = {
    "cnn1d": "model.name=cnn1d model.base=8 data.size=2,1,997",
    "cnn2d": "model.name=cnn2d model.base=8 data.size=2,3,61,47",
    "cnn3d": "model.name=cnn3d model.base=4 data.size=2,1,20,26,22",
    "unet": "model.name=unet model.base=8 data.size=2,3,96,96",
    "unet.1d": "model.name=unet model.dims=1 model.base=8 data.size=2,3,512",
    "unet.3d": "model.name=unet model.dims=3 model.base=4 model.depth=2 data.size=1,1,24,20,28",
    "unet3d": "model.name=unet3d model.base=4 model.depth=2 data.size=1,1,24,20,28",
    "fcn8s": "model.name=fcn8s model.base=4 data.size=2,3,64,96",
    "fcn16s": "model.name=fcn16s model.base=4 data.size=2,3,64,96",
    "fcn32s": "model.name=fcn32s model.base=4 data.size=2,3,64,96",
    "densenet121": "model.name=densenet121 model.base=8 data.size=2,3,128,128",
    "densenet121_seg": "model.name=densenet121_seg model.base=8 data.size=2,3,128,128",
    "alexnet": "model.name=alexnet model.base=8 data.size=4,3,128,128",
    "alexnet_cifar": "model.name=alexnet_cifar data.size=4,3,32,32",
    "ddunet": "model.name=ddunet model.base=4 model.depth=3 model.tiles=2x2 model.comm.channels=16 data.size=2,3,96,96",
    "ddunet_resnet18": "model.name=ddunet_resnet18 model.tiles=2x2 model.comm.channels=16 data.size=2,3,128,128",
}
MOVED = 1e-6
RUNS = {  # name -> arguments, and whether the image is moved
    "want": (["--device", "reference"], 0),
    "moved": (["--device", "reference"], 1),
    "bf16.want": (["--device", "reference", "--precision", "bf16"], 0),
    "exact": (["--device", "cuda", "run.deterministic=mesh"], 0),
    "tf32.want": (["--device", "cuda", "--precision", "tf32", "run.deterministic=mesh"], 0),
    "f32": (["--device", "cuda"], 0),
    "tf32": (["--device", "cuda", "--precision", "tf32"], 0),
    "bf16": (["--device", "cuda", "--precision", "bf16"], 0),
}


def read(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, about in header.items():
        lo, hi = about["data_offsets"] if name != "__metadata__" else (0, 0)
        if name.split(".")[0] in ("loss", "pred", "grad"):
            tensors[name] = np.frombuffer(data[lo:hi], dtype=np.float32).astype(np.float64)
    return tensors


def images(folder, name, arguments):
    """The image and the moved one, as files."""
    shape = [int(n) for n in arguments.split("data.size=")[1].split()[0].split(",")]
    random = np.random.default_rng(1)
    image = random.uniform(-1, 1, shape).astype(np.float32)
    moved = (image * (1 + MOVED * random.uniform(-1, 1, shape))).astype(np.float32)
    for i, each in enumerate((image, moved)):
        np.save(f"{folder}/{name}.{i}.npy", each)


def run(widefield, folder, name, what):
    arguments, moved = RUNS[what]
    out = f"{folder}/{name}.{what}.safetensors"
    command = [widefield, "step", *CASES[name].split(), *arguments, "--quiet", "--dump", out, "--input",
               f"{folder}/{name}.{moved}.npy", f"run.cache={out}.choices"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    return done.returncode, done.stderr.strip()


def apart(got, want):
    """loss, prediction, the worst layer's gradient and its name, all gradients together."""
    if got.keys() != want.keys():
        raise SystemExit("not the same tensors")
    layers, off = {}, {}
    for name in want:
        layer = name.rpartition(".")[0] or name
        layers[layer] = layers.get(layer, 0.0) + float(np.sum(want[name] ** 2))
        off[name] = float(np.sum((got[name] - want[name]) ** 2))
    def relative(name, layer):
        return (off[name] / max(layers[layer], 1e-300)) ** 0.5
    worst = max((n for n in want if n.startswith("grad.")), key=lambda n: relative(n, n.rpartition(".")[0]))
    gradients = [n for n in want if n.startswith("grad.")]
    whole = sum(float(np.sum(want[n] ** 2)) for n in gradients)
    return {"loss": relative("loss", "loss"), "pred": relative("pred", "pred"),
            "layer": relative(worst, worst.rpartition(".")[0]), "where": worst,
            "grad": (sum(off[n] for n in gradients) / whole) ** 0.5}


def judge(what, error, moved, shortened, rounded):
    """What is past its tolerance: moved, shortened (tf32), rounded (bf16) are what those do to the reference."""
    least = {"exact": 1e-5, "f32": 1e-5, "tf32": 1e-3, "bf16": 1e-2}[what]
    allowed = {"loss": least, "pred": least}
    if what == "exact":
        allowed["layer"] = least
    elif what == "f32":
        allowed["grad"] = max(least, 3 * moved["grad"])
    elif what == "tf32":
        allowed["pred"] = max(least, 3 * shortened["pred"])
        allowed["grad"] = max(least, 3 * shortened["grad"])
        if shortened["pred"] > max(least, rounded["pred"]): # fewer digits than tf32 has
            return [f"the yardstick itself: {shortened['pred']:.1e}"]
    else:
        allowed["pred"] = max(least, 1.5 * rounded["pred"])
        allowed["grad"] = max(least, 1.5 * rounded["grad"], 1.5 * shortened["grad"])
    return [f"{key} {error[key]:.1e} past {limit:.1e}" for key, limit in allowed.items() if not error[key] <= limit]


def report(folder, name):
    tensors = {what: read(f"{folder}/{name}.{what}.safetensors") for what in RUNS}
    want = tensors["want"]
    moved, shortened, rounded = (apart(tensors[what], want) for what in ("moved", "tf32.want", "bf16.want"))
    good = True
    for what in ("exact", "f32", "tf32", "bf16"):
        error = apart(tensors[what], want)
        wrong = judge(what, error, moved, shortened, rounded)
        beside = {"f32": moved, "tf32": shortened, "bf16": rounded}.get(what)
        print(f"{name:16} {what:6} loss {error['loss']:.1e}  pred {error['pred']:.1e}  grad {error['grad']:.1e}"
              f"  layer {error['layer']:.1e} {error['where'][5:]:24}"
              + (f" reference: pred {beside['pred']:.1e} grad {beside['grad']:.1e}" if beside else "")
              + (f"  TOO FAR: {', '.join(wrong)}" if wrong else ""), flush=True)
        good = good and not wrong
    return good


def main():
    widefield, folder = sys.argv[1:3]
    names = sys.argv[3:] or list(CASES)
    listed = subprocess.run([widefield, "model", "list"], capture_output=True, text=True, check=True).stdout
    missing = {line.split()[0] for line in listed.splitlines()[1:]} - {n.split(".")[0] for n in CASES}
    if missing:
        raise SystemExit(f"networks without a case here: {', '.join(sorted(missing))}")
    os.makedirs(folder, exist_ok=True)
    for name in names:
        images(folder, name, CASES[name])
    good = True
    jobs = [(name, what) for what in RUNS for name in names]
    with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) * 3 // 4)) as pool:
        ended = dict(zip(jobs, pool.map(lambda job: run(widefield, folder, *job), jobs)))
    for name in names:
        failed = [(what, ended[name, what]) for what in RUNS if ended[name, what][0]]
        for what, (status, text) in failed:
            print(f"{name} {what}: exit status {status}: {text}")
        good = not failed and report(folder, name) and good
    for file in os.listdir(folder):
        if file.rpartition(".")[2] in ("npy", "safetensors", "choices"):
            os.remove(os.path.join(folder, file))
    sys.exit(0 if good else 1)


main()
