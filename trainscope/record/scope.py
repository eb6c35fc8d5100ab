"""``Scope``: what a user puts around a training loop."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import torch

from trainscope.errors import ConfigError
from trainscope.record.dropped import close_dropped, close_when_dropped
from trainscope.record.one_step import OneStep, WhoseStep
from trainscope.record.ranges import NullRange, Range
from trainscope.record.schedule import Schedule
from trainscope.record.session import Session
from trainscope.record.settings import Settings, checked_sinks, switched_off
from trainscope.record.stand_in import stand_in
from trainscope.record.steps import Steps
from trainscope.sync.process import DRY

if TYPE_CHECKING:
    from trainscope.metrics.sinks import Sink
    from trainscope.report.model import Report

__all__ = ["Scope"]

Batch = TypeVar("Batch")
Model = TypeVar("Model", bound=torch.nn.Module)


class Scope:
    """Record where the steps of a loop spend their time, what waits for the GPU, and its metrics.

    One that nothing holds any more goes on until another is made or used on the same thread.

    Args:
        run_dir: where the files go. A directory that already holds anything is left as it is and
            a numbered sibling is used (``runs/mlp-2``), said once on standard error.
        schedule: which steps are captured by torch.profiler (or by nsys, under it). None: none.
        sinks: where logged values go besides ``metrics.jsonl`` in the run directory.
        sync: ``"record"`` each sync, ``"warn"`` once a line, raise ``"error"``, or ``"off"``.
        every: write metrics of each ``every``-th step, reduced over the steps between.
        reduce: how: ``"mean"``, ``"last"``, ``"sum"``, ``"min"`` or ``"max"``; or a mapping from
            metric name to one of these.
        stop_on_nan: raise ``NonFiniteError`` at the first ``log`` after a NaN or inf has arrived.
        stacks: record Python stacks in captured windows (they slow the window down).
        dry_run: on a machine with no GPU, find the lines that would wait on one (slow).
        start_step: number of the first step, for a resumed run.
        enabled: False, or the environment variable ``TRAINSCOPE_DISABLED=1``, leaves the loop as
            if trainscope were not there.

    Raises:
        ConfigError: an argument has a value that is not allowed.
        RunDirectoryError: the run directory cannot be made.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str] = "runs/trainscope",
        *,
        schedule: Schedule | None = None,
        sinks: Sequence[Sink] = (),
        sync: str = "record",
        every: int = 1,
        reduce: str | Mapping[str, str] = "mean",
        stop_on_nan: bool = False,
        stacks: bool = False,
        dry_run: bool = False,
        start_step: int = 0,
        enabled: bool = True,
    ) -> None:
        settings = Settings.checked(
            run_dir=run_dir,
            schedule=schedule,
            sync=sync,
            every=every,
            reduce=reduce,
            stop_on_nan=stop_on_nan,
            stacks=stacks,
            dry_run=dry_run,
            start_step=start_step,
        )
        self.enabled = enabled and not switched_off()
        self._session: Session | None = None
        self._whose_step: WhoseStep | None = None
        if not self.enabled:
            return
        checked = checked_sinks(sinks)
        # held before it begins: an interrupt that comes as it is done must still find it
        self._session = session = Session.__new__(Session)
        try:
            with DRY.kept():
                close_dropped()
                # under `trainscope run` the program's own scope is the one, dry if that was
                if stand_in.step_aside():
                    settings = settings.model_copy(update={"dry_run": True})
                session.__init__(settings, checked)
            self._whose_step = WhoseStep(session)
            close_when_dropped(self._whose_step, session)
            return
        except BaseException:
            session.close()
            raise

    # ---- around the loop ----------------------------------------------------------------------
    def wrap(
        self, model: Model, *optimizers: torch.optim.Optimizer, module_depth: int = 0
    ) -> Model:
        """Give the model's calls, every backward and the optimizers' steps a range; return it.

        The model stays the same object with nothing put on it. ``module_depth=1`` adds a range for
        each direct child, 2 for theirs too.
        """
        session = self._session
        if session is not None:
            close_dropped()
            session.wrap(model, optimizers, module_depth)
        return model

    def steps(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        """Iterate the loader, each turn a step with a ``data`` phase; drives the schedule.

        Begun within a step it ends that one: its own turns are the steps then.
        """
        session, whose_step = self._session, self._whose_step
        if session is None or whose_step is None:
            return loader
        close_dropped()
        session.counted_by = "scope.steps"
        return Steps(
            loader,
            session.recorder,
            begin=whose_step.by_loop(),
            go_on=session.calls.next_step,
            end=session.calls.end_step,
            drop=session.calls.drop_step,
        )

    def step(self) -> OneStep | NullRange:
        """``with scope.step():`` one step of a loop that has no loader.

        Within a step it is none: the step around it goes on, and one warning says so.
        """
        whose_step = self._whose_step
        return NullRange() if whose_step is None else OneStep(whose_step)

    def phase(self, name: str) -> Range | NullRange:
        """``with scope.phase("forward"):`` a top-level part of the step."""
        return self.range(name)

    def range(self, name: str) -> Range | NullRange:
        """``with scope.range("tokenize"):`` a named interval; directly in a step it is a phase."""
        session = self._session
        return NullRange() if session is None else session.calls.range(name)

    # ---- values -------------------------------------------------------------------------------
    def log(self, values: Mapping[str, object] | None = None, /, **named: object) -> None:
        """Log numbers and one-element tensors of this step; never waits for the GPU.

        A tensor's value is copied on the device in stream order, so later in-place changes do not
        show, and arrives at the sinks within about a second.

        Raises:
            MetricError: a value is no number, has more than one element, or a CUDA graph is being
                captured.
        """
        session = self._session
        if session is not None:
            merged = named if values is None else {**values, **named} if named else values
            session.calls.log(merged)

    def latest(self, name: str) -> float | int | None:
        """Return the newest value of a metric that has arrived, without waiting; None before."""
        session = self._session
        return None if session is None else session.metrics.latest(name)

    # ---- afterwards ---------------------------------------------------------------------------
    @property
    def run_dir(self) -> Path:
        """The run directory in use.

        Raises:
            ConfigError: the scope is disabled, so there is none.
        """
        if self._session is None:
            raise ConfigError("this scope is disabled and has no run directory; enable it first")
        return self._session.directory.path

    def report(self) -> Report:
        """Analyse what has been recorded so far, in the middle of a run or after ``close``.

        A disabled scope gives a report that says that nothing was recorded.
        """
        from trainscope import api

        if self._session is None:
            return api.nothing_recorded("trainscope is disabled, so nothing was recorded.")
        self._session.save()
        return api.analyze(api.load(self.run_dir))

    def close(self) -> None:
        """Write what is left, take every hook out; later calls do nothing."""
        if self._session is not None:
            self._session.close()

    def __enter__(self) -> Scope:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
