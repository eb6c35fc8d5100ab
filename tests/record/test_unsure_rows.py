"""Ranges of which it is not known yet whether they are in a step, and in which."""

from __future__ import annotations

import itertools
import threading

import pytest
from written_ranges import in_rows

from trainscope.record import recorder as recorder_module
from trainscope.record.recorder import Recorder
from trainscope.record.unsure_rows import MAX_KEPT


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A recorder whose clock ticks by one at each look, and whose steps are inferred."""
    ticks = itertools.count(100)
    monkeypatch.setattr(recorder_module, "perf_counter_ns", lambda: next(ticks))
    recorder = Recorder()
    recorder.on_event = lambda kind: None
    return recorder


def rows(recorder: Recorder) -> list[tuple[int | str, ...]]:
    names = recorder.names.so_far()
    return [(step, names[name], *rest) for step, name, *rest in in_rows(recorder.take_rows())]


def test_a_step_that_is_dropped_leaves_its_ranges_in_none(recorder: Recorder) -> None:
    recorder.close(recorder.open("before"))
    recorder.begin_step(0)
    recorder.close(recorder.open("evaluation"))
    inner = recorder.open("data")
    recorder.close(recorder.open("nested"))
    recorder.close(inner)
    assert rows(recorder) == [(-1, "before", 1, 100, 101)]
    recorder.drop_step()
    recorder.begin_step(0)
    recorder.close(recorder.open("forward"))
    recorder.step_is_sure()
    assert rows(recorder) == [
        (-1, "evaluation", 1, 103, 104),
        (-1, "nested", 2, 106, 107),
        (-1, "data", 1, 105, 108),
        (0, "forward", 1, 111, 112),
    ]
    recorder.end_step()
    assert rows(recorder) == [(0, "step", 0, 110, 113)]


def test_the_fetch_that_began_a_step_was_no_evaluation_s(recorder: Recorder) -> None:
    """A trainer that puts the model into train mode only once it has its batch."""
    recorder.close_aside(recorder.open("evaluation"))
    recorder.close_aside(recorder.open("evaluation"))
    recorder.close_aside(recorder.open("evaluation"))
    recorder.begin_step(0)
    recorder.backdate_step(102)
    recorder.step_is_sure()
    assert rows(recorder) == [
        (-1, "evaluation", 1, 100, 101),
        (0, "data", 1, 102, 103),
        (0, "evaluation", 1, 104, 105),
    ]


def test_a_step_takes_what_it_proves_to_have_begun_with(recorder: Recorder) -> None:
    recorder.close_aside(recorder.open("data"))
    recorder.close_aside(recorder.open("data"))
    assert rows(recorder) == []
    recorder.begin_step(0)
    recorder.close(recorder.open("forward"))
    recorder.backdate_step(102)
    recorder.end_step()
    assert rows(recorder) == [
        (0, "forward", 1, 105, 106),
        (-1, "data", 1, 100, 101),
        (0, "data", 1, 102, 103),
        (0, "step", 0, 102, 107),
    ]
    assert recorder.step == -1


def test_no_step_is_moved_into_the_one_before(recorder: Recorder) -> None:
    recorder.begin_step(0)
    recorder.end_step()
    recorder.begin_step(1)
    recorder.backdate_step(90)
    recorder.end_step()
    assert rows(recorder) == [(0, "step", 0, 100, 101), (1, "step", 0, 101, 103)]


def test_only_so_many_are_kept(recorder: Recorder) -> None:
    for _ in range(MAX_KEPT + 2):
        recorder.close_aside(recorder.open("data"))
    assert rows(recorder) == [(-1, "data", 1, 100, 101), (-1, "data", 1, 102, 103)]
    recorder.close_all()
    assert len(rows(recorder)) == MAX_KEPT


def test_in_a_step_it_is_a_range_like_any_other(recorder: Recorder) -> None:
    recorder.begin_step(0)
    recorder.close_aside(recorder.open("data"))
    recorder.end_step()
    assert rows(recorder) == [(0, "data", 1, 101, 102), (0, "step", 0, 100, 103)]


def test_another_thread_takes_rows_while_steps_are_dropped() -> None:
    recorder = Recorder()
    recorder.on_event = lambda kind: None
    taken: list[int] = []
    stop = threading.Event()

    def take() -> None:
        while not stop.is_set():
            taken.extend(recorder.take_rows())

    thread = threading.Thread(target=take)
    thread.start()
    for step in range(2000):
        for end in (recorder.drop_step, recorder.end_step):
            recorder.begin_step(step)
            recorder.close(recorder.open("forward"))
            end()
    stop.set()
    thread.join()
    taken.extend(recorder.take_rows())
    expected = [row for step in range(2000) for row in ((-1, 1), (step, 1), (step, 0))]
    assert [row[:2] for row in in_rows(taken)] == expected
