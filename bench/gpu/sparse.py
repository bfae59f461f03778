"""Time of a training step of MinkUNet on rooms of voxels, on a GPU: spconv against Widefield in one run.

    python3 bench/gpu/sparse.py --peers FOLDER [--widefield build/cuda/widefield]

FOLDER has sparse_scene.py, which draws the rooms, and sparse_spconv.py, which is run between two rounds of ours where
spconv is installed, and the sum of its kernels' times with it. Coordinates are new to both in every step: sets and kernel maps are made anew.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

CASES = [("minkunet34c", 1, "f16"), ("minkunet34c", 4, "f16"), ("minkunet18", 4, "f16"), ("minkunet34c", 1, "bf16"),
         ("minkunet34c", 1, "f32")]
CLASSES = 4


def write_rooms(scene, count, folder):
    rooms = [scene(seed) for seed in range(count)]
    coords = [np.concatenate([np.full((len(c), 1), b, np.int32), c - c.min(0)], 1) for b, (c, _, _) in enumerate(rooms)]
    path = os.path.join(folder, f"rooms{count}")
    np.savez(path + ".npz", coords=np.concatenate(coords).astype(np.int32), features=np.concatenate([r[1] for r in rooms]))
    np.save(path + ".npy", np.concatenate([r[2] for r in rooms]))
    return path


def ours(widefield, model, path, precision):
    command = [widefield, "bench", "--device", "cuda", "--precision", precision, f"model.name={model}",
               f"model.classes={CLASSES}", "train.optimizer=sgd", "--input", path + ".npz", "--target", path + ".npy",
               "--steps", "20", "--warmup", "5", "--json", "--quiet"]
    got = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return dict(who="widefield", model=model, rooms=os.path.basename(path), precision=precision, ms=round(got["ms"], 2),
                GiB=round(got["peak_bytes"] / 2**30, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--widefield", default="build/cuda/widefield")
    given = parser.parse_args()
    sys.path.insert(0, given.peers)
    from sparse_scene import scene
    with tempfile.TemporaryDirectory() as folder:
        paths = {count: write_rooms(scene, count, folder) for count in (1, 4)}
        for round_of in range(2):
            for model, count, precision in CASES:
                print(json.dumps(ours(given.widefield, model, paths[count], precision)), flush=True)
            if round_of == 0:
                subprocess.run([sys.executable, "sparse_spconv.py", "cuda"], cwd=given.peers, check=False)
                kernels = os.path.join(os.path.dirname(os.path.abspath(__file__)), "spconv_kernels.py")
                subprocess.run([sys.executable, kernels], cwd=given.peers, check=False)


if __name__ == "__main__":
    main()
