"""Errors of the library as exceptions.

>>> import widefield
>>> try:
...     widefield.Options({"model.bsae": 32})
... except widefield.UsageError as error:
...     print(error)
options: unknown key 'model.bsae': did you mean 'model.base'?
"""

from __future__ import annotations


class Error(Exception):
    """What went wrong, and what to do, in a sentence. All errors of this package are of this class."""


class FailedError(Error, RuntimeError):
    """The environment failed: a file cannot be written, memory is not there, another rank has ended."""


class InputError(Error, ValueError):
    """The content of a file, or of an array, is bad."""


class UsageError(Error, ValueError):
    """A wrong setting, or a call that cannot be made now."""


class FitError(Error):
    """It does not fit: into "memory.limit", or onto the mesh. The text names what would."""


class StoppedError(Error):
    """It was stopped on request."""


class UnsupportedError(UsageError):
    """A PyTorch module has an operation that no rule translates. `node`, `operator` and `module` name it."""

    def __init__(self, text: str, node: str = "", operator: str = "", module: str = "") -> None:
        super().__init__(text)
        self.node = node
        self.operator = operator
        self.module = module


# By enum wf_err_code.
BY_CODE: dict[int, type[Error]] = {
    1: FailedError,
    2: InputError,
    3: UsageError,
    4: FitError,
    5: StoppedError,
}
