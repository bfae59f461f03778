"""The package under mpirun: the same numbers as with ranks that are threads."""

import os
import pathlib
import shlex
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import sys
import numpy as np
import widefield

images = np.random.default_rng(1).normal(size=(4, 1, 32, 32)).astype(np.float32)
data = widefield.Data.from_arrays(images, (images[:, 0] > 0).astype(np.uint8))
settings = {"model": {"name": "unet", "base": 4, "depth": 1}, "train": {"epochs": 2, "batch": 2}, "mesh": "space=2x1"}
with widefield.Session(settings=settings) as session:
    assert session.size == int(sys.argv[2]), session.size
    assert session.plan((2, 1, 32, 32)).ranks == 2
    with widefield.Trainer(session, data) as trainer:
        trainer.fit(progress=False)
        predicted = trainer.predictor().predict(images[0], probabilities=True).probabilities
        weights = dict(trainer.weights)
    np.savez(sys.argv[1] + str(session.rank), predicted=predicted, **weights)
"""


def run(command, path, size):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = [sys.executable, "-c", SCRIPT, str(path), str(size)]
    ran = subprocess.run([*command, *script], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return [dict(np.load(f"{path}{rank}.npz")) for rank in range(size)]


def test_processes_give_the_numbers_of_threads(tmp_path):
    mpirun = shlex.split(os.environ.get("MPIRUN", ""))
    if not mpirun:
        pytest.skip("no mpirun in MPIRUN, or a build without MPI")
    (threads,) = run([], tmp_path / "threads", 1)
    ranks = run([*mpirun, "-n", "2"], tmp_path / "mpi", 2)
    for found in ranks:
        assert set(found) == set(threads)
        assert all(np.allclose(found[name], array, atol=1e-5) for name, array in threads.items())


def test_the_example(tmp_path):
    pytest.importorskip("torch", "2.6", reason="no PyTorch 2.6 here: examples/own_network.py is left out")
    example = pathlib.Path(__file__).parents[2] / "examples" / "own_network.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, str(example)], env=environment, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "of the pixels are right" in ran.stdout
