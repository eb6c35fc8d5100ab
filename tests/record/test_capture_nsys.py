"""Under nsys the schedule opens and closes nsys's capture range, and torch.profiler stays off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from nsys_tool import nsys, profile  # noqa: F401

from trainscope.record.capture import Capture, nsys_window
from trainscope.record.capture.nsys_window import SETTLE_S, leave_time, under_nsys
from trainscope.record.schedule import Schedule
from trainscope.sync.own import is_own

UNDER_NSYS = {"NSYS_PROFILING_SESSION_ID": "1234"}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A CUDA runtime that writes down what it is asked to do."""
    done: list[str] = []

    def note(name: str) -> None:
        assert is_own()
        done.append(name)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: note("wait"))
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: note("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: note("stop"))
    monkeypatch.setattr(nsys_window.atexit, "register", lambda *_: None)
    return done


def run(capture: Capture, last: int, calls: list[str]) -> None:
    for step in range(last + 1):
        capture.begin_step(step)
        assert not capture.in_window  # record_function ranges do not show in nsys
        calls.append(f"step {step}")
        capture.end_step(step)


def test_the_range_opens_before_the_first_active_step_and_closes_after_the_last(
    tmp_path: Path, calls: list[str]
) -> None:
    schedule = Schedule(wait=1, warmup=1, active=2)
    capture = Capture(schedule, tmp_path, environ=UNDER_NSYS)
    run(capture, 4, calls)
    capture.close()
    assert calls == [
        *("step 0", "step 1"),
        *("start", "step 2", "step 3", "wait", "stop"),
        "step 4",
    ]
    window = capture.state().windows[0]
    assert (window.kind, window.file, window.complete) == ("nsys", None, True)
    assert (window.first_step, window.first_active_step, window.last_step) == (1, 2, 3)
    assert capture.state().missing == ()
    assert list(tmp_path.iterdir()) == []


def test_the_program_s_end_is_held_back_from_the_range_s(
    tmp_path: Path,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    at_exit: list[tuple[object, ...]] = []
    monkeypatch.setattr(nsys_window.atexit, "register", lambda *call: at_exit.append(call))
    monkeypatch.setattr(nsys_window.time, "monotonic", lambda: 100.0)
    run(Capture(Schedule(active=1), tmp_path, environ=UNDER_NSYS), 2, calls)
    assert at_exit == [(leave_time, 100.0, os.getpid())]

    slept: list[float] = []
    for now_s in (100.5, 100.0 + SETTLE_S, 400.0):
        leave_time(100.0, os.getpid(), clock_s=lambda: now_s, sleep=slept.append)  # noqa: B023
    assert slept == [SETTLE_S - 0.5]
    assert capsys.readouterr().err.count("once nsys is done with the window") == 1


def test_a_forked_child_and_a_second_ctrl_c_end_at_once() -> None:
    def ctrl_c(seconds: float) -> None:
        slept.append(seconds)
        raise KeyboardInterrupt

    slept: list[float] = []
    leave_time(0.0, os.getpid() + 1, clock_s=lambda: 0.0, sleep=ctrl_c)
    assert slept == []
    leave_time(0.0, os.getpid(), clock_s=lambda: 0.0, sleep=ctrl_c)
    assert slept == [SETTLE_S]


def test_without_a_window_nothing_is_held_back(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def register(*call: object) -> None:
        raise AssertionError(call)

    monkeypatch.setattr(nsys_window.atexit, "register", register)
    capture = Capture(Schedule(wait=9, active=1), tmp_path, environ=UNDER_NSYS)
    run(capture, 3, calls)
    capture.close()
    assert "stop" not in calls


def test_a_run_that_ends_inside_closes_the_range(tmp_path: Path, calls: list[str]) -> None:
    capture = Capture(Schedule(active=9), tmp_path, environ=UNDER_NSYS)
    run(capture, 1, calls)
    capture.close()
    assert calls == ["start", "step 0", "step 1", "wait", "stop"]
    assert capture.state().windows[0].complete is False


def test_without_a_gpu_nothing_is_called_and_it_is_told(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    capture = Capture(Schedule(active=1), tmp_path, environ=UNDER_NSYS)
    run(capture, 1, calls)
    capture.close()
    assert calls == ["step 0", "step 1"]
    assert capture.state().missing == (
        "GPU activity: no CUDA device, so nsys's capture range is never opened",
    )
    assert not capture.state().complete
    assert [window.complete for window in capture.state().windows] == [False]
    assert capture.state().note == ""


@pytest.mark.nsys
def test_a_real_nsys_is_recognised(nsys: str, tmp_path: Path) -> None:  # noqa: F811
    probe = (
        "import os; from trainscope.record.capture.nsys_window import under_nsys;"
        "print('under nsys:', under_nsys(os.environ))"
    )
    done = profile(nsys, tmp_path / "report", "-c", probe)
    assert "under nsys: True" in done.stdout
    assert not under_nsys({name: "" for name in os.environ if not name.startswith("NSYS_")})
