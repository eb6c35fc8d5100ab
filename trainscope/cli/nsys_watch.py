"""Waiting for nsys, and saying so when it goes on after the program that it profiles has ended.

The program leaves its process id in a file that the environment names, so that its end is seen
even where nsys, whose child it is, never takes notice of it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PID_FILE_VARIABLE", "Patience", "leave_pid", "program_ended", "raw_records", "wait_for"]

PID_FILE_VARIABLE = "TRAINSCOPE_NSYS_PID_FILE"


@dataclass(frozen=True)
class Patience:
    """How long nsys may take, in seconds."""

    told_after_s: float = 30.0
    """From the end of the program until its user is told that nsys goes on."""
    killed_after_s: float = 10.0
    """From the request to end, by Ctrl-C once that was told, until it is killed."""
    poll_s: float = 0.25


def leave_pid(environ: Mapping[str, str]) -> None:
    """Say which process the profiled program is, where `trainscope nsys` has asked for it."""
    path = environ.get(PID_FILE_VARIABLE)
    if path:
        # where that fails nobody watches for the end, and nothing else is lost
        with suppress(OSError), open(path, "r+") as file:
            if not file.read(1):  # else we are a child of the program, and inherited this
                file.write(str(os.getpid()))


def program_ended(pid_file: Path, processes: Path = Path("/proc")) -> bool:
    """Whether the program has begun and ended; never True where that cannot be seen."""
    try:
        pid = int(pid_file.read_text())
    except (OSError, ValueError):
        return False  # not begun
    if not processes.is_dir():
        return False
    try:
        state = (processes / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in ("Z", "X")  # dead, and nsys has not asked for its status


def raw_records(since_unix_s: float) -> tuple[Path, ...]:
    """The raw records that nsys has written since, each to be made a report by its importer."""
    found = []
    for path in Path(tempfile.gettempdir()).glob("nsys-report-*.qdstrm"):
        with suppress(OSError):  # made into the report just now
            if path.stat().st_mtime >= since_unix_s:
                found.append(path)
    return tuple(sorted(found))


def wait_for(
    process: subprocess.Popen[bytes],
    pid_file: Path,
    *,
    report: Path,
    tell: Callable[[str], None],
    patience: Patience = Patience(),
) -> int:
    """Wait until nsys ends, whatever is pressed meanwhile; returns the status a shell would show.

    Ctrl-C reaches nsys and the program by themselves, and nsys still has to write the report. Once
    the program has been gone for a while that is told, and from then on Ctrl-C ends nsys.
    """
    began_unix_s = time.time()
    ended_s: float | None = None
    told = False
    asked_s: float | None = None
    while True:
        try:
            status = process.wait(patience.poll_s)
            return status if status >= 0 else 128 - status
        except KeyboardInterrupt:
            if told and asked_s is None:
                tell("nsys is asked to end")
                process.terminate()
                asked_s = time.monotonic()
        except subprocess.TimeoutExpired:
            now_s = time.monotonic()
            if asked_s is not None and now_s - asked_s >= patience.killed_after_s:
                tell(f"nsys has not ended in {patience.killed_after_s:.0f} s, so it is killed")
                process.kill()
                asked_s = now_s
            if ended_s is None and program_ended(pid_file):
                ended_s = now_s
            if not told and ended_s is not None and now_s - ended_s >= patience.told_after_s:
                told = True
                tell(_still_there(patience.told_after_s, report, raw_records(began_unix_s)))


def _still_there(waited_s: float, report: Path, raw: tuple[Path, ...]) -> str:
    text = (
        f"the program ended {waited_s:.0f} s ago and nsys has not: it is still writing a large "
        "report, or it hangs, as nsys 2023.4 has where a program ended soon after its window. "
        "Ctrl-C ends it. "
    )
    if report.is_file():
        return f"{text}The report is there already: {report}"
    if raw:
        return (
            f"{text}Its raw record is there: {', '.join(map(str, raw))}; QdstrmImporter, in the "
            "folder host-* beside nsys's own, makes a report of it"
        )
    return (
        f"{text}It has written nothing so far; a window that lies earlier (a smaller --wait) or "
        "the whole program (none of --wait, --warmup, --active) avoids the hang"
    )
