"""Capture: each window of the schedule becomes one trace, and what did not is told."""

from __future__ import annotations

import gzip
import json
import os
import signal
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.autograd.profiler as autograd_profiler
from warm import warm_script

from trainscope.record.capture import Capture
from trainscope.record.schedule import Schedule
from trainscope.trace.captures import CaptureState

NOT_UNDER_NSYS: dict[str, str] = {}


def make(rank_dir: Path, **schedule: int) -> Capture:
    arguments = Schedule(**schedule)  # pyright: ignore[reportArgumentType]
    return Capture(arguments, rank_dir, environ=NOT_UNDER_NSYS)


def run(capture: Capture, first: int, last: int) -> list[int]:
    """Run steps ``first`` to ``last``, each with one op; return those that were in a window."""
    recorded = []
    for step in range(first, last + 1):
        capture.begin_step(step)
        if capture.in_window:
            recorded.append(step)
            with torch.profiler.record_function(f"step {step}"):
                torch.ones(3).add(1)
        else:
            torch.ones(3).add(1)
        capture.end_step(step)
    return recorded


def names(trace: Path) -> list[str]:
    """Names of the annotations and top-level ops of a trace, by start."""
    events: list[dict[str, Any]] = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    kept = [e for e in events if e.get("cat") in ("user_annotation", "cpu_op")]
    kept = [e for e in kept if e["name"].startswith(("step", "aten::add", "aten::ones"))]
    return [e["name"] for e in sorted(kept, key=lambda e: e["ts"])]


def steps_of(state: CaptureState) -> list[tuple[int, int, int, str | None, bool]]:
    return [
        (w.first_step, w.first_active_step, w.last_step, w.file, w.complete) for w in state.windows
    ]


def test_the_loop_does_not_stand_still_for_a_table_of_events_that_nobody_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(_profile: object) -> None:
        raise AssertionError("every event became a Python object")

    monkeypatch.setattr(autograd_profiler.profile, "_ensure_function_events", made)
    capture = make(tmp_path, active=2, repeat=2)
    run(capture, 0, 4)
    capture.close()
    assert len(capture.state().windows) == 2
    assert capture.state().note == ""
    assert names(tmp_path / "trace-001.json.gz")[:1] == ["step 2"]


# ---- windows -------------------------------------------------------------------------------------
def test_each_window_holds_its_active_steps_and_no_other(tmp_path: Path) -> None:
    capture = make(tmp_path, skip_first=1, wait=2, warmup=2, active=2, repeat=2)
    assert run(capture, 0, 19) == [5, 6, 11, 12]
    capture.close()
    assert steps_of(capture.state()) == [
        (3, 5, 6, "trace-000.json.gz", True),
        (9, 11, 12, "trace-001.json.gz", True),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "trace-000.json.gz",
        "trace-001.json.gz",
    ]
    for file, steps in (("trace-000.json.gz", (5, 6)), ("trace-001.json.gz", (11, 12))):
        expected = [name for n in steps for name in (f"step {n}", "aten::ones", "aten::add")]
        assert names(tmp_path / file) == expected
    state = capture.state()
    assert (state.complete, state.note) == (True, "")
    for window in state.windows:
        assert window.kind == "torch.profiler"
        assert window.bytes_written == (tmp_path / str(window.file)).stat().st_size
        assert window.pause_ns > 0


@pytest.mark.parametrize(
    ("schedule", "recorded"),
    [
        ({"active": 1}, [0]),
        ({"active": 2, "repeat": 3}, [0, 1, 2, 3, 4, 5]),
        ({"active": 1, "warmup": 1, "repeat": 0}, [1, 3, 5, 7, 9]),
        ({"active": 1, "wait": 3, "repeat": 2}, [3, 7]),
        ({"active": 3, "skip_first": 4}, [4, 5, 6]),
    ],
)
def test_the_recorded_steps_are_those_of_the_schedule(
    schedule: dict[str, int], recorded: list[int], tmp_path: Path
) -> None:
    capture = make(tmp_path, **schedule)
    assert run(capture, 0, 9) == recorded
    capture.close()


def test_a_resumed_run_waits_as_long_as_a_fresh_one(tmp_path: Path) -> None:
    capture = make(tmp_path, wait=2, warmup=1, active=1)
    assert run(capture, 1000, 1010) == [1003]
    capture.close()
    assert steps_of(capture.state()) == [(1002, 1003, 1003, "trace-000.json.gz", True)]


def test_a_step_begun_twice_is_one_step(tmp_path: Path) -> None:
    """A loader's end shows only after the step has begun; the next epoch begins it again."""
    capture = make(tmp_path, wait=1, warmup=1, active=1)
    run(capture, 0, 0)
    capture.begin_step(1)
    assert run(capture, 1, 4) == [2]
    capture.close()
    assert steps_of(capture.state()) == [(1, 2, 2, "trace-000.json.gz", True)]


def test_a_last_step_with_no_end_cuts_the_window(tmp_path: Path) -> None:
    capture = make(tmp_path, active=2)
    run(capture, 0, 0)
    capture.begin_step(1)
    capture.begin_step(2)
    assert not capture.in_window
    assert steps_of(capture.state()) == [(0, 0, 0, "trace-000.json.gz", False)]
    assert capture.state().note == (
        "the window at step 0 was cut short: its last step had no end when step 2 began"
    )


def test_an_existing_trace_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "trace-000.json.gz").write_bytes(b"theirs")
    capture = make(tmp_path, active=1)
    run(capture, 0, 0)
    assert capture.state().windows[0].file == "trace-001.json.gz"
    assert (tmp_path / "trace-000.json.gz").read_bytes() == b"theirs"


def test_shapes_are_recorded_and_stacks_where_asked(tmp_path: Path) -> None:
    for with_stack in (False, True):
        folder = tmp_path / str(with_stack)
        folder.mkdir()
        schedule = Schedule(active=1)
        capture = Capture(schedule, folder, with_stack=with_stack, environ=NOT_UNDER_NSYS)
        run(capture, 0, 0)
        trace = json.loads(gzip.decompress((folder / "trace-000.json.gz").read_bytes()))
        adds = [e for e in trace["traceEvents"] if e.get("name") == "aten::add"]
        assert [e["args"]["Input Dims"][0] for e in adds] == [[3]]
        assert any(e.get("cat") == "python_function" for e in trace["traceEvents"]) == with_stack


# ---- what was not captured -----------------------------------------------------------------------
def test_no_schedule_captures_nothing_and_asks_for_nothing(tmp_path: Path) -> None:
    capture = Capture(None, tmp_path, environ=NOT_UNDER_NSYS)
    assert run(capture, 0, 5) == []
    capture.close()
    assert capture.state() == CaptureState(windows=(), complete=True, missing=(), note="")
    assert list(tmp_path.iterdir()) == []


def test_a_window_that_never_began_is_told(tmp_path: Path) -> None:
    capture = make(tmp_path, wait=20, warmup=3, active=4)
    run(capture, 0, 12)
    assert capture.state() == CaptureState(complete=False)  # the run goes on
    capture.close()
    assert capture.state() == CaptureState(
        complete=False,
        note="the last step that ended was 12, the window would have begun at step 20",
    )


def test_a_run_without_steps_is_told(tmp_path: Path) -> None:
    capture = make(tmp_path, wait=20, active=4)
    capture.close()
    assert capture.state().note == "no step ended, the window would have begun at step 20"


def test_a_run_that_ends_in_the_warmup_leaves_no_file(tmp_path: Path) -> None:
    capture = make(tmp_path, wait=1, warmup=3, active=1)
    run(capture, 0, 2)
    capture.close()
    assert capture.state() == CaptureState(
        complete=False,
        note="the window at step 1 ended in its warm-up: the run ended after step 2",
    )
    assert list(tmp_path.iterdir()) == []
    assert not torch.autograd._profiler_enabled()  # pyright: ignore


def test_a_window_cut_short_is_written_and_marked(tmp_path: Path) -> None:
    capture = make(tmp_path, wait=1, warmup=1, active=5)
    run(capture, 0, 3)
    capture.begin_step(4)  # an exception leaves this step without an end
    capture.close()
    capture.close()
    assert steps_of(capture.state()) == [(1, 2, 3, "trace-000.json.gz", False)]
    assert capture.state().complete is False
    assert capture.state().note == (
        "the window at step 1 was cut short: the run ended after step 3"
    )
    assert names(tmp_path / "trace-000.json.gz")[:3] == ["step 2", "aten::ones", "aten::add"]


def test_repeat_for_ever_ends_at_max_bytes(tmp_path: Path) -> None:
    capture = make(tmp_path, wait=1, active=1, repeat=0, max_bytes=2000)
    run(capture, 0, 19)
    capture.close()
    state = capture.state()
    sizes = [window.bytes_written for window in state.windows]
    assert sum(sizes[:-1]) < 2000 <= sum(sizes)
    last = state.windows[-1].last_step
    assert state.note == (
        f"no window begins after step {last}: the traces hold {sum(sizes)} bytes, "
        "and max_bytes=2000"
    )
    assert state.complete is True


def test_without_a_gpu_the_state_says_what_is_missing(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    capture = make(tmp_path, active=1)
    run(capture, 0, 0)
    assert capture.state().missing == ("GPU activity: this process has no CUDA device",)


# ---- faults and other threads --------------------------------------------------------------------
def test_a_folder_that_is_gone_warns_once_and_the_loop_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "rank0"
    folder.mkdir()
    capture = make(folder, active=1, repeat=3)
    capture.begin_step(0)
    folder.rmdir()
    with pytest.warns(RuntimeWarning, match="trainscope stopped capturing") as caught:
        capture.end_step(0)
    assert len(caught) == 1
    assert run(capture, 1, 5) == []
    capture.close()
    assert steps_of(capture.state()) == [(0, 0, 0, None, False)]
    assert capture.state().complete is False
    assert "capturing stopped: OSError: torch.profiler could not write" in capture.state().note


def test_a_full_disk_leaves_no_torn_file(place: Path) -> None:
    program = """
import resource, signal, sys, warnings
from pathlib import Path
import torch
from trainscope.record.capture import Capture
from trainscope.record.schedule import Schedule
capture = Capture(Schedule(active=1), Path("traces"), environ={})
capture.begin_step(0)
for _ in range(200): torch.ones(3) + 1
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    capture.end_step(0)
print([str(w.message)[:28] for w in caught], capture.state().windows[0].file)
"""
    (place / "traces").mkdir()
    done = warm_script(place, program).end()
    assert done.status == 0, done.err
    assert done.out.strip() == "['trainscope stopped capturing'] None"
    assert list((place / "traces").iterdir()) == []


def test_warnings_turned_into_errors_do_not_reach_the_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    import warnings

    folder = tmp_path / "rank0"
    folder.mkdir()
    capture = make(folder, active=1)
    capture.begin_step(0)
    folder.rmdir()
    warnings.simplefilter("error")  # recwarn puts the filters back
    capture.end_step(0)
    assert "trainscope stopped capturing" in capsys.readouterr().err


def test_a_fault_at_the_beginning_stops_capturing_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainscope.record.capture import torch_window

    def fail(self: object) -> None:
        raise RuntimeError("CUPTI is broken")

    monkeypatch.setattr(torch_window._KinetoProfile, "prepare_trace", fail)
    capture = make(tmp_path, wait=1, active=1, repeat=0)
    with pytest.warns(RuntimeWarning, match="CUPTI is broken"):
        assert run(capture, 0, 8) == []
    capture.close()
    assert capture.state() == CaptureState(
        complete=False, note="capturing stopped: RuntimeError: CUPTI is broken"
    )


def test_closing_on_another_thread_does_no_harm(tmp_path: Path) -> None:
    capture = make(tmp_path, active=5)
    run(capture, 0, 1)
    with pytest.warns(RuntimeWarning, match="closed on another thread"):
        thread = threading.Thread(target=capture.close)
        thread.start()
        thread.join()
    assert steps_of(capture.state()) == [(0, 0, 1, None, False)]
    assert list(tmp_path.iterdir()) == []
    torch.autograd._disable_profiler()  # pyright: ignore
    autograd_profiler._run_on_profiler_stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_the_window_alone(tmp_path: Path) -> None:
    capture = make(tmp_path, active=2)
    run(capture, 0, 0)
    child = os.fork()
    if child == 0:
        capture.close()
        os._exit(0 if not list(tmp_path.iterdir()) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run(capture, 1, 1)
    capture.close()
    assert steps_of(capture.state()) == [(0, 0, 1, "trace-000.json.gz", True)]


def test_ctrl_c_while_the_trace_is_written_passes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainscope.record.capture import torch_window

    def interrupted(source: Path, target: Path) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return True

    monkeypatch.setattr(torch_window, "_compress", interrupted)
    capture = make(tmp_path, active=1)
    capture.begin_step(0)
    with pytest.raises(KeyboardInterrupt):
        capture.end_step(0)
    capture.close()
    assert list(tmp_path.iterdir()) == []
    assert not capture.in_window


def test_starting_stopping_and_writing_are_marked_as_our_own_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainscope.record.capture.torch_window import TorchWindow
    from trainscope.sync.own import is_own

    seen: dict[str, bool] = {}
    for name in ("prepare", "start", "stop", "write"):
        original = getattr(TorchWindow, name)

        def spy(self: TorchWindow, *args: Any, _name: str = name, _original: Any = original) -> Any:
            seen[_name] = is_own()
            return _original(self, *args)

        monkeypatch.setattr(TorchWindow, name, spy)
    capture = make(tmp_path, warmup=1, active=1)
    run(capture, 0, 2)
    assert seen == {"prepare": True, "start": True, "stop": True, "write": True}
    assert not is_own()


def test_outside_windows_a_step_reaches_nothing_but_two_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = make(tmp_path, wait=1000, active=1)
    run(capture, 0, 0)
    calls: list[object] = []
    monkeypatch.setattr(Capture, "_guarded", lambda self, act, *args: calls.append(act))
    run(capture, 1, 999)
    assert calls == []
    run(capture, 1000, 1000)
    assert len(calls) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_after_a_window_ends_by_itself(place: Path) -> None:
    program = """
        import os, signal, sys
        from pathlib import Path
        from trainscope.record.capture import Capture
        from trainscope.record.schedule import Schedule

        capture = Capture(Schedule(active=1), Path("."))
        capture.begin_step(0)
        capture.end_step(0)
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # it hung in the exit handlers of C++
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    ended = warm_script(place, textwrap.dedent(program)).end()
    assert ended.out.split()[-1:] == ["3"], ended.err
