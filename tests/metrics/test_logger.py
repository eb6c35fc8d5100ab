"""The logger never waits, never loses silently, and stays flat."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Sequence

import pytest
import torch
from metrics_rig import LateBlock, Rig, until

from trainscope.errors import ConfigError, MetricError, NonFiniteError
from trainscope.metrics import generation as generation_module
from trainscope.metrics import rows as rows_module
from trainscope.metrics.logger import GENERATIONS
from trainscope.metrics.split import ROW_LIMIT


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> type[LateBlock]:
    """Every block's copy lands only when ``released`` is set."""

    class Late(LateBlock):
        released = False

    def make(device: torch.device, kind: str, capacity: int, count: int) -> list[LateBlock]:
        return [Late(kind, capacity) for _ in range(count)]

    monkeypatch.setattr(rows_module, "make_blocks", make)
    return Late


def test_values_arrive_within_the_interval_while_the_loop_goes_on() -> None:
    with Rig() as rig:
        assert rig.logger.latest("loss") is None
        step = 0

        def stepping() -> bool:
            nonlocal step
            rig.logger.log(step, {"loss": torch.tensor(float(step))})
            step += 1
            return rig.logger.latest("loss") is not None

        until(stepping)
        rows = rig.close()
        assert rows == [(s, {"loss": float(s)}) for s in range(step)]
        assert rig.logger.latest("loss") == float(step - 1)


def test_the_last_values_arrive_although_the_loop_does_not_come_back() -> None:
    """It may be evaluating for minutes."""
    with Rig() as rig:
        rig.logger.log(7, {"loss": torch.tensor(0.5)})
        until(lambda: rig.logger.latest("loss") == 0.5)
        until(lambda: rig.kept.rows() == [(7, {"loss": 0.5})])


def test_flush_brings_everything_to_the_sinks() -> None:
    with Rig(interval_s=60.0) as rig:
        for step in range(10):
            rig.logger.log(step, {"loss": torch.tensor(float(step)), "lr": 0.1})
        assert rig.kept.rows() == []
        rig.logger.flush()
        assert rig.kept.rows() == [(s, {"loss": float(s), "lr": 0.1}) for s in range(10)]


def test_more_values_than_rows_between_two_flushes() -> None:
    names = [f"m{i}" for i in range(1000)]
    with Rig(interval_s=60.0) as rig:
        for step in range(10):
            rig.logger.log(
                step, {name: torch.tensor(step * 1000 + i) for i, name in enumerate(names)}
            )
            rig.logger.flush()
        rows = rig.close()
    assert rows == [(s, {n: s * 1000 + i for i, n in enumerate(names)}) for s in range(10)]


def test_more_tensors_in_one_call_than_there_are_rows() -> None:
    call = {f"m{i}": torch.tensor(float(i)) for i in range(ROW_LIMIT)}
    with Rig(interval_s=60.0) as rig:
        rig.logger.log(0, {"a": torch.tensor(0.0), "b": torch.tensor(1.0)})
        rig.logger.log(1, call)
        with pytest.raises(MetricError, match=f"at most {ROW_LIMIT} fit"):
            rig.logger.log(2, {**call, "one_more": 1.0})
        rows = rig.close()
    assert rows == [(0, {"a": 0.0, "b": 1.0}), (1, {f"m{i}": float(i) for i in range(ROW_LIMIT)})]


def test_a_device_far_behind_costs_records_not_time(late: type[LateBlock]) -> None:
    """Nothing is read or written again before it has landed; what is dropped is counted."""
    calls_in_one = generation_module.ENTRY_LIMIT
    total = calls_in_one * GENERATIONS + 500
    value = torch.zeros(())
    with Rig(interval_s=60.0) as rig:
        for step in range(total):
            value.fill_(step % 1000)
            rig.logger.log(step, {"x": value})
        state = rig.logger.state()
        assert (state.logged, state.written, state.dropped) == (total, 0, 500)
        assert rig.kept.rows() == []
        late.released = True
        until(lambda: rig.logger.state().written == total - 500)
        rig.logger.log(total, {"x": value.fill_(5)})
        rows = rig.close()
    expected = [(s, {"x": float(s % 1000)}) for s in range(total - 500)]
    assert rows == [*expected, (total, {"x": 5.0})]


def test_a_device_many_flushes_behind_loses_nothing_while_rows_last(
    late: type[LateBlock],
) -> None:
    with Rig(interval_s=0.002) as rig:
        for step in range(300):
            rig.logger.log(step, {"x": torch.tensor(float(step))})
            rig.logger.end_step(step)
            time.sleep(0.001)
        assert rig.logger.state().dropped == 0
        late.released = True
        assert rig.close() == [(step, {"x": float(step)}) for step in range(300)]


def test_a_device_far_behind_is_asked_less_and_less_often(
    late: type[LateBlock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time takes the interpreter from the loop."""
    asked: list[int] = []

    def count(self: LateBlock) -> bool:
        asked.append(1)
        return late.released

    monkeypatch.setattr(late, "landed", count)
    with Rig(interval_s=60.0) as rig:
        for _ in range(2):
            rig.logger.log(0, {"x": torch.tensor(1.0)})
            rig.logger._seal()
            until(lambda: len(asked) > 0)
            time.sleep(0.3)
            assert 4 <= len(asked) <= 12, "after 2, 6, 14, 30, 62, 112, 162 … ms"
            late.released = True
            until(lambda: not rig.logger._delivery.outstanding)
            late.released = False
            asked.clear()
        late.released = True


def test_closing_gives_up_on_a_device_that_hangs_and_says_what_is_lost(
    late: type[LateBlock],
) -> None:
    with Rig() as rig:
        for step in range(3):
            rig.logger.log(step, {"x": torch.tensor(1.0)})
        with pytest.warns(RuntimeWarning, match="still busy after 0.1 s: 3 log calls are lost"):
            rig.logger.close(timeout_s=0.1)
        state = rig.logger.state()
        assert (state.logged, state.written, state.dropped) == (3, 0, 3)


def test_a_device_that_fails_costs_its_records_and_one_warning(
    late: type[LateBlock], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: LateBlock) -> bool:
        raise RuntimeError("device-side assert")

    monkeypatch.setattr(late, "landed", fail)
    with Rig() as rig, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(3):
            rig.logger.log(step, {"x": torch.tensor(1.0)})
            rig.logger.flush()
        assert rig.close() == []
        assert rig.logger.state().dropped == 3
    assert [str(w.message) for w in told] == [
        "trainscope: logged values could not be fetched and are dropped and counted: "
        "RuntimeError('device-side assert')"
    ]


def test_a_non_finite_value_is_named_within_one_flush_and_told_once() -> None:
    with Rig() as rig, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        rig.logger.log(3, {"loss": torch.tensor(1.0), "norm": torch.tensor(math.inf)})
        until(lambda: rig.logger.state().nonfinite_count == 1)
        for step in range(4, 300):
            rig.logger.log(step, {"loss": torch.tensor(-math.inf)})
        rig.close()
        state = rig.logger.state()
    assert state.nonfinite[:2] == (("norm", 3, math.inf), ("loss", 4, -math.inf))
    assert (state.nonfinite_count, len(state.nonfinite)) == (297, 100)
    assert [str(w.message) for w in told] == [
        "trainscope: metric 'norm' is inf at step 3; later ones are counted, not warned"
    ]


@pytest.mark.filterwarnings("ignore:trainscope. metric")
@pytest.mark.parametrize("at", ["log", "end_step"])
def test_stop_on_nan_raises_once_with_metric_and_step(at: str) -> None:
    with Rig(stop_on_nan=True) as rig:
        rig.logger.log(41, {"loss": torch.tensor(1.0)})
        rig.logger.log(42, {"loss": torch.tensor(math.nan)})
        rig.logger.flush()
        until(lambda: rig.logger._stop is not None)
        with pytest.raises(NonFiniteError, match="'loss' is nan at step 42"):
            rig.logger.log(43, {"loss": 0.0}) if at == "log" else rig.logger.end_step(43)
        rig.logger.end_step(43)
        rig.logger.log(44, {"loss": 2.0})
        assert [step for step, _ in rig.close()] == [41, 42, 44]


@pytest.mark.filterwarnings("ignore:trainscope. metric")
def test_without_stop_on_nan_the_loop_goes_on() -> None:
    with Rig() as rig:
        for step in range(3):
            rig.logger.log(step, {"loss": math.nan})
            rig.logger.flush()
            rig.logger.end_step(step)
        assert [step for step, _ in rig.close()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"every": 0}, "every is 0; it is a whole number of steps, 1 or more"),
        ({"every": 2.0}, "every is 2.0"),
        ({"every": True}, "every is True"),
        ({"reduce": "median"}, "reduce is 'median'; allowed are 'mean', 'last', 'sum'"),
        ({"reduce": {"loss": "avg"}}, "reduce is 'avg'"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Rig(**settings)
    assert words in str(caught.value)


def test_calls_after_close_and_a_second_close_do_nothing() -> None:
    with Rig() as rig:
        rig.logger.log(0, {"x": 1})
        rows = rig.close()
        rig.logger.log(1, {"x": 2})
        rig.logger.end_step(1)
        rig.logger.flush()
        rig.logger.close()
        assert rig.kept.rows() == rows == [(0, {"x": 1})]
        assert rig.kept.closed == 1


def test_close_without_a_running_worker_delivers_all_the_same() -> None:
    rig = Rig()
    rig.logger.log(0, {"x": torch.tensor(1.5)})
    rig.logger.close()
    assert rig.kept.rows() == [(0, {"x": 1.5})]


def test_log_from_several_threads_mixes_no_values() -> None:
    with Rig() as rig:

        def loop(first: int) -> None:
            value = torch.zeros((), dtype=torch.int64)
            for step in range(first, first + 1000):
                value.fill_(step)
                rig.logger.log(step, {"a": value, "b": -step})

        threads = [threading.Thread(target=loop, args=(i * 1000,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = rig.close()
        assert rig.logger.state().dropped == 0
    assert sorted(rows) == [(s, {"a": s, "b": -s}) for s in range(3000)]


def test_a_signal_handler_that_flushes_in_the_middle_of_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run the handler's work at the worst place: rows reserved, nothing copied yet."""
    copied = generation_module._foreach_copy_
    interrupted: list[int] = []

    def interrupting(rows: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
        if not interrupted:
            interrupted.append(1)
            rig.logger.flush()
        copied(rows, sources)

    with Rig(interval_s=60.0) as rig:
        rig.logger.log(0, {"x": torch.tensor(0.5), "y": torch.tensor(0.0)})
        monkeypatch.setattr(generation_module, "_foreach_copy_", interrupting)
        rig.logger.log(1, {"x": torch.tensor(1.5), "y": torch.tensor(1.0)})
        assert rig.kept.rows() == [(0, {"x": 0.5, "y": 0.0})]
        rig.logger.log(2, {"x": torch.tensor(2.5), "y": torch.tensor(2.0)})
        assert rig.close() == [(s, {"x": s + 0.5, "y": float(s)}) for s in range(3)]


def test_each_record_has_the_time_of_its_call() -> None:
    with Rig(interval_s=60.0) as rig:
        around_ns = [time.time_ns()]
        for step in range(3):
            rig.logger.log(step, {"x": torch.tensor(1.0), "lr": 0.1})
            around_ns.append(time.time_ns())
            time.sleep(0.002)
        earlier_ns = time.time_ns() - 10**9
        rig.logger.log(3, {"lr": 0.1}, logged_ns=time.perf_counter_ns() - 10**9)
        rig.logger.flush()
        times_ns = [record.time_unix_ns for record in rig.kept.records]
    slack_ns = 10**6  # the two clocks are compared once a flush
    for before_ns, time_ns, after_ns in zip(around_ns, times_ns, around_ns[1:], strict=False):
        assert before_ns - slack_ns <= time_ns <= after_ns + slack_ns
    assert abs(times_ns[3] - earlier_ns) < 50 * slack_ns
