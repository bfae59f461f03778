"""Calls of the library that Python can interrupt."""

from __future__ import annotations

import threading
from typing import Any, Callable

from . import _native
from ._native import Err, lib


def call(session: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls `function(*arguments, err)` and raises what it fills. In the main thread the call runs beside it, so that
    Ctrl-C is seen at once: it asks the library to stop, waits until it has, and raises KeyboardInterrupt."""
    err = Err()
    if threading.current_thread() is not threading.main_thread():
        return _result(function(*arguments, err), err)
    result: list[Any] = []
    done = threading.Event()

    def work() -> None:
        try:
            result.append(function(*arguments, err))
        finally:
            done.set()

    threading.Thread(target=work, name="widefield", daemon=True).start()
    try:
        done.wait()
    except KeyboardInterrupt:
        lib.wf_session_stop(session)
        _wait_out(done)
        raise
    return _result(result[0], err)


def finish(function: Callable[..., Any], *arguments: Any) -> Any:
    """The same for a call that is short, or that is not to be left half done: Ctrl-C is raised behind it."""
    err = Err()
    return _result(function(*arguments, err), err)


def _wait_out(done: threading.Event) -> None:
    """The library still uses arrays of the call: whatever comes, it has to end first."""
    while not done.is_set():
        try:
            done.wait()
        except KeyboardInterrupt:
            continue


def _result(result: Any, err: Err) -> Any:
    if not result:
        _native.fail(err)
    return result
