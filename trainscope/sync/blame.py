"""Which frame of a stack is the user's, and which library frame did the waiting."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import CodeType, FrameType

import torch

__all__ = ["Blame", "blame", "is_user_file"]

_PARTS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
# Code that a library writes and compiles has such a name; all other <names> are the user's:
# <stdin>, <string>, <ipython-input-…>.
_GENERATED = ("<frozen ", "<eval_with_key>", "<__array_function__", "<attrs generated", "<torch_")
_INDUCTOR = f"{os.sep}torchinductor_"


def _library_roots() -> tuple[str, ...]:
    """Folders whose code is never the user's, with a trailing separator."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    folders.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folders.append(os.path.dirname(os.path.abspath(torch.__file__)))
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if cache:
        folders.append(os.path.abspath(cache))
    real = [os.path.realpath(folder) for folder in folders]
    return tuple({folder.rstrip(os.sep) + os.sep for folder in folders + real})


@functools.lru_cache(maxsize=4096)
def is_user_file(filename: str) -> bool:
    """Return whether code compiled from `filename` is the user's own."""
    if filename.startswith("<"):
        return not filename.startswith(_GENERATED)
    path = os.path.abspath(filename)
    if any(part in path for part in _PARTS) or _INDUCTOR in path:
        return False
    return not path.startswith(_roots())


@functools.lru_cache(maxsize=1)
def _roots() -> tuple[str, ...]:
    return _library_roots()


class Blame:
    """The frames of one wait: the user's, the one that called it, and the library's that waited.

    ``user`` is the innermost user frame, or, on a thread that runs no user code, the innermost
    frame of all. ``caller`` and ``via`` are ``(code, line)``, or None.
    """

    __slots__ = ("caller", "user", "via")

    def __init__(
        self,
        user: FrameType | None,
        caller: tuple[CodeType, int] | None,
        via: tuple[CodeType, int] | None,
    ) -> None:
        self.user = user
        self.caller = caller
        self.via = via


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def blame(frame: FrameType | None) -> Blame:
    """Walk outwards from `frame`, the innermost one."""
    innermost: FrameType | None = None
    user = frame
    while user is not None:
        filename = user.f_code.co_filename
        if is_user_file(filename):
            break
        if innermost is None and not filename.startswith(_OURS):
            innermost = user
        user = user.f_back
    if user is None:
        return Blame(innermost, None, None)
    above = user.f_back
    while above is not None and not is_user_file(above.f_code.co_filename):
        above = above.f_back
    return Blame(
        user,
        None if above is None else (above.f_code, above.f_lineno),
        None if innermost is None else (innermost.f_code, innermost.f_lineno),
    )


def library_frame(code: CodeType, line: int) -> str:
    """Return ``module:line function`` for a library's code object."""
    path = os.path.splitext(os.path.abspath(code.co_filename))[0]
    best = ""
    for folder in sys.path:
        prefix = os.path.abspath(folder or os.curdir).rstrip(os.sep) + os.sep
        if path.startswith(prefix) and len(prefix) > len(best):
            best = prefix
    module = path[len(best) :].replace(os.sep, ".") if best else code.co_filename
    return f"{module.removesuffix('.__init__')}:{line} {code.co_name}"
