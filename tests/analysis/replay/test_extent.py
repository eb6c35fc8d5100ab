"""Of a long window a part is replayed, of one that lacks too much or is no window nothing."""

import numpy as np
import pytest
from made_windows import Made
from test_what_if import MS, reading_loop, replayed

from trainscope.analysis.replay import extent
from trainscope.analysis.replay.extent import replayed_steps
from trainscope.analysis.window_steps import find_steps


def test_a_long_window_foretells_what_a_short_one_does() -> None:
    short, long = replayed(reading_loop(6).window()), replayed(reading_loop(300).window())
    assert short is not None
    assert long is not None
    assert long.assumptions[0] == "the first 256 of the window's 300 steps stand for all"
    assert not any("stand for all" in words for words in short.assumptions)
    assert long.removals[0].step_ns == pytest.approx(short.removals[0].step_ns, rel=0.002)


def test_steps_of_many_calls_are_few_but_two() -> None:
    made = Made()
    for turn in range(5):
        made.range(f"ProfilerStep#{turn}", turn * MS, (turn + 1) * MS)
        for call in range(2_500):
            made.call("cudaEventQuery", turn * MS + call * 100, turn * MS + call * 100 + 50)
    window = made.window()
    steps = find_steps(window)
    assert len(replayed_steps(window, steps)) == 3  # of 2,500 calls each
    few = steps.first(1)
    assert len(replayed_steps(window, few)) == 1
    assert few.number.tolist() == [0]
    assert few.rows is not None
    assert len(few.rows) == 1


def test_a_step_of_more_calls_than_are_replayed_is_not_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extent, "MAX_CALLS", 2)
    window = reading_loop(4).window()
    assert len(replayed_steps(window, find_steps(window))) == 2


def test_more_waits_than_can_be_followed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extent, "MAX_WAITS", 3)
    found = replayed(reading_loop(4).window(), step_ns=6 * MS)
    assert found is not None
    assert found.cannot_tell == (
        "the CPU waits 4 times in the first steps, and a replay follows 3 at most"
    )
    assert (found.removals, found.replayed_step_ns, found.drift) == ((), None, None)
    assert found.measured_step_ns == 6 * MS


def test_more_streams_than_can_be_followed_are_told() -> None:
    made = reading_loop(4)
    for stream in range(300):
        made.kernel(stream, stream + 1, stream=100 + stream)
    found = replayed(made.window())
    assert found is not None
    assert found.cannot_tell == "the window has 301 streams, and a replay follows 256 at most"


def test_nothing_is_foretold_where_steps_have_lost_their_gpu_work() -> None:
    made = reading_loop(4)
    made.gpu = [row for row in made.gpu if int(row["start_ns"]) < 12 * MS]
    found = replayed(made.window())
    assert found is not None
    assert found.removals == ()
    assert found.cannot_tell == "2 of 4 steps have no GPU work"


def test_nothing_is_foretold_where_many_launches_have() -> None:
    made = reading_loop(4)
    for turn in range(3):
        made.call("cudaLaunchKernel", turn * 6 * MS + 100, turn * 6 * MS + 200)
    found = replayed(made.window())
    assert found is not None
    assert found.cannot_tell == "3 of 11 launches in the steps have no GPU work"


@pytest.mark.parametrize(("length", "many"), [(900, 3), (990, 4)])
def test_a_last_step_whose_turn_is_not_known_is_not_replayed(length: int, many: int) -> None:
    made = Made()
    for turn in range(4):
        made.range(f"step {turn}", turn * 1000, turn * 1000 + length)
        made.launch(turn * 1000 + 10, turn * 1000 + 20, turn * 1000 + 500)
    window = made.window()
    steps = find_steps(window)
    assert len(steps) == 4
    assert replayed_steps(window, steps).number.tolist() == [*range(many)]


def test_a_window_without_steps_has_no_first_ones() -> None:
    made = Made().launch(0, 1, 2)
    window = made.window()
    assert len(replayed_steps(window, find_steps(window))) == 0
    assert replayed(window) is None
    assert np.array_equal(find_steps(window).first(3).number, [])
