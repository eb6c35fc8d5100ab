"""The recorder: rows of steps and ranges, exactly, on every way out of a loop."""

from __future__ import annotations

import itertools
import threading

import pytest
from written_ranges import in_rows

from trainscope.record import ranges as ranges_module
from trainscope.record import recorder as recorder_module
from trainscope.record.ranges import Range
from trainscope.record.recorder import Recorder


class Timeline:
    """A tool that writes down pushes and pops."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def push(self, name: str) -> None:
        self.calls.append(name)

    def pop(self) -> None:
        self.calls.append("-")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A recorder whose clock ticks by one at each look."""
    ticks = itertools.count(100)
    for module in (recorder_module, ranges_module):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: next(ticks))
    return Recorder()


def rows(recorder: Recorder) -> list[tuple[int, str, int, int, int]]:
    names = recorder.names.so_far()
    taken = in_rows(recorder.take_rows())
    return [(step, names[name], depth, begun, ended) for step, name, depth, begun, ended in taken]


def test_a_step_holds_its_phases_and_their_ranges(recorder: Recorder) -> None:
    recorder.begin_step(7)
    with Range(recorder, "forward"), Range(recorder, "attention"):
        pass
    recorder.end_step()
    assert rows(recorder) == [
        (7, "attention", 2, 102, 103),
        (7, "forward", 1, 101, 104),
        (7, "step", 0, 100, 105),
    ]


def test_only_a_range_directly_in_a_step_is_a_phase(recorder: Recorder) -> None:
    seen = []
    with Range(recorder, "warm up"):
        seen.append(recorder.loop.phase)
        recorder.begin_step(0)
        with Range(recorder, "forward"):
            seen.append(recorder.loop.phase)
            with Range(recorder, "attention"):
                seen.append(recorder.loop.phase)
        seen.append(recorder.loop.phase)
        recorder.end_step()
    assert seen == [None, "forward", "forward", None]


def test_a_range_around_the_loop_keeps_its_own_depth_and_no_step(recorder: Recorder) -> None:
    with Range(recorder, "epoch"):
        recorder.begin_step(0)
        with Range(recorder, "forward"):
            pass
        recorder.end_step()
    assert [row[:3] for row in rows(recorder)] == [
        (0, "forward", 1),
        (0, "step", 0),
        (-1, "epoch", 1),
    ]


def test_a_step_left_open_ends_when_the_next_begins(recorder: Recorder) -> None:
    recorder.begin_step(0)
    recorder.open("forward")  # an exception left it open
    recorder.begin_step(1)
    recorder.end_step()
    assert [row[:3] for row in rows(recorder)] == [
        (0, "forward", 1),
        (0, "step", 0),
        (1, "step", 0),
    ]
    assert recorder.steps_done == 2


def test_leaving_a_range_around_the_loop_ends_the_step_in_it(recorder: Recorder) -> None:
    with pytest.raises(KeyboardInterrupt), Range(recorder, "epoch"):
        recorder.begin_step(3)
        recorder.open("backward")
        raise KeyboardInterrupt
    assert [row[:3] for row in rows(recorder)] == [
        (3, "backward", 1),
        (3, "step", 0),
        (-1, "epoch", 1),
    ]
    assert recorder.loop.step is None
    assert recorder.loop.phase is None


def test_a_discarded_step_leaves_no_row_and_is_not_counted(recorder: Recorder) -> None:
    recorder.begin_step(0)
    recorder.open("data")
    recorder.drop_step()
    assert rows(recorder) == []
    assert recorder.steps_done == 0


def test_pushes_and_pops_are_balanced_on_every_path(recorder: Recorder) -> None:
    recorder.domain = timeline = Timeline()
    recorder.begin_step(0)
    recorder.open("forward")
    recorder.open("attention")
    recorder.begin_step(1)
    with Range(recorder, "forward"):
        pass
    recorder.close_all()
    assert timeline.calls == [
        *("step 0", "forward", "attention", "-", "-", "-"),
        *("step 1", "forward", "-", "-"),
    ]


def test_a_window_gets_a_pop_for_each_of_its_pushes_only(recorder: Recorder) -> None:
    window = Timeline()
    outer = recorder.open("epoch")  # opened before the window: not the window's to close
    recorder.window = window
    recorder.begin_step(0)
    recorder.window = None
    recorder.end_step()
    recorder.close(outer)
    assert window.calls == ["step 0", "-"]


def test_another_thread_records_nothing(recorder: Recorder) -> None:
    recorder.begin_step(0)

    def elsewhere() -> None:
        recorder.close(recorder.open("prefetch"))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    recorder.end_step()
    assert [row[1] for row in rows(recorder)] == ["step"]


def test_the_thread_that_begins_a_step_is_the_loops(recorder: Recorder) -> None:
    def train() -> None:
        recorder.begin_step(0)
        with Range(recorder, "forward"):
            pass
        recorder.end_step()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert [row[1] for row in rows(recorder)] == ["forward", "step"]


def test_rows_that_nobody_takes_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_WAITING_ROWS", 3)
    recorder = Recorder()
    for step in range(5):
        recorder.begin_step(step)
        with Range(recorder, "x"):
            pass
        recorder.end_step()
    assert [row[0] for row in in_rows(recorder.take_rows())] == [4, 4]
    assert recorder.rows_dropped == 8


def test_the_loop_knows_what_is_before_in_between_and_after_steps(recorder: Recorder) -> None:
    during = [recorder.loop.during()]
    recorder.begin_step(0)
    during.append(recorder.loop.during())
    recorder.end_step()
    during.append(recorder.loop.during())
    recorder.close_all()
    during.append(recorder.loop.during())
    assert during == ["setup", "training", "between", "teardown"]


def test_a_range_inside_one_of_its_own_name_closes_the_inner_one(recorder: Recorder) -> None:
    again = Range(recorder, "again")
    recorder.begin_step(0)
    with again, again:
        pass
    recorder.end_step()
    assert [row[:3] for row in rows(recorder)] == [
        (0, "again", 2),
        (0, "again", 1),
        (0, "step", 0),
    ]


def test_a_range_closes_what_was_left_open_inside_it(recorder: Recorder) -> None:
    recorder.begin_step(0)
    with Range(recorder, "forward"):
        recorder.open("attention")
    recorder.end_step()
    assert [row[1:3] for row in rows(recorder)] == [("attention", 2), ("forward", 1), ("step", 0)]
    assert recorder.loop.phase is None
