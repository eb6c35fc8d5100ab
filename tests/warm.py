"""Programs in Pythons that need not spend seconds on importing torch.

A ``WarmPython`` starts its command once and stops it short of the program, with torch loaded; each
program is forked from there. The child is what Python makes of that command: it runs the program as
``__main__``, prints its own traceback, dies of its own signal, waits for its own threads. It
differs in what is loaded already, and in sharing the seed of hashes; so a test of what importing
does takes ``cold``, which starts a Python as anyone would.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = [
    "TRAINSCOPE",
    "Command",
    "Ended",
    "Running",
    "WarmPython",
    "close_all",
    "cold",
    "warm",
    "warm_script",
]

# with a CUDA device, what torch asks of it while it is loaded may not be forked
CAN_FORK = sys.platform == "linux" and not torch.cuda.is_available()
LONGEST_S = 120.0


LOADED = ("torch._dynamo", "torch.utils.data", "pydantic", "rich.console", "typer", "msgspec")


@dataclass(frozen=True)
class Command:
    """``python WORDS``, and what the Python that waits with it has imported."""

    words: tuple[str, ...]
    loaded: tuple[str, ...] = LOADED


TRAINSCOPE = Command(
    ("-m", "trainscope"), (*LOADED, "trainscope.cli.recording", "trainscope.cli.report")
)


@dataclass(frozen=True)
class Ended:
    """How a program ended; a signal's number is negative, as in ``subprocess``."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Running:
    """A program that was started; what it prints is in ``out`` and ``err`` of the folder."""

    pid: int
    folder: Path
    wait: Callable[[float], int]

    def first_line(self) -> str:
        """Wait until it has printed a line."""
        deadline_s = time.monotonic() + LONGEST_S
        while "\n" not in (said := (self.folder / "out").read_text()):
            assert time.monotonic() < deadline_s, (self.folder / "err").read_text()
            time.sleep(0.005)
        return said.partition("\n")[0]

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def end(self) -> Ended:
        """Wait for its end; one that takes too long is killed, and that is an error."""
        try:
            status = self.wait(LONGEST_S)
        except (subprocess.TimeoutExpired, TimeoutError) as late:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError((self.folder / "err").read_text()) from late
        ended = Ended(status, *((self.folder / name).read_text() for name in ("out", "err")))
        shutil.rmtree(self.folder)
        return ended


Starts = Callable[[list[int]], tuple[int, Callable[[float], int]]]


def _start(start: Starts, stdin: str) -> Running:
    """Start a program with its three streams; ``start`` gives its pid, and what waits for it."""
    folder = Path(tempfile.mkdtemp(prefix="trainscope-streams-"))
    (folder / "in").write_text(stdin)
    with (
        (folder / "in").open() as given,
        (folder / "out").open("w") as out,
        (folder / "err").open("w") as err,
    ):
        pid, wait = start([given.fileno(), out.fileno(), err.fileno()])
    return Running(pid, folder, wait)


def cold(*command: str, cwd: Path, stdin: str = "") -> Running:
    """Start ``python COMMAND`` as anyone would."""

    def start(streams: list[int]) -> tuple[int, Callable[[float], int]]:
        given, out, err = streams
        program = subprocess.Popen(
            [sys.executable, *command], cwd=cwd, stdin=given, stdout=out, stderr=err
        )
        return program.pid, program.wait

    return _start(start, stdin)


class WarmPython:
    """A command, started once; one program of it runs at a time."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child: int | None = None
        path = [str(Path(__file__).parent / "warm_python")]
        path += filter(None, [os.environ.get("PYTHONPATH")])
        environ = {
            "PYTHONPATH": os.pathsep.join(path),
            "TRAINSCOPE_WARM_CHANNEL": str(theirs.fileno()),
            "TRAINSCOPE_WARM_LOADED": " ".join(command.loaded),
            "OPENBLAS_NUM_THREADS": "1",  # numpy's threads begin with its import
        }
        self._waiting = subprocess.Popen(
            [sys.executable, *command.words],
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def start(self, *words: str, cwd: Path, stdin: str = "") -> Running:
        """Start the command with more words; a program that a failed test left behind is killed."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            self._end_of_child(LONGEST_S)
        request = {"words": words, "cwd": str(cwd), "environ": dict(os.environ)}

        def start(streams: list[int]) -> tuple[int, Callable[[float], int]]:
            socket.send_fds(self._channel, [json.dumps(request).encode()], streams)
            self._child = self._answer(LONGEST_S)
            return self._child, self._end_of_child

        return _start(start, stdin)

    def close(self) -> None:
        """End the waiting Python."""
        self._channel.close()
        self._waiting.wait(LONGEST_S)

    def _end_of_child(self, timeout_s: float) -> int:
        status = self._answer(timeout_s)
        self._child = None
        return status

    def _answer(self, timeout_s: float) -> int:
        self._channel.settimeout(timeout_s)
        answer = self._channel.recv(64)
        assert answer, f"the Python that waited for {self._command} has died"
        return int(answer)


_warm: dict[Command, WarmPython] = {}


def warm(command: Command, *words: str, cwd: Path, stdin: str = "") -> Running:
    """Start the command with more words; each different command costs its imports once."""
    if not CAN_FORK:
        return cold(*command.words, *words, cwd=cwd, stdin=stdin)
    if command not in _warm:
        _warm[command] = WarmPython(command)
    return _warm[command].start(*words, cwd=cwd, stdin=stdin)


def warm_script(place: Path, text: str, *words: str) -> Running:
    """Start a program as ``train.py`` in the folder of the fixture ``place``."""
    script = place / "train.py"
    script.write_text(text)
    return warm(Command((str(script),)), *words, cwd=place)


def close_all() -> None:
    """End every Python that waits."""
    while _warm:
        _warm.popitem()[1].close()
