"""Waiting for nsys: its status, the end of the program under it, and how to get out of a hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainscope.cli import nsys_watch
from trainscope.cli.nsys_watch import (
    PID_FILE_VARIABLE,
    Patience,
    leave_pid,
    program_ended,
    raw_records,
    wait_for,
)

SOON = Patience(told_after_s=0.1, killed_after_s=0.2, poll_s=0.02)
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

HUNG = """
import os, signal, subprocess, sys, time
from trainscope.cli.nsys_watch import leave_pid
if sys.argv[1:] == ["program"]:
    leave_pid(os.environ)
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv else signal.SIG_DFL)
program = subprocess.Popen([sys.executable, __file__, "program"])
print("begun", flush=True)
time.sleep(60)  # takes no notice of the program's end, so that stays a zombie
"""


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    path = tmp_path / "pid"
    path.touch()
    return path


def begin(tmp_path: Path, pid_file: Path, *words: str) -> subprocess.Popen[bytes]:
    (tmp_path / "hung.py").write_text(HUNG)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "hung.py"), *words],
        env={**os.environ, PID_FILE_VARIABLE: str(pid_file)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def wait_and_press(
    process: subprocess.Popen[bytes], pid_file: Path, report: Path
) -> tuple[int, list[str]]:
    """Ctrl-C comes right after the first word; returns the status and all that was told."""
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 1:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()

    try:
        return wait_for(process, pid_file, report=report, tell=tell, patience=SOON), told
    finally:
        process.kill()
        process.communicate()


# ---- the end of the program ----------------------------------------------------------------------
@needs_proc
def test_a_program_has_ended_once_it_is_gone_or_a_zombie(pid_file: Path) -> None:
    assert not program_ended(pid_file)  # not begun
    program = subprocess.Popen(["sleep", "60"])
    pid_file.write_text(str(program.pid))
    assert not program_ended(pid_file)
    program.kill()
    deadline_s = time.monotonic() + 10
    while not program_ended(pid_file) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert program_ended(pid_file)  # a zombie
    program.wait()
    assert program_ended(pid_file)  # gone


def test_an_end_that_cannot_be_seen_is_none(pid_file: Path, tmp_path: Path) -> None:
    pid_file.write_text(str(os.getpid()))
    assert not program_ended(pid_file, processes=tmp_path / "none")
    assert not program_ended(tmp_path / "gone")


def test_the_first_process_is_the_program(pid_file: Path, tmp_path: Path) -> None:
    environ = {PID_FILE_VARIABLE: str(pid_file)}
    pid_file.write_text("7")
    leave_pid(environ)  # as a child of the program does
    assert pid_file.read_text() == "7"
    pid_file.write_text("")
    leave_pid(environ)
    assert pid_file.read_text() == str(os.getpid())
    leave_pid({})
    leave_pid({PID_FILE_VARIABLE: str(tmp_path / "gone" / "pid")})


# ---- waiting -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("code", "status"), [("exit 5", 5), ("kill -KILL $$", 137)])
def test_the_status_of_one_that_ends(
    code: str, status: int, pid_file: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(["sh", "-c", code])
    told: list[str] = []
    got = wait_for(process, pid_file, report=tmp_path / "r", tell=told.append, patience=SOON)
    assert (got, told) == (status, [])


def test_ctrl_c_alone_does_not_end_the_waiting(pid_file: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "0.5"])
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    told: list[str] = []
    got = wait_for(process, pid_file, report=tmp_path / "r", tell=told.append, patience=SOON)
    assert (got, told) == (0, [])


@needs_proc
def test_one_that_hangs_is_told_and_ends_at_ctrl_c(pid_file: Path, tmp_path: Path) -> None:
    process = begin(tmp_path, pid_file)
    status, told = wait_and_press(process, pid_file, tmp_path / "run" / "nsys-rank0.nsys-rep")
    assert status == 128 + signal.SIGTERM
    assert len(told) == 2
    assert told[0].startswith("the program ended 0 s ago and nsys has not")
    assert "Ctrl-C ends it" in told[0]
    assert "It has written nothing so far" in told[0]
    assert told[1] == "nsys is asked to end"


@needs_proc
def test_one_that_does_not_end_either_is_killed_and_that_is_told(
    pid_file: Path, tmp_path: Path
) -> None:
    process = begin(tmp_path, pid_file, "stubborn")
    status, told = wait_and_press(process, pid_file, tmp_path / "r")
    assert status == 128 + signal.SIGKILL
    assert told[1:] == ["nsys is asked to end", "nsys has not ended in 0 s, so it is killed"]


@needs_proc
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (["r.nsys-rep", "nsys-report-1.qdstrm"], "The report is there already: {}/r.nsys-rep"),
        (["nsys-report-1.qdstrm"], "Its raw record is there: {}/nsys-report-1.qdstrm; Qdstrm"),
    ],
)
def test_what_there_is_of_the_report_is_named(
    made: list[str],
    said: str,
    pid_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nsys_watch.tempfile, "gettempdir", lambda: str(tmp_path))
    process = begin(tmp_path, pid_file)
    later: Callable[[Path], None] = Path.touch
    threading.Timer(0.05, lambda: [later(tmp_path / name) for name in made]).start()
    _, told = wait_and_press(process, pid_file, tmp_path / "r.nsys-rep")
    assert said.format(tmp_path) in told[0]


def test_raw_records_of_before_are_not_this_one_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys_watch.tempfile, "gettempdir", lambda: str(tmp_path))
    for name, at_s in (("old", 100), ("new", 300)):
        path = tmp_path / f"nsys-report-{name}.qdstrm"
        path.touch()
        os.utime(path, (at_s, at_s))
    assert raw_records(200.0) == (tmp_path / "nsys-report-new.qdstrm",)
