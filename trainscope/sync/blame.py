"""Which frame of a stack is the user's, and which library frame did the waiting."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import CodeType, FrameType

import torch

__all__ = ["Blame", "blame", "is_user_file", "library_frame", "working_frame"]

_PARTS = tuple(
    part.replace("/", os.sep)
    for part in (
        "/site-packages/", "/dist-packages/",
        # debuggers, which an editor brings along and starts the program with: VS Code, PyCharm
        "/debugpy/_vendored/", "/debugpy/server/", "/debugpy/__main__.py", "/helpers/pydev/",
    )
)  # fmt: skip
# Code that a library writes and compiles has such a name; all other <names> are the user's:
# <stdin>, <string>, <ipython-input-…>.
_GENERATED = ("<frozen ", "<eval_with_key>", "<__array_function__", "<attrs generated", "<torch_")
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
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
    folders += _installed_into()
    real = [os.path.realpath(folder) for folder in folders]
    return tuple({folder.rstrip(os.sep) + os.sep for folder in folders + real})


def _installed_into() -> list[str]:
    """Folders of the path that ``pip install --target``, or a pex, filled with packages.

    Never that of the program or where it was started: packages may have been put beside it.
    """
    program = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    here = [os.path.realpath(path) for path in (program, *sys.path[:1], os.getcwd())]
    found: list[str] = []
    for folder in sys.path:
        inside = os.path.realpath(folder) + os.sep
        if any((path + os.sep).startswith(inside) for path in here):
            continue
        try:
            names = os.listdir(folder)
        except OSError:  # an archive, or what is not there
            continue
        if any(name.endswith(".dist-info") for name in names):
            found.append(os.path.abspath(folder))
    return found


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


# Frames of torch through which a call only passes on its way: they tell nobody what waited.
_PASSING_FILES = (
    "_compile.py", "_jit_internal.py", "_ops.py", "overrides.py", "amp/autocast_mode.py",
    "autograd/function.py", "functional.py", "utils/_contextlib.py", "utils/_device.py",
    "utils/_python_dispatch.py",
)  # fmt: skip
_PASSING_FOLDERS = (
    "_dynamo", "_functorch", "_higher_order_ops", "_inductor", "_library", "_subclasses", "fx",
)  # fmt: skip
_PASSING_FUNCTIONS = {
    "_tensor.py": frozenset({"_convert", "unique", "unique_consecutive", "wrapped"}),
    "autograd/graph.py": frozenset({"_engine_run_backward"}),
    "nn/modules/module.py": frozenset({"_call_impl", "_wrapped_call_impl"}),
}


def _torch_file(filename: str) -> str | None:
    """Return the path of a file of torch within its package, with slashes."""
    for root in _torch_roots():
        if filename.startswith(root):
            return filename[len(root) :].replace(os.sep, "/")
    return None


@functools.lru_cache(maxsize=1)
def _torch_roots() -> tuple[str, ...]:
    folder = os.path.dirname(os.path.abspath(torch.__file__))
    return tuple({folder + os.sep, os.path.realpath(folder) + os.sep})


@functools.lru_cache(maxsize=4096)
def _only_passes(filename: str, function: str) -> bool:
    """Return whether a library's function is plumbing: not what did the work."""
    if filename.startswith((*_GENERATED, _OURS)) or _INDUCTOR in filename:
        return True
    if function == "__torch_function__":  # of torch's subclass or another library's, as MONAI's
        return not is_user_file(filename)
    path = _torch_file(os.path.abspath(filename))
    if path is None:
        return False
    if path in _PASSING_FILES or path.split("/")[0] in _PASSING_FOLDERS:
        return True
    return function in _PASSING_FUNCTIONS.get(path, ())


def working_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame, from `frame` outwards, that is not plumbing."""
    while frame is not None and _passes_on(frame.f_code):
        frame = frame.f_back
    return frame


def _passes_on(code: CodeType) -> bool:
    # equal code may come from different files, so code itself is no key of a cache
    return _only_passes(code.co_filename, code.co_name)


class Blame:
    """The frames of one wait: the user's, the one that called it, and the library's that waited.

    ``user`` is the innermost user frame, or, on a thread that runs no user code, the innermost
    frame that is not plumbing. ``caller`` and ``via`` are ``(code, line)``, or None; ``via`` is
    the library function that did the work for the user, never the plumbing beneath it.
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


def blame(frame: FrameType | None) -> Blame:
    """Walk outwards from `frame`, the innermost one."""
    working: FrameType | None = None
    user = frame
    while user is not None:
        if is_user_file(user.f_code.co_filename):
            break
        if working is None and not _passes_on(user.f_code):
            working = user
        user = user.f_back
    if user is None:
        return Blame(working or frame, None, None)
    above = user.f_back
    while above is not None and not is_user_file(above.f_code.co_filename):
        above = above.f_back
    return Blame(
        user,
        None if above is None else (above.f_code, above.f_lineno),
        None if working is None else (working.f_code, working.f_lineno),
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
