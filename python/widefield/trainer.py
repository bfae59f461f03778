"""The trainer: steps and epochs of a network on data."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable

import numpy as np

from . import _calls, html, session as _session
from ._native import AXES, EpochInfo, Err, ScoresInfo, StepInfo, fail, lib
from .arrays import as_dtype, pointer
from .data import Data
from .errors import UsageError
from .progress import bar_for
from .session import Session, as_session


@dataclasses.dataclass(frozen=True)
class Step:
    """One update."""

    step: int  #: updates done
    epoch: int  #: epochs that have ended
    loss: float
    lr: float
    norm: float  #: of the gradient, before clipping
    skipped: bool  #: no update: a gradient was not finite
    seconds: float
    ended: bool  #: training is over, no step was made


@dataclasses.dataclass(frozen=True)
class Epoch:
    """One pass over the data. Numbers of the validation part are NaN where it was not validated."""

    epoch: int  #: epochs that have ended, this one too
    step: int  #: updates done
    loss: float  #: mean over the epoch
    validation: float  #: the loss
    metric: float  #: mean IoU; accuracy of images; the negative loss without classes
    is_best: bool
    seconds: float = math.nan  #: that fit() took for it


@dataclasses.dataclass(frozen=True)
class Scores:
    """Of the validation part; NaN where something is not defined."""

    loss: float
    accuracy: float
    mean_iou: float
    mean_dice: float
    counted: int  #: pixels, or images
    iou: tuple[float, ...]  #: of each class

    def _repr_html_(self) -> str:
        names = ("loss", "accuracy", "mean_iou", "mean_dice")
        rows = [(name, f"{getattr(self, name):.4f}") for name in names]
        return html.table(("score", ""), rows + [(f"IoU of class {i}", f"{x:.4f}") for i, x in enumerate(self.iou)])


class History(Sequence[Epoch]):
    """The epochs that fit() made, and the loss of every step; a notebook shows curves and a table."""

    def __init__(self) -> None:
        self.epochs: list[Epoch] = []
        self.losses: list[float] = []

    def __getitem__(self, i: Any) -> Any:
        return self.epochs[i]

    def __len__(self) -> int:
        return len(self.epochs)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.epochs)

    def __repr__(self) -> str:
        if not self.epochs:
            return f"History(0 epochs, {len(self.losses)} steps)"
        last = self.epochs[-1]
        return f"History({len(self)} epochs, {len(self.losses)} steps, loss {last.loss:.4g}, metric {last.metric:.4g})"

    def _repr_html_(self) -> str:
        steps = html.curves({"loss of steps": self.losses}, "loss of steps")
        epochs = html.curves(
            {"loss": [e.loss for e in self], "validation": [e.validation for e in self]}, "loss of epochs"
        )
        rows = [
            (e.epoch, e.step, f"{e.loss:.4g}", f"{e.validation:.4g}", f"{e.metric:.4g}", "best" if e.is_best else "",
             html.seconds_text(e.seconds))
            for e in self
        ]  # fmt: skip
        head = ("epoch", "steps", "loss", "validation", "metric", "", "time")
        return f"<div>{steps}{epochs}</div>" + html.table(head, rows)


class Callback:
    """What is called while fit() runs; derive from it, or give a function, which is called after each epoch. A
    callback that returns False ends fit()."""

    def on_step(self, trainer: Trainer, step: Step) -> bool | None:
        """After each step."""

    def on_epoch(self, trainer: Trainer, epoch: Epoch) -> bool | None:
        """After each epoch, validation included."""

    def on_end(self, trainer: Trainer, history: History) -> None:
        """When fit() ends, also by an error or Ctrl-C."""


class _Function(Callback):
    def __init__(self, function: Callable[[Trainer, Epoch], bool | None]) -> None:
        self.function = function

    def on_epoch(self, trainer: Trainer, epoch: Epoch) -> bool | None:
        return self.function(trainer, epoch)


class Weights(Mapping[str, np.ndarray]):
    """A trainer's weights and running statistics by name, as in PyTorch: arrays are copies; assigning sets one.

    >>> trainer.weights["last.bias"] = np.zeros(2)                                          # doctest: +SKIP
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._shapes: dict[str, tuple[int, ...]] = {}
        shape, rank = (ctypes.c_int64 * AXES)(), ctypes.c_int()
        while True:
            name = lib.wf_trainer_tensor(
                trainer.handle, len(self._shapes), ctypes.byref(shape), ctypes.byref(rank)
            )
            if name is None:
                break
            self._shapes[name.decode()] = tuple(shape[: rank.value])

    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of one."""
        if name not in self._shapes:
            raise KeyError(name)
        return self._shapes[name]

    def _get(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        array = np.empty(shape, np.float32)
        _calls.finish(lib.wf_trainer_get, self._trainer.handle, name.encode(), pointer(array), array.size)
        return array

    def __getitem__(self, name: str) -> np.ndarray:
        return self._get(name, self.shape(name))

    def __setitem__(self, name: str, value: Any) -> None:
        array = as_dtype(value, np.float32)
        if array.shape != self.shape(name) and array.size != math.prod(self.shape(name)):
            raise UsageError(f"'{name}' has shape {self.shape(name)}, the array {array.shape}")
        _calls.finish(lib.wf_trainer_set, self._trainer.handle, name.encode(), pointer(array), array.size)

    def gradient(self, name: str) -> np.ndarray:
        """The last step's gradient of a weight."""
        return self._get("grad." + name, self.shape(name))

    def update(self, weights: Mapping[str, Any]) -> None:
        """Sets several; names that the network does not have are an error."""
        unknown = [name for name in weights if name not in self._shapes]
        if unknown:
            raise UsageError(f"the network has no weight '{unknown[0]}' ({len(unknown)} of {len(weights)} are unknown)")
        for name, value in weights.items():
            self[name] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class Trainer:
    """Trains a network on data, as the command does: the same numbers, bit for bit.

        trainer = widefield.Trainer("unet", data, folder="runs/first", epochs=20, batch=4, mesh="space=2x1")
        history = trainer.fit()
        trainer.save("net.safetensors")

    `network` is a Network, a name, a network file, or a Session. `folder` is the run folder: log, checkpoints, report;
    where it is there already the run goes on from its newest checkpoint. Keywords are keys of "train" (`epochs`, `lr`),
    flags of the command (`mesh`, `device`), or section and key (`data_crop`).
    """

    def __init__(
        self,
        network: Any,
        data: Data,
        folder: str | os.PathLike[str] | None = None,
        settings: Any = None,
        **options: Any,
    ) -> None:
        self.session: Session
        self.session, self._owns = as_session(network, settings, options, "train")
        self.data = data
        self.history = History()
        self._handle: int | None = None
        path = os.fsencode(folder) if folder is not None else None
        try:
            self._handle = _calls.call(
                self.session.handle, lib.wf_trainer_new, self.session.handle, data.handle, path
            )
        except BaseException:
            if self._owns:
                self.session.close()
            raise
        # The session ends behind it, whatever order the two are collected in.
        self._end = weakref.finalize(self, _free, self._handle, self.session, self._owns)
        self._epoch_seen = self._last_epoch()
        self._epoch_began = time.monotonic()
        self._stopping = False

    @property
    def handle(self) -> int:
        """The C handle."""
        if self._handle is None:
            raise _session._closed("trainer")
        return self._handle

    @property
    def network(self) -> Any:
        """The Network that is trained, or None where options alone name it."""
        return self.session.network

    # --- training ---

    def step(self) -> Step:
        """One step; and the end of the epoch, with validation, where it was the epoch's last."""
        info = StepInfo()
        self._patiently(lib.wf_trainer_step, ctypes.byref(info))
        return Step(
            info.step, info.epoch, info.loss, info.lr, info.norm, info.skipped, info.seconds, info.ended
        )  # fmt: skip

    def _patiently(self, function: Callable[..., Any], info: Any) -> None:
        """A step is not left half done: the first Ctrl-C is raised behind it, another one stops it at once, and then
        the trainer cannot be used any more."""
        if threading.current_thread() is not threading.main_thread():
            _calls.finish(function, self.handle, info)
            return
        err, result, done = Err(), [], threading.Event()

        def work() -> None:
            try:
                result.append(function(self.handle, info, err))
            finally:
                done.set()

        threading.Thread(target=work, name="widefield", daemon=True).start()
        interrupts = 0
        while not done.is_set():
            try:
                done.wait()
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts == 1:
                    _session.log.warning("this step is finished first; again: stop at once")
                else:
                    lib.wf_session_stop(self.session.handle)
        if interrupts:
            raise KeyboardInterrupt
        if not result or not result[0]:
            fail(err)

    def _last_epoch(self) -> int:
        info = EpochInfo()
        return info.epoch if lib.wf_trainer_last_epoch(self.handle, ctypes.byref(info)) else 0

    def _ended_epoch(self) -> Epoch | None:
        """The epoch that the last step ended, once."""
        info = EpochInfo()
        if not lib.wf_trainer_last_epoch(self.handle, ctypes.byref(info)) or info.epoch == self._epoch_seen:
            return None
        self._epoch_seen = info.epoch
        now = time.monotonic()
        seconds, self._epoch_began = now - self._epoch_began, now
        metric = info.metric if info.validated else math.nan
        return Epoch(info.epoch, info.step, info.loss, info.validation, metric, info.is_best, seconds)

    def epoch(self) -> Epoch | None:
        """Steps to the end of the epoch; None where training is over."""
        found = self.fit(epochs=1, progress=False)
        return found.epochs[-1] if found.epochs else None

    def stop(self) -> None:
        """For callbacks: fit() ends after this step."""
        self._stopping = True

    def fit(
        self,
        epochs: int | None = None,
        callbacks: Sequence[Callback | Callable[[Trainer, Epoch], bool | None]] = (),
        progress: bool | None = None,
    ) -> History:
        """Trains to the end ("train.epochs"), or for so many epochs. Ctrl-C raises KeyboardInterrupt behind the step that
        runs; fit() may then be called again, and goes on. Returns the epochs of this call; `history` has all."""
        hooks = [c if isinstance(c, Callback) else _Function(c) for c in callbacks]
        made, self._stopping = History(), False
        bar = bar_for("train", progress) if self.session.rank == 0 else None
        self._epoch_began = time.monotonic()
        try:
            while not self._stopping and (epochs is None or len(made) < epochs):
                if not self._advance(made, hooks, bar):
                    break
        finally:
            if bar is not None:
                bar.close()
            for hook in hooks:
                hook.on_end(self, made)
        return made

    def _advance(self, made: History, hooks: Sequence[Callback], bar: Any) -> bool:
        """A step and what follows it; False: training is over, or a callback ends it."""
        step = self.step()
        if step.ended:
            return False
        for history in (made, self.history):
            history.losses.append(step.loss)
        go_on = [hook.on_step(self, step) for hook in hooks]
        epoch = self._ended_epoch()
        if epoch is not None:
            for history in (made, self.history):
                history.epochs.append(epoch)
            go_on += [hook.on_epoch(self, epoch) for hook in hooks]
        if bar is not None:
            total = int(self.session.options["train.epochs"] or 1)
            bar.show(min(1.0, step.epoch / total), f"epoch {step.epoch} of {total}, step {step.step}, loss {step.loss:.4g}")
        return not any(answer is False for answer in go_on)

    def evaluate(self) -> Scores:
        """Scores of the weights as they are, on the validation part."""
        info = ScoresInfo()
        _calls.finish(lib.wf_trainer_evaluate, self.handle, ctypes.byref(info))
        iou = tuple(lib.wf_trainer_iou(self.handle, label) for label in range(info.classes))
        return Scores(info.loss, info.accuracy, info.mean_iou, info.mean_dice, info.counted, iou)

    # --- weights ---

    @property
    def weights(self) -> Weights:
        """Weights and running statistics by name; `dict(trainer.weights)` are copies of all."""
        return Weights(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint that the command and other safetensors readers take."""
        _calls.finish(lib.wf_trainer_save, self.handle, os.fsencode(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Goes on from a checkpoint: weights, optimiser, position. Not with a folder."""
        _calls.finish(lib.wf_trainer_load, self.handle, os.fsencode(path))
        self._epoch_seen = self._last_epoch()

    def predictor(self) -> Any:
        """A Predictor of the weights as they are now, which are copied."""
        from .predictor import Predictor

        return Predictor(self)

    def to_torch(self, module: Any = None) -> Any:
        """The weights as they are now in PyTorch: see Network.to_torch()."""
        if self.network is None:
            raise UsageError("the session has no Network: give one to Trainer() or Session()")
        return self.network.to_torch(module, self.weights)

    def close(self) -> None:
        """Frees it. In the middle of a run with a folder a checkpoint is written first."""
        if self._handle is not None:
            self._handle = None
            self._end()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free(handle: int, session: Session, owns: bool) -> None:
    lib.wf_trainer_free(handle)
    if owns:
        session.close()
