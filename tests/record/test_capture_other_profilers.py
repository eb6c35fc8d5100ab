"""A profiler of the user's own has the right of way, before, in and after a window of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.autograd.profiler as autograd_profiler
from torch.profiler import ProfilerActivity, profile, schedule
from warm import warm_script

from trainscope.record.capture import Capture
from trainscope.record.capture.foreign import other_profiler
from trainscope.record.schedule import Schedule

RECORDING = "a torch profiler of the program's own was recording"
WARMING_UP = "a torch profiler of the program's own was in its warm-up"


@pytest.fixture(autouse=True)
def entries_are_put_back() -> Iterator[None]:
    before = dict(vars(autograd_profiler.profile))
    yield
    assert dict(vars(autograd_profiler.profile)) == before


def make(rank_dir: Path, **arguments: int) -> Capture:
    return Capture(Schedule(**arguments), rank_dir, environ={})  # pyright: ignore


def step(capture: Capture, number: int) -> None:
    capture.begin_step(number)
    torch.ones(3).add(1)
    capture.end_step(number)


def ops(theirs: profile) -> list[str]:
    return [e.name for e in theirs.events() or () if e.name in ("aten::add", "aten::mul")]


def test_with_theirs_recording_ours_does_not_start(tmp_path: Path) -> None:
    capture = make(tmp_path, active=1)
    with profile(activities=[ProfilerActivity.CPU]) as theirs:
        step(capture, 0)
        torch.ones(3).mul(2)
    capture.close()
    assert ops(theirs) == ["aten::add", "aten::mul"]
    assert capture.state().windows == ()
    assert capture.state().complete is False
    assert capture.state().note == f"the window at step 0 was not captured: {RECORDING}"
    assert list(tmp_path.iterdir()) == []


def test_a_window_of_another_scope_is_not_said_to_be_the_program_s(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first, second = make(tmp_path / "first", active=9), make(tmp_path / "second", active=1)
    step(first, 0)
    step(second, 0)
    first.close()
    second.close()
    assert second.state().note == (
        "the window at step 0 was not captured: a window of another scope was open; "
        "close that scope before"
    )
    assert other_profiler() is None


def test_a_later_window_is_captured_once_theirs_is_over(tmp_path: Path) -> None:
    capture = make(tmp_path, active=1, repeat=2)
    with profile(activities=[ProfilerActivity.CPU]):
        step(capture, 0)
    step(capture, 1)
    capture.close()
    assert [(w.first_step, w.complete) for w in capture.state().windows] == [(1, True)]
    assert capture.state().complete is False


def test_with_theirs_in_its_warmup_ours_does_not_start(tmp_path: Path) -> None:
    capture = make(tmp_path, wait=1, active=1)
    turns = schedule(wait=0, warmup=2, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=turns) as theirs:
        for number in range(4):
            step(capture, number)
            theirs.step()
    capture.close()
    assert ops(theirs) == ["aten::add", "aten::add"]
    assert capture.state().note == f"the window at step 1 was not captured: {WARMING_UP}"


def test_theirs_beginning_in_our_window_cuts_ours_short_and_records_all(tmp_path: Path) -> None:
    capture = make(tmp_path, active=4)
    step(capture, 0)
    capture.begin_step(1)
    with profile(activities=[ProfilerActivity.CPU]) as theirs:
        torch.ones(3).mul(2)
    capture.end_step(1)
    step(capture, 2)
    capture.close()
    assert ops(theirs) == ["aten::mul"]
    window = capture.state().windows[0]
    assert (window.last_step, window.file, window.complete) == (0, "trace-000.json.gz", False)
    assert capture.state().note == (
        "the window at step 0 was cut short: "
        "a torch profiler of the program's own began after step 0"
    )


def test_theirs_beginning_in_our_warmup_cancels_ours(tmp_path: Path) -> None:
    capture = make(tmp_path, warmup=2, active=1)
    step(capture, 0)
    with profile(activities=[ProfilerActivity.CPU]) as theirs:
        torch.ones(3).mul(2)
    step(capture, 1)
    step(capture, 2)
    capture.close()
    assert ops(theirs) == ["aten::mul"]
    assert capture.state().windows == ()
    assert capture.state().note == (
        "the window at step 0 ended in its warm-up: "
        "a torch profiler of the program's own began after step 0"
    )


def test_the_plain_autograd_profiler_is_seen_too(tmp_path: Path) -> None:
    capture = make(tmp_path, active=2)
    step(capture, 0)
    with autograd_profiler.profile() as theirs:
        torch.ones(3).mul(2)
    step(capture, 1)
    capture.close()
    assert [e.name for e in theirs.function_events or () if e.name == "aten::mul"] == ["aten::mul"]
    assert capture.state().windows[0].complete is False


def test_ours_leaves_torchs_step_counter_alone(tmp_path: Path) -> None:
    before = dict(autograd_profiler.KinetoStepTracker._step_dict)
    capture = make(tmp_path, warmup=1, active=1)
    for number in range(3):
        step(capture, number)
    capture.close()
    assert capture.state().complete
    assert dict(autograd_profiler.KinetoStepTracker._step_dict) == before


def test_a_wrapper_put_on_in_our_window_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = make(tmp_path, active=2)
    step(capture, 0)
    ours = autograd_profiler.profile._prepare_trace

    def theirs(session: object) -> object:
        return ours(session)  # pyright: ignore[reportArgumentType]

    original = ours.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    autograd_profiler.profile._prepare_trace = theirs  # pyright: ignore
    step(capture, 1)
    capture.close()
    try:
        assert autograd_profiler.profile._prepare_trace is theirs
        with profile(activities=[ProfilerActivity.CPU]) as later:
            torch.ones(3).mul(2)
        assert ops(later) == ["aten::mul"]
    finally:
        autograd_profiler.profile._prepare_trace = original


def test_which_of_theirs_are_in_use() -> None:
    assert other_profiler() is None
    made = profile(activities=[ProfilerActivity.CPU])
    assert other_profiler() is None
    made.prepare_trace()
    assert other_profiler() == WARMING_UP
    made.start_trace()
    assert other_profiler() == RECORDING
    made.stop_trace()
    assert other_profiler() is None


def test_without_right_of_way_theirs_would_crash(place: Path) -> None:
    """Why the search for a session in its warm-up is worth its time: torch itself dies of it."""
    program = (
        "import torch; from torch.profiler import profile, ProfilerActivity as A\n"
        "theirs = profile(activities=[A.CPU]); theirs.prepare_trace()\n"
        "with profile(activities=[A.CPU]): torch.ones(3)\n"
        "theirs.start_trace(); theirs.stop_trace(); theirs.events(); print('survived')"
    )
    done = warm_script(place, program).end()
    if "survived" in done.out:
        pytest.skip("this torch survives two sessions, one in its warm-up")
    assert done.status != 0
