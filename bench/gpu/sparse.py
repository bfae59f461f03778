"""Time of a training step of MinkUNet on rooms of voxels, on a GPU: spconv against Widefield in one run.

    python3 bench/gpu/sparse.py --peers FOLDER [--widefield build/cuda/widefield]

FOLDER has sparse_scene.py, which draws the rooms, and sparse_spconv.py, which is run between two rounds of ours where
spconv is installed, and the sum of its kernels' times with it. Coordinates are new to both in every step: sets and kernel maps are made anew.
TFLOP/s count the products of pairs that are there. The last lines are of MinkUNet34C's coordinate pass, kernel by kernel one
after the other: sets, maps and orders of rows, and the stem, which finds its neighbours by itself.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

CASES = [("minkunet34c", 1, "f16"), ("minkunet34c", 4, "f16"), ("minkunet18", 4, "f16"), ("minkunet34c", 1, "bf16"),
         ("minkunet34c", 1, "f32"), ("minkunet34c", 1, "tf32")]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from sparse_products import CLASSES, MODELS, gflop  # noqa: E402

BLOCKS_OF = {model: net for net, model in MODELS.items()}
COORDINATES = ("kernel_map", "coords_stride", "map_order")


def write_rooms(rooms, folder):
    count = len(rooms)
    coords = [np.concatenate([np.full((len(c), 1), b, np.int32), c - c.min(0)], 1) for b, (c, _, _) in enumerate(rooms)]
    path = os.path.join(folder, f"rooms{count}")
    np.savez(path + ".npz", coords=np.concatenate(coords).astype(np.int32), features=np.concatenate([r[1] for r in rooms]))
    np.save(path + ".npy", np.concatenate([r[2] for r in rooms]))
    return path


def bench(widefield, model, path, precision, *more):
    command = [widefield, "bench", "--device", "cuda", "--precision", precision, f"model.name={model}",
               f"model.classes={CLASSES}", "train.optimizer=sgd", "--input", path + ".npz", "--target", path + ".npy",
               "--steps", "20", "--warmup", "5", "--json", "--quiet", *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def ours(widefield, model, path, precision, products):
    got = bench(widefield, model, path, precision)
    return dict(who="widefield", model=model, rooms=os.path.basename(path), precision=precision, ms=round(got["ms"], 2),
                GiB=round(got["peak_bytes"] / 2**30, 2), TFLOP=round(products / 1e3, 2),
                TFLOP_per_s=round(products / got["ms"], 1))


def coordinate_pass(widefield, model, path, precision):
    timeline = path + ".json"
    bench(widefield, model, path, precision, "--profile", "--timeline", timeline)
    with open(timeline) as file:
        events = json.load(file)
    events = [e for e in (events["traceEvents"] if isinstance(events, dict) else events) if e.get("ph") == "X"]
    maps = sum(e["dur"] for e in events if e["name"].split()[0] in COORDINATES)
    stem = sum(e["dur"] for e in events if e["name"].startswith("sparse_conv") and " stem." in e["name"])
    return dict(who="widefield", model=model, rooms=os.path.basename(path), precision=precision,
                coordinates_ms=round(maps / 1e3, 3), stem_ms=round(stem / 1e3, 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--widefield", default="build/cuda/widefield")
    given = parser.parse_args()
    sys.path.insert(0, given.peers)
    from sparse_scene import scene
    with tempfile.TemporaryDirectory() as folder:
        rooms = [scene(seed) for seed in range(4)]
        paths = {count: write_rooms(rooms[:count], folder) for count in (1, 4)}
        products = {(net, count): sum(gflop(r[0], net) for r in rooms[:count])
                    for net in {BLOCKS_OF[case[0]] for case in CASES} for count in (1, 4)}
        for round_of in range(2):
            for model, count, precision in CASES:
                print(json.dumps(ours(given.widefield, model, paths[count], precision,
                                      products[BLOCKS_OF[model], count])), flush=True)
            if round_of == 0:
                subprocess.run([sys.executable, "sparse_spconv.py", "cuda"], cwd=given.peers, check=False)
                kernels = os.path.join(os.path.dirname(os.path.abspath(__file__)), "spconv_kernels.py")
                subprocess.run([sys.executable, kernels], cwd=given.peers, check=False)
        for count in (1, 4):
            print(json.dumps(coordinate_pass(given.widefield, "minkunet34c", paths[count], "f16")), flush=True)


if __name__ == "__main__":
    main()
