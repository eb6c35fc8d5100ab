"""A user's script or module, run as ``__main__`` the way Python itself would."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from trainscope.cli.launchers import instead_of

__all__ = ["Program", "ProgramError", "load_module", "load_script", "show_own_traceback"]

STDIN = "<stdin>"
_LAUNCHERS: list[ModuleType] = []
_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


class ProgramError(Exception):
    """There is nothing to run; the text says why. Python's own exit status for it is ``status``."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Program:
    """Compiled code with what its ``__main__`` module has to know."""

    code: CodeType
    file: str
    """Absolute path; ``<stdin>`` for a program that came through it."""
    argv0: str
    """``sys.argv[0]``: a script as it was typed, a module's full path."""
    import_path: str
    """What goes first on ``sys.path``: the script's folder, or the working directory for -m."""
    spec: importlib.machinery.ModuleSpec | None = None
    """None for a script; spawned children find the module by its name."""
    loader: object = None
    """What ``__loader__`` is, where there is no spec."""

    @property
    def name(self) -> str:
        """Short name, for the run directory."""
        if self.file == STDIN:
            return "stdin"
        if self.spec is None or self.spec.name == "__main__":  # a script, a folder or an archive
            return Path(self.argv0).stem
        return self.spec.name.removesuffix(".__main__").rpartition(".")[2]

    def prepare(self, args: Sequence[str]) -> None:
        """Set ``sys.argv`` and ``sys.path[0]`` as the program expects them."""
        sys.argv = [self.argv0, *args]
        _put_first(self.import_path)

    def run(self) -> None:
        """Execute it as ``sys.modules["__main__"]``; wait for its threads as Python would.

        Whatever it raises comes out unchanged. The module stays ``__main__`` afterwards, for
        exit handlers and unpickling.
        """
        main = ModuleType("__main__")
        main.__dict__.update(
            __file__=self.file,
            __builtins__=sys.modules["builtins"],
            __spec__=self.spec,
            __package__=None if self.spec is None else self.spec.parent,
            __loader__=self.loader if self.spec is None else self.spec.loader,
            __cached__=None if self.spec is None else self.spec.cached,
        )
        if sys.version_info < (3, 14):
            main.__annotations__ = {}
        # a module that nothing refers to any more loses its globals, and ours is still running
        _LAUNCHERS.append(sys.modules["__main__"])
        sys.modules["__main__"] = main
        exec(self.code, main.__dict__)
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()

    def own_traceback(self, trace: TracebackType | None) -> TracebackType | None:
        """The traceback without the launcher's frames, and without ours within the program."""
        frames = []
        while trace is not None:
            frames.append(trace)
            trace = trace.tb_next
        starts = [at for at, frame in enumerate(frames) if frame.tb_frame.f_code is self.code]
        kept = frames[starts[0] :] if starts else frames
        theirs = [frame for frame in kept if not _is_ours(frame.tb_frame.f_code)]
        if theirs and kept[-1] is theirs[-1]:
            kept = theirs  # a fault inside our own code keeps its frames
        for frame, following in zip(kept, [*kept[1:], None], strict=True):
            frame.tb_next = following
        return kept[0] if kept else None


def show_own_traceback(program: Program) -> None:
    """Have the exception that ends the program displayed as if Python had run it alone.

    The hook that the program itself may have put at ``sys.excepthook`` does the displaying.
    """
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = shown
        trace = program.own_traceback(trace)
        error.__traceback__ = trace
        shown(kind, error, trace)

    sys.excepthook = hook


def load_script(path: str) -> Program:
    """Read and compile a script. Raises ProgramError, or SyntaxError as Python would."""
    if path == "-":
        code = compile_source(sys.stdin.buffer.read(), STDIN)
        loader = importlib.machinery.BuiltinImporter
        return Program(code=code, file=STDIN, argv0="-", import_path="", loader=loader)
    file = os.path.abspath(path)
    if os.path.isdir(file) or zipfile.is_zipfile(file):
        return _load_main_of(path, file)
    try:
        with io.open_code(file) as opened:
            source = opened.read()
    except OSError as error:
        text = f"can't open {file!r}: {error.strerror}{instead_of(path)}"
        raise ProgramError(text, 2) from None
    if file.endswith(".ipynb"):
        raise ProgramError(
            f"{path!r} is a notebook, which is run in a kernel: make a trainscope.Scope around the "
            f"loop there, or run it as a script: jupyter nbconvert --to script {path}",
            1,
        )
    if source.startswith(importlib.util.MAGIC_NUMBER):
        loader = importlib.machinery.SourcelessFileLoader("__main__", file)
        code = loader.get_code("__main__")
        assert code is not None
    else:
        loader = importlib.machinery.SourceFileLoader("__main__", file)
        code = compile_source(source, file)
    return Program(
        code=code,
        file=file,
        argv0=path,
        # Python looks through a link, so that the script's neighbours are those of the real file
        import_path=os.path.dirname(os.path.realpath(file)),
        loader=loader,
    )


def _load_main_of(path: str, file: str) -> Program:
    """The ``__main__`` in a folder or a zip archive."""
    importer = pkgutil.get_importer(file)
    spec = None if importer is None else importer.find_spec("__main__")
    code = None if spec is None else spec.loader.get_code("__main__")  # type: ignore[union-attr]
    if code is None:
        kind = "folder" if os.path.isdir(file) else "archive"
        raise ProgramError(
            f"{path!r} is a {kind} with no __main__.py; name a Python file, or a module with -m", 1
        )
    assert spec is not None
    return Program(code=code, file=spec.origin or file, argv0=path, import_path=file, spec=spec)


def compile_source(source: bytes, file: str) -> CodeType:
    """Compile with none of our own ``from __future__`` settings."""
    if b"\0" in source:
        raise ProgramError(f"{file} is not Python source: it holds null bytes", 1)
    return compile(source, file, "exec", dont_inherit=True)


def load_module(name: str) -> Program:
    """Find a module, or a package's ``__main__``, as ``python -m`` does. Raises ProgramError."""
    here = os.getcwd()
    _put_first(here)
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ProgramError(f"error while finding module {name!r}: {error}", 1) from None
    if spec is None:
        raise ProgramError(f"no module named {name!r} in {here} or elsewhere on sys.path", 1)
    code = None
    if hasattr(spec.loader, "get_code"):
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    if code is None or spec.origin is None:
        raise ProgramError(f"module {name!r} has no Python code to run", 1)
    return Program(code=code, file=spec.origin, argv0=spec.origin, import_path=here, spec=spec)


def _put_first(folder: str) -> None:
    if getattr(sys.flags, "safe_path", False):
        return  # the user asked Python to put no folder first (-P, -I)
    if sys.path:
        sys.path[0] = folder
    else:
        sys.path.append(folder)


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_PACKAGE)
