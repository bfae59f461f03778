"""A bar in the terminal: tqdm's where that is installed, else a small one of our own."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO


class Bar:
    """A line that is drawn over: what, how much of it, and a note.

    >>> import io
    >>> out = io.StringIO()
    >>> bar = Bar("predict", out)
    >>> bar.show(0.5)
    >>> bar.close()
    >>> "predict  50%" in out.getvalue()
    True
    """

    WIDTH = 24
    EVERY = 0.1  # seconds

    def __init__(self, what: str, out: TextIO | None = None) -> None:
        self.what = what
        self.out: TextIO = out if out is not None else sys.stderr
        self.last = 0.0
        self.drawn = 0

    def show(self, part: float, note: str = "") -> None:
        """Draws it, at most ten times a second."""
        now = time.monotonic()
        if self.drawn and now - self.last < self.EVERY and part < 1:
            return
        self.last = now
        full = int(self.WIDTH * min(1.0, max(0.0, part)))
        line = f"{self.what} {part * 100:3.0f}% [{'#' * full}{'.' * (self.WIDTH - full)}] {note}"
        self.out.write("\r" + line.ljust(self.drawn))
        self.out.flush()
        self.drawn = len(line)

    def close(self) -> None:
        """Ends its line."""
        if self.drawn:
            self.out.write("\n")
            self.out.flush()
            self.drawn = 0


class TqdmBar:
    """The same by tqdm, which also draws in notebooks."""

    def __init__(self, what: str, tqdm: Any) -> None:
        self.bar = tqdm(total=100, desc=what, bar_format="{desc} {percentage:3.0f}%|{bar}| {postfix}", leave=True)

    def show(self, part: float, note: str = "") -> None:
        self.bar.set_postfix_str(note, refresh=False)
        self.bar.update(max(0.0, min(100.0, part * 100)) - self.bar.n)

    def close(self) -> None:
        self.bar.close()


def bar_for(what: str, progress: bool | None) -> Any:
    """A bar, or None. None as `progress`: where stderr is a terminal, or tqdm draws in a notebook."""
    if progress is False:
        return None
    notebook = "ipykernel" in sys.modules
    if progress is None and not notebook and not sys.stderr.isatty():
        return None
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return Bar(what)
    return TqdmBar(what, tqdm)
