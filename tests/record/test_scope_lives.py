"""A scope closed where nobody expects it, used afterwards, forked, nested, stopped by a NaN."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import trainscope as ts
from trainscope.errors import NonFiniteError
from trainscope.trace.metrics import read_metrics

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def rows(run_dir: Path) -> Counter[tuple[str, int]]:
    """How many rows there are of each name and depth."""
    trace = ts.load(run_dir)
    return Counter(
        zip(
            (trace.name(number) for number in trace.ranges.name_id),
            trace.ranges.depth.tolist(),
            strict=True,
        )
    )


# ---- after the end ------------------------------------------------------------------------------
def test_a_closed_scope_costs_no_memory_and_records_nothing(tmp_path: Path) -> None:
    scope = ts.Scope(tmp_path / "run")
    kept = scope.range("kept")
    with scope.step(), kept:
        pass
    scope.close()
    for number in range(100):
        with scope.step(), kept, scope.range("new"), scope.phase(f"{number}"):
            pass
    assert list(scope.steps(range(100))) == list(range(100))
    model = scope.wrap(nn.Linear(1, 1), torch.optim.SGD([torch.ones(1)]), module_depth=2)
    assert "__call__" not in vars(type(model))
    assert "wrapped" not in repr(torch.optim.SGD.step)
    recorder = scope._session.recorder  # type: ignore[union-attr]
    assert (len(recorder.rows), len(recorder.stack), len(recorder.names)) == (0, 0, 2)
    assert rows(tmp_path / "run") == {("step", 0): 1, ("kept", 1): 1}


def test_logging_after_the_end_is_told_at_the_line_that_does_it(tmp_path: Path) -> None:
    scope = ts.Scope(tmp_path / "run")
    scope.close()
    with pytest.warns(RuntimeWarning, match=r"after scope\.close") as caught:
        scope.log(loss=1.0)
    assert caught[0].filename == __file__


def test_logging_after_the_end_is_told_once_even_where_warnings_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scope = ts.Scope(tmp_path / "run")
    scope.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            scope.log(loss=1.0)
    assert capsys.readouterr().err.count("after scope.close()") == 1


class Unaskable(float):
    """A number that raises when it is looked at."""

    def __float__(self) -> float:
        raise ZeroDivisionError("the program's own")


def test_a_value_that_cannot_be_asked_costs_its_call_alone(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ts.Scope(tmp_path / "run") as scope:
            for number in scope.steps(range(4)):
                scope.log(loss=Unaskable(1) if number % 2 else number)
    assert len(caught) == 1
    assert "could not log what a call gave it (ZeroDivisionError" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert rows(tmp_path / "run")["step", 0] == 4
    logged = read_metrics(tmp_path / "run" / "rank0" / "metrics.jsonl")
    assert [dict(each.values) for each in logged] == [{"loss": 0}, {"loss": 2}]


# ---- closed in odd places -----------------------------------------------------------------------
Close = Callable[[], None]


def in_a_range(scope: ts.Scope, close: Close) -> None:
    with scope.range("odd"), scope.range("place"):
        close()


def in_a_forward(scope: ts.Scope, close: Close) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            close()
            return x

    assert scope.wrap(Model())(torch.ones(1)).item() == 1


def in_a_backward(scope: ts.Scope, close: Close) -> None:
    weight = torch.ones(1, requires_grad=True)
    loss = weight * 3
    loss.register_hook(lambda gradient: close())
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.item() == 3


def in_an_optimizer(scope: ts.Scope, close: Close) -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scope.wrap(nn.Linear(1, 1), optimizer)
    weight.grad = torch.ones(1)
    optimizer.step(lambda: close() or 0.0)  # type: ignore[arg-type,func-returns-value]
    assert weight.item() == 0.5


def on_another_thread(scope: ts.Scope, close: Close) -> None:
    thread = threading.Thread(target=close)
    thread.start()
    thread.join()


def on_many_threads(scope: ts.Scope, close: Close) -> None:
    threads = [threading.Thread(target=close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_a_signal_handler(scope: ts.Scope, close: Close) -> None:
    closed: list[bool] = []
    before = signal.signal(signal.SIGALRM, lambda *_: (close(), closed.append(True)))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not closed:
            with scope.range("odd"):
                scope.log(loss=1.0)
    finally:
        signal.signal(signal.SIGALRM, before)


def in_a_finalizer(scope: ts.Scope, close: Close) -> None:
    class Owner:
        def __del__(self) -> None:
            close()

    Owner()


@pytest.mark.parametrize(
    "place",
    [in_a_range, in_a_forward, in_a_backward, in_an_optimizer, on_another_thread]
    + [on_many_threads, in_a_signal_handler, in_a_finalizer],
)
@pytest.mark.filterwarnings("ignore:scope.log was called after")
def test_closed_in_an_odd_place_the_loop_goes_on_and_what_was_is_kept(
    place: Callable[[ts.Scope, Close], None], tmp_path: Path
) -> None:
    done = []
    scope = ts.Scope(tmp_path / "run")
    for number in scope.steps(range(5)):
        if number == 2:
            place(scope, scope.close)
        done.append(number)
    scope.close()
    assert done == list(range(5))
    assert rows(tmp_path / "run")["step", 0] == 3
    assert scope.report().steps.count == 3


# ---- forked -------------------------------------------------------------------------------------
@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_in_a_step_records_nothing_and_may_have_a_scope_of_its_own(
    tmp_path: Path,
) -> None:
    # no backward: a CUDA build of torch refuses it in a child once its engine's threads run
    scope = ts.Scope(tmp_path / "run")
    model = scope.wrap(nn.Linear(2, 1))
    with scope, scope.step(), scope.range("forking"):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.warns(RuntimeWarning, match="in a forked process") as told:
                    for _ in scope.steps(range(10)):
                        model(torch.ones(1, 2))
                        scope.log(loss=1.0)
                    scope.close()
                    scope.log(loss=1.0)
                assert len(told) == 1
                assert not scope._session.recorder.rows  # type: ignore[union-attr]
                with ts.Scope(tmp_path / "run") as own:
                    own.wrap(model)
                    for _ in own.steps(range(3)):
                        model(torch.ones(1, 2))
                assert own.run_dir == tmp_path / "run-2"
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    assert rows(tmp_path / "run") == {("step", 0): 1, ("forking", 1): 1}
    assert rows(tmp_path / "run-2") == {("step", 0): 3, ("data", 1): 3, ("forward", 1): 3}


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_outlives_its_parent_leaves_the_files_as_they_are(tmp_path: Path) -> None:
    scope = ts.Scope(tmp_path / "run")
    list(scope.steps(range(2)))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reader, 1)
        try:
            scope.close()
            scope._session.save()  # type: ignore[union-attr]
        finally:
            os._exit(0)
    list(scope.steps(range(3)))
    scope.close()
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.*")}
    os.write(writer, b"x")
    os.waitpid(child, 0)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.*")} == before


# ---- steps in steps -----------------------------------------------------------------------------
def test_a_loop_within_a_step_ends_that_step(tmp_path: Path) -> None:
    with ts.Scope(tmp_path / "run") as scope:
        for _ in scope.steps(range(2)):
            with scope.phase("outer"):
                assert list(scope.steps(range(2))) == [0, 1]
        with scope.step(), scope.phase("outer"):
            assert list(scope.steps(range(2))) == [0, 1]
    trace = ts.load(tmp_path / "run")
    assert trace.ranges.step[trace.ranges.depth == 0].tolist() == list(range(9))
    assert rows(tmp_path / "run") == {("step", 0): 9, ("data", 1): 8, ("outer", 1): 3}


def test_a_step_within_a_step_is_none_and_told_once(tmp_path: Path) -> None:
    with (
        ts.Scope(tmp_path / "run") as scope,
        pytest.warns(RuntimeWarning, match=r"scope\.step\(\) within a step") as warned,
    ):
        for _ in scope.steps(range(2)):
            with scope.step(), scope.phase("inner"):
                pass
            with pytest.raises(KeyError), scope.step():
                raise KeyError
            with scope.phase("rest"):
                pass
        with scope.step(), scope.phase("outer"), scope.step(), scope.phase("inner"):
            pass
        with (again := scope.step()), again, scope.phase("last"):
            pass
    assert [(w.filename, "of scope.steps(loader) (step 0)" in str(w.message)) for w in warned] == [
        (__file__, True)
    ]
    assert rows(tmp_path / "run") == {
        **{("step", 0): 4, ("data", 1): 2, ("inner", 1): 2, ("rest", 1): 2},
        **{("outer", 1): 1, ("inner", 2): 1, ("last", 1): 1},
    }
    assert ts.load(tmp_path / "run").info.counted_by == "scope.step"


def test_a_step_in_a_loop_is_counted_as_the_loop_s(tmp_path: Path) -> None:
    with ts.Scope(tmp_path / "run") as scope, pytest.warns(RuntimeWarning, match="begins no step"):
        for _ in scope.steps(range(3)):
            with scope.step():
                pass
    assert ts.load(tmp_path / "run").info.counted_by == "scope.steps"


def test_after_a_step_that_was_left_open_comes_the_next(tmp_path: Path) -> None:
    with ts.Scope(tmp_path / "run") as scope:
        left = iter(scope.steps(range(3)))
        next(left)
        del left
        for _ in range(2):
            scope.step().__enter__()  # as a Ctrl-C before the block leaves it
        with scope.step():
            pass
    assert rows(tmp_path / "run") == {("step", 0): 4, ("data", 1): 1}


# ---- what ends the loop goes first --------------------------------------------------------------
def nan_loop(scope: ts.Scope) -> Iterator[int]:
    """Log a NaN and wait until it has arrived."""
    for number in scope.steps(range(100)):
        scope.log(loss=float("nan"))
        deadline_s = time.monotonic() + 10
        while scope._session.metrics._stop is None:  # type: ignore[union-attr]
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        yield number


def test_stop_on_nan_ends_the_loop(tmp_path: Path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="loss"),
        ts.Scope(tmp_path / "run", stop_on_nan=True) as scope,
        pytest.raises(NonFiniteError),
    ):
        for _ in nan_loop(scope):
            pass


@pytest.mark.filterwarnings("ignore:.*metric 'loss' is nan")
@pytest.mark.parametrize("error", [KeyError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_nan_does_not_stand_in_for_the_programs_own_exception(
    error: type[BaseException], tmp_path: Path
) -> None:
    with ts.Scope(tmp_path / "run", stop_on_nan=True) as scope:
        with pytest.raises(error) as caught:
            for _ in nan_loop(scope):
                raise error
        assert caught.value.__context__ is None
        with pytest.raises(error) as caught, scope.step():
            scope.log(loss=1.0)
            raise error
        assert caught.value.__context__ is None
