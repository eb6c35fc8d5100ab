"""A sink that is slow, fails or hangs is its own problem alone, and everybody is told."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Sequence

import pytest
from metrics_rig import NOWHERE, Kept, Rig, until

from trainscope.metrics.outlet import FAILURES_ALLOWED, QUEUE_LIMIT, Outlet
from trainscope.metrics.records import MetricRecord, SinkContext


class Failing(Kept):
    """Fails in the named method, or in the writes with the given numbers."""

    name = "failing"

    def __init__(self, method: str = "", writes: Sequence[int] = ()) -> None:
        super().__init__()
        self._method = method
        self._writes = writes
        self.tried = 0

    def _fail(self, method: str) -> None:
        if method == self._method:
            raise OSError(f"no network in {method}")

    def open(self, run: SinkContext) -> None:
        self._fail("open")

    def write(self, records: Sequence[MetricRecord]) -> None:
        self._fail("write")
        self.tried += 1
        if self.tried in self._writes:
            raise OSError(f"lost write {self.tried}")
        super().write(records)

    def close(self) -> None:
        self._fail("close")
        super().close()


def record(step: int) -> MetricRecord:
    return MetricRecord(step, 0, {"x": step})


def feed(sink: Kept, batches: int) -> tuple[Outlet, list[str]]:
    """One-record batches, then the end; the outlet and what was told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        outlet = Outlet(sink, NOWHERE)
        for step in range(batches):
            outlet.offer([record(step)])
        outlet.finish()
        outlet.join(deadline_s=float("inf"))
    return outlet, [str(warning.message) for warning in told]


def test_a_sink_that_fails_now_and_then_goes_on() -> None:
    sink = Failing(writes=[2, 3, 5])
    outlet, told = feed(sink, 6)
    assert [step for step, _ in sink.rows()] == [0, 3, 5]
    state = outlet.state()
    assert (state.written, state.dropped, state.disabled) == (3, 3, False)
    assert state.error == "OSError: lost write 5"
    assert told == []
    assert sink.closed == 1


def test_a_sink_that_keeps_failing_is_switched_off_with_one_warning() -> None:
    sink = Failing("write")
    outlet, told = feed(sink, 10)
    state = outlet.state()
    assert (state.written, state.dropped, state.disabled) == (0, 10, True)
    assert state.error == "OSError: no network in write"
    assert told == [
        f"trainscope: sink 'failing' failed in write ({FAILURES_ALLOWED} times in a row) and is "
        "switched off: OSError: no network in write; the loop and the other sinks go on"
    ]


def test_a_sink_that_cannot_be_opened() -> None:
    sink = Failing("open")
    outlet, told = feed(sink, 2)
    assert (outlet.state().dropped, outlet.state().disabled, sink.closed) == (2, True, 0)
    assert len(told) == 1
    assert "failed in open and is switched off: OSError: no network in open" in told[0]


def test_a_sink_that_fails_at_the_end_is_told() -> None:
    outlet, told = feed(Failing("close"), 1)
    assert outlet.state().written == 1
    assert len(told) == 1
    assert "failed in close" in told[0]


class Hanging(Kept):
    name = "hanging"

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def write(self, records: Sequence[MetricRecord]) -> None:
        self.go_on.wait(60)
        super().write(records)


def test_a_hanging_sink_costs_its_own_records_only() -> None:
    sink = Hanging()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        outlet = Outlet(sink, NOWHERE)
        for step in range(0, QUEUE_LIMIT + 1000, 100):
            outlet.offer([record(s) for s in range(step, step + 100)])
        assert outlet.state().dropped == 1000
        outlet.finish()
        outlet.join(deadline_s=0.0)
        state = outlet.state()
    assert (state.written, state.dropped) == (0, QUEUE_LIMIT + 1000)
    messages = [str(warning.message) for warning in told]
    assert len(messages) == 2
    assert f"'hanging' is {QUEUE_LIMIT} records behind" in messages[0]
    assert f"{QUEUE_LIMIT} of {QUEUE_LIMIT} records are lost there" in messages[1]
    sink.go_on.set()


FORKING = """
    import os
    from pathlib import Path

    from trainscope.metrics.outlet import Outlet
    from trainscope.metrics.records import MetricRecord, SinkContext

    class Forking:
        name = "forking"

        def open(self, run):
            pass

        def write(self, records):
            self.child = os.fork()  # comes back in a child too, on the sink's thread

        def close(self):
            if self.child == 0:
                os._exit(1)  # the file that is closed here is the parent's

    sink = Forking()
    outlet = Outlet(sink, SinkContext(Path(), Path(), 0, 1, "run"))
    outlet.offer([MetricRecord(0, 0, {"x": 0})])
    outlet.finish()
    outlet.join(deadline_s=float("inf"))
    print(os.waitpid(sink.child, 0)[1], outlet.state().written)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_by_a_sink_ends_and_leaves_the_sink_alone() -> None:
    # in a process of its own: a fork of one with torch's threads may stop at a lock of theirs
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKING)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (["0", "1"], "")


@pytest.mark.filterwarnings("ignore:trainscope. sink")
def test_one_bad_sink_takes_nothing_from_the_others_nor_from_close() -> None:
    hanging, failing = Hanging(), Failing("write")
    with Rig(hanging, failing) as rig:
        for step in range(100):
            rig.logger.log(step, {"x": step})
            if step % 10 == 9:
                rig.logger.flush(timeout_s=0.02)
        rows = rig.close(timeout_s=0.2)
        states = {sink.name: sink for sink in rig.logger.state().sinks}
    assert rows == [(s, {"x": s}) for s in range(100)]
    assert (states["kept"].written, states["kept"].dropped) == (100, 0)
    assert states["failing"].dropped == 100
    assert states["hanging"].dropped == 100
    hanging.go_on.set()


def test_warnings_as_errors_do_not_end_our_thread(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sink = Failing("write")
        outlet = Outlet(sink, NOWHERE)
        for step in range(5):
            outlet.offer([record(step)])
        outlet.finish()
        until(lambda: outlet.state().dropped == 5)
        outlet.join(deadline_s=float("inf"))
    assert "sink 'failing' failed in write" in capsys.readouterr().err
