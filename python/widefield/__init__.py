"""Widefield: convolutional networks on whole images, cut over many devices, with the numbers of one.

>>> import numpy as np
>>> import widefield
>>> images = np.random.default_rng(1).normal(size=(4, 1, 32, 32)).astype(np.float32)
>>> labels = (images[:, 0] > 0).astype(np.uint8)
>>> data = widefield.Data.from_arrays(images, labels)
>>> network = widefield.Network("unet", base=4, depth=2)
>>> with widefield.Trainer(network, data, epochs=2, batch=2, mesh="space=2x1") as trainer:
...     history = trainer.fit()
...     prediction = trainer.predictor().predict(images[0])
>>> len(history), prediction.labels.shape
(2, (32, 32))

See docs/python.md.
"""

from __future__ import annotations

from . import errors, safetensors
from ._native import lib as _lib
from .data import Data
from .errors import Error, FailedError, FitError, InputError, StoppedError, UnsupportedError, UsageError
from .graph import Exec
from .network import Network, models
from .options import Options
from .predictor import Prediction, Predictor, predict
from .session import Device, Plan, Session, Verification, devices, plan, verify
from .trainer import Callback, Epoch, History, Scores, Step, Trainer, Weights

__version__: str = _lib.wf_version().decode()


def from_torch(module, example, **options):  # type: ignore[no-untyped-def]
    """A Network of a PyTorch module, with its weights: see widefield.torch_import.from_torch()."""
    from .torch_import import from_torch as translate

    return translate(module, example, **options)


__all__ = [
    "Callback", "Data", "Device", "Epoch", "Error", "Exec", "FailedError", "FitError", "History", "InputError", "Network",
    "Options", "Plan", "Prediction", "Predictor", "Scores", "Session", "Step", "StoppedError", "Trainer",
    "UnsupportedError", "UsageError", "Verification", "Weights", "devices", "errors", "from_torch", "models", "plan",
    "predict", "safetensors", "verify",
]  # fmt: skip
