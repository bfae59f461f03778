"""Predictions of a trained network on images of any size."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, NamedTuple

import numpy as np

from . import _calls, session as _session
from ._native import PredictArrays, PredictFiles, ProgressFn, lib
from .arrays import as_dtype, pointer, to_numpy
from .errors import UsageError
from .progress import bar_for
from .session import Session, as_session
from .trainer import Trainer

UNSET = np.iinfo(np.int32).min  # no label


class Prediction(NamedTuple):
    """`labels` [*spatial], or one number where labels are of images; `probabilities` [classes, *spatial], or [classes],
    or None where they were not wanted."""

    labels: np.ndarray
    probabilities: np.ndarray | None


class Predictor:
    """A trained network, for images of any size, in windows, with the result of the whole.

        predictor = widefield.Predictor("runs/first")
        labels = predictor.predict(image).labels

    `source` is a checkpoint, a run folder (its best), or a Trainer, whose weights are copied. Keywords, or a session,
    say where it runs: `mesh`, `device`, `memory_limit`.
    """

    def __init__(self, source: Any, session: Session | None = None, **options: Any) -> None:
        self._owns = False
        self._handle: int | None = None
        if isinstance(source, Trainer):
            if session is not None or options:
                raise UsageError("a predictor of a trainer runs in the trainer's session: give no other options")
            self.session = source.session
            self._handle = _calls.finish(lib.wf_predictor_of, source.handle)
        else:
            self.session, self._owns = as_session(session, None, options, "run")
            path = os.fsencode(source)
            try:
                self._handle = _calls.call(self.session.handle, lib.wf_predictor_new, self.session.handle, path)
            except BaseException:
                if self._owns:
                    self.session.close()
                raise
        self._end = weakref.finalize(self, _free, self._handle, self.session, self._owns)
        self._trainer = source if isinstance(source, Trainer) else None  # its session ends with it

    @property
    def handle(self) -> int:
        """The C handle."""
        if self._handle is None:
            raise _session._closed("predictor")
        return self._handle

    @property
    def channels(self) -> int:
        """Of a prediction: classes, or 1 where there are two and one tells them apart."""
        return lib.wf_predictor_channels(self.handle)

    def _run(self, function: Any, what: Any, window: tuple[int, ...] | None, progress: bool | None) -> None:
        sizes = tuple(window or ())
        if len(sizes) > 3:
            raise UsageError(f"a window of {len(sizes)} extents: give up to three")
        lead = (0 if not sizes else 1,) * (3 - len(sizes))
        lib.wf_predictor_window(self.handle, ctypes.byref((ctypes.c_int64 * 3)(*lead, *sizes)))
        bar = bar_for("predict", progress) if self.session.rank == 0 else None

        @ProgressFn
        def show(part: float, _user: Any) -> None:
            if bar is not None:
                bar.show(part)

        lib.wf_predictor_on_progress(self.handle, show, None)
        try:
            _calls.call(self.session.handle, function, self.handle, ctypes.byref(what))
        finally:
            lib.wf_predictor_on_progress(self.handle, ProgressFn(), None)
            if bar is not None:
                bar.close()

    def predict(
        self,
        image: Any,
        *,
        probabilities: bool = False,
        window: tuple[int, ...] | None = None,
        progress: bool | None = None,
    ) -> Prediction:
        """Predicts an array [C, H, W] or [C, D, H, W] of the same meaning as the training images, numpy or any with
        __dlpack__ (a PyTorch tensor), without a copy where it is contiguous float32 in host memory. `window` are extents
        of windows; None: as "memory.limit" allows."""
        pixels = as_dtype(image, np.float32)
        if pixels.ndim not in (3, 4):
            raise UsageError(f"an image of shape {pixels.shape}: give [C, H, W] or [C, D, H, W]")
        spatial = pixels.shape[1:]
        # The library writes one label, at the beginning, where labels are of images.
        labels = np.full(spatial, UNSET, np.int32)
        wanted = np.empty((self.channels, *spatial), np.float32) if probabilities else None
        arrays = PredictArrays(dims=len(spatial), image=pointer(pixels), labels=pointer(labels))
        arrays.extents[: len(spatial)] = spatial
        arrays.probabilities = pointer(wanted)
        self._run(lib.wf_predictor_array, arrays, window, progress)
        per_image = labels.size > 1 and labels.reshape(-1)[-1] == UNSET
        if per_image:
            labels = labels.reshape(-1)[:1].reshape(()).copy()
            wanted = wanted.reshape(-1)[: self.channels].copy() if wanted is not None else None
        return Prediction(labels, wanted)

    def predict_file(
        self,
        image: str | os.PathLike[str],
        *,
        labels: str | os.PathLike[str] | None = None,
        probabilities: str | os.PathLike[str] | None = None,
        overlay: str | os.PathLike[str] | None = None,
        window: tuple[int, ...] | None = None,
        progress: bool | None = None,
    ) -> None:
        """Reads an image file and writes those that are wanted, by extension .tif, .nii, .nii.gz, .png or .npy, in the
        memory of a window."""
        if labels is None and probabilities is None and overlay is None:
            raise UsageError("nothing is to be written: give labels=, probabilities= or overlay=")
        paths = [os.fsencode(p) if p is not None else None for p in (image, labels, probabilities, overlay)]
        self._run(lib.wf_predictor_file, PredictFiles(*paths), window, progress)

    def close(self) -> None:
        """Frees it."""
        if self._handle is not None:
            self._handle = None
            self._end()

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free(handle: int, session: Session, owns: bool) -> None:
    lib.wf_predictor_free(handle)
    if owns:
        session.close()


def predict(source: Any, image: Any, *, probabilities: bool = False, **options: Any) -> Prediction:
    """A prediction of one image: `predict("runs/first", image)`; an image file is read by Predictor.predict_file()."""
    with Predictor(source, **options) as predictor:
        return predictor.predict(image, probabilities=probabilities)


__all__ = ["Prediction", "Predictor", "predict", "to_numpy"]
