"""Sessions: options, and the ranks that run them; plans and verifications."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import os
import weakref
from collections.abc import Mapping
from typing import Any

from . import _calls, _native, html
from ._native import Err, LogFn, PlanInfo, VerifyInfo, lib
from .network import Network, as_network
from .options import Options, as_options, from_keywords

log = logging.getLogger("widefield")

_TO_PYTHON = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}


@LogFn
def _take_log(level: int, text: bytes, _user: Any) -> None:
    log.log(_TO_PYTHON.get(level, logging.INFO), "%s", text.decode(errors="replace"))


def _log_level() -> int:
    """What the logger would let through."""
    for level, python in sorted(_TO_PYTHON.items(), reverse=True):
        if log.isEnabledFor(python):
            return level
    return 0


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of this machine; `name` is for the option "run.device"."""

    name: str
    index: int
    about: str
    bytes: int
    free_bytes: int


def devices() -> list[Device]:
    """The devices that this machine has.

    >>> devices()[0].name
    'cpu'
    """
    found = []
    for i in range(lib.wf_device_count()):
        info = _native.DeviceInfo()
        if lib.wf_device_get(i, ctypes.byref(info)):
            found.append(Device(info.name.decode(), info.index, info.about.decode(), info.bytes, info.free_bytes))
    return found


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a training step needs; a notebook shows it as a table."""

    ranks: int
    mesh: str
    bytes: int  #: of memory that the rank with most needs
    seconds: float  #: of a step, predicted
    messages: int  #: of a step, all ranks together
    fetched: int  #: bytes of a step, all ranks together
    summed: int  #: the same for sums
    parameters: int  #: that are trained
    flops: float  #: of a step
    rank_bytes: tuple[int, ...]  #: of the first 16 ranks
    rank_seconds: tuple[float, ...]

    def __str__(self) -> str:
        return (
            f"{self.ranks} ranks ({self.mesh or 'one'}): {html.bytes_text(self.bytes)} each at most, "
            f"{html.seconds_text(self.seconds)} a step, {self.parameters:,} parameters, {self.messages} messages, "
            f"{html.bytes_text(self.fetched)} fetched, {html.bytes_text(self.summed)} summed"
        )

    def _repr_html_(self) -> str:
        rows = [
            (r, html.bytes_text(b), html.seconds_text(s))
            for r, (b, s) in enumerate(zip(self.rank_bytes, self.rank_seconds))
        ]
        return f"<p>{html.escape(str(self))}</p>" + html.table(("rank", "memory", "step"), rows)


@dataclasses.dataclass(frozen=True)
class Verification:
    """A step on the mesh against the same step on one rank: largest relative differences."""

    same: bool
    loss: float
    predictions: float
    gradients: float
    weights: float

    def __bool__(self) -> bool:
        return self.same

    def _repr_html_(self) -> str:
        rows = [(name, f"{getattr(self, name):.2e}") for name in ("loss", "predictions", "gradients", "weights")]
        return html.table(("verify: " + ("the same" if self.same else "differs"), "largest difference"), rows)


class Session:
    """Options, and the ranks that run them: threads of this process, or, under mpirun or srun, the processes. There
    one session is made, and every process makes the same calls in the same order.

    >>> with Session("unet", base=4, depth=2, mesh="space=2x1") as session:
    ...     plan = session.plan((1, 3, 64, 64))
    >>> plan.ranks, plan.mesh
    (2, 'space=2x1')

    `network` is a Network, the name of one of the library's, or a network file; `settings` a mapping, Options, or the
    path of a config; keywords are keys of the config, see docs/python.md. It serves one thread at a time.
    """

    def __init__(
        self,
        network: Network | str | os.PathLike[str] | None = None,
        settings: Options | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        _section: str = "model",
        **keywords: Any,
    ) -> None:
        self.options = as_options(settings)
        self.network = as_network(network) if network is not None else None
        if self.network is not None:
            self.network.apply(self.options)
        self.options.update(from_keywords(keywords, _section))
        self._handle: int | None = _calls.finish(lib.wf_session_new, self.options._handle)
        lib.wf_session_on_log(self._handle, _log_level(), _take_log, None)
        self._end = weakref.finalize(self, lib.wf_session_free, self._handle)

    @property
    def handle(self) -> int:
        """The C handle."""
        if self._handle is None:
            raise _closed("session")
        return self._handle

    @property
    def rank(self) -> int:
        """This process among those of a launcher; 0 without one."""
        return lib.wf_session_rank(self.handle)

    @property
    def size(self) -> int:
        """The launcher's processes; 1 without one."""
        return lib.wf_session_size(self.handle)

    def plan(self, size: tuple[int, ...] | None = None) -> Plan:
        """Plans a training step on images of `size` (N, C, extents), or of "data.size". Nothing runs. FitError where
        "memory.limit" has no room."""
        info = PlanInfo()
        _calls.call(self.handle, lib.wf_session_plan, self.handle, *_native.sizes(size), ctypes.byref(info))
        shown = min(info.ranks, len(info.rank_bytes))
        return Plan(
            info.ranks, info.mesh.decode(), info.bytes, info.seconds, info.messages, info.fetched, info.summed,
            info.parameters, info.flops, tuple(info.rank_bytes[:shown]), tuple(info.rank_seconds[:shown]),
        )  # fmt: skip

    def explain(self, size: tuple[int, ...] | None = None, rank: int = 0) -> str:
        """The steps of one rank as text."""
        text = _calls.call(self.handle, lib.wf_session_explain, self.handle, *_native.sizes(size), rank)
        try:
            return ctypes.string_at(text).decode()
        finally:
            lib.wf_text_free(text)

    def verify(self, size: tuple[int, ...] | None = None) -> Verification:
        """One step on the mesh against the same step on one rank, on random data."""
        info = VerifyInfo()
        _calls.call(self.handle, lib.wf_session_verify, self.handle, *_native.sizes(size), ctypes.byref(info))
        return Verification(info.same, info.loss, info.predictions, info.gradients, info.weights)

    def close(self) -> None:
        """Frees it; what was made from it is closed before."""
        if self._handle is not None:
            self._handle = None
            self._end()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _closed(what: str) -> Exception:
    from .errors import UsageError

    return UsageError(f"this {what} is closed")


def as_session(target: Any, settings: Any, keywords: Mapping[str, Any], section: str) -> tuple[Session, bool]:
    """A session of what a user gives, and whether it was made here."""
    from .errors import UsageError

    if isinstance(target, Session):
        if settings is not None or keywords:
            raise UsageError("a session has its options already: give them where it is made")
        return target, False
    return Session(target, settings, _section=section, **keywords), True


def plan(network: Any, size: tuple[int, ...] | None = None, **options: Any) -> Plan:
    """Plans a training step of a network: `plan("unet", (1, 3, 512, 512), mesh="space=2x2")`."""
    with Session(network, **options) as session:
        return session.plan(size)


def verify(network: Any, size: tuple[int, ...] | None = None, **options: Any) -> Verification:
    """Compares a step on the mesh with one on one rank: `verify(net, (1, 3, 64, 64), mesh="space=2x2")`."""
    with Session(network, **options) as session:
        return session.verify(size)


__all__ = ["Device", "Err", "Plan", "Session", "Verification", "devices", "plan", "verify"]
