"""Weights & Biases (extra ``wandb``)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trainscope.metrics.records import MetricRecord, SinkContext
from trainscope.metrics.sinks.needed import require
from trainscope.metrics.sinks.wandb_habit import Habit
from trainscope.metrics.warn import warn

if TYPE_CHECKING:
    from wandb import Run

__all__ = ["Wandb"]

HOLD_S = 10.0
"""How long to wait for a sign of how the program logs to its run."""
HOLD_LIMIT = 5000
"""And how many records meanwhile."""


class Wandb:
    """Logs to a run of its own, or to the program's run where that loses nothing.

    Values arrive late, and wandb drops whatever comes for a step that is over. So:

    - No run is active and none is passed: a run of our own, in which each record stands at its
      own step. It is not ``wandb.run``, so a later ``wandb.init`` of the program is not disturbed.
    - A run is passed or active, and the program logs to it without ``step=``: into that run, as
      ``trainscope/<name>`` over the axis ``trainscope/step``, each record a row of its own.
    - The program logs with ``step=``: every row of ours would use up step numbers that the program
      needs, so a run of our own beside it, in the same group; said in one warning. The same when
      the program has not logged within ten seconds, or has finished its run.

    Without a run passed or active, only rank 0 writes.

    Args:
        project: the project of a run of our own.
        run: the program's run; default the active one, if any.
        without_step: the promise that the program logs to its run without ``step=`` or not at
            all, so that nothing has to be watched and waited for.
        init: more arguments of ``wandb.init`` for a run of our own.

    Raises:
        MissingDependencyError: wandb is not installed, or older than 0.19.10.
    """

    name = "wandb"

    def __init__(
        self,
        project: str | None = None,
        *,
        run: Run | None = None,
        without_step: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
        **init: Any,
    ) -> None:
        require("wandb", "sinks.Wandb")
        self.note: str | None = None
        self._init = {"project": project, **init} if project is not None else dict(init)
        self._theirs: Any = run
        self._without_step = without_step
        self._clock_s = clock_s
        self._habit: Habit | None = None
        self._own: Any = None
        self._held: list[MetricRecord] = []
        self._held_since_s = 0.0
        self._silent = False
        self._write: Callable[[Sequence[MetricRecord]], None] = self._write_own

    def open(self, run: SinkContext) -> None:
        """Find the program's run or start one."""
        if self._theirs is None:
            self._theirs = getattr(sys.modules.get("wandb"), "run", None)
        if self._theirs is None and run.rank != 0:
            self._silent = True
            self.note = "only rank 0 writes to wandb"
        elif self._theirs is None:
            self._init.setdefault("name", run.run_name)
            self._start_own()
        elif self._without_step:
            self._share()
        else:
            self._watch()

    def write(self, records: Sequence[MetricRecord]) -> None:
        """Log the records where they belong."""
        if not self._silent:
            self._write(records)

    def close(self) -> None:
        """Finish the run if it is ours; the program's stays open."""
        if self._held:
            self._write(())
        if self._held:
            self._leave("it has not been logged to, and might be with step=")
            self._write(())
        if self._habit is not None:
            self._habit.stop()
        if self._own is not None:
            self._own.finish()

    # ---- a run of our own ---------------------------------------------------------------------
    def _start_own(self) -> None:
        import wandb

        # create_new: neither takes wandb.run nor ends or returns a run of the program's
        own = wandb.init(reinit="create_new", **self._init)
        # nor may the program's next wandb.init return ours as "the previous run"
        library: Any = getattr(own, "_wl", None)
        if hasattr(library, "remove_active_run"):
            library.remove_active_run(own)
        self._own = own
        self._write = self._write_own
        self.note = f"run {own.name} ({own.id})"

    def _write_own(self, records: Sequence[MetricRecord]) -> None:
        held, self._held = self._held, []
        for record in (*held, *records):
            self._own.log(dict(record.values), step=record.step)

    # ---- the program's run --------------------------------------------------------------------
    def _watch(self) -> None:
        try:
            self._habit = Habit(self._theirs)
        except AttributeError:
            self._leave("this release of wandb does not let its steps be watched")
            return
        self._write = self._hold

    def _hold(self, records: Sequence[MetricRecord]) -> None:
        if not self._held:
            self._held_since_s = self._clock_s()
        self._held += records
        with_step = self._habit.with_step if self._habit is not None else None
        if with_step is not None:
            self._leave("it is logged to with step=") if with_step else self._share()
        elif len(self._held) >= HOLD_LIMIT or self._clock_s() - self._held_since_s >= HOLD_S:
            self._leave("it has not been logged to yet, and might be with step=")
        else:
            return
        self._write(())

    def _share(self) -> None:
        self._theirs.define_metric("trainscope/step", hidden=True)
        self._theirs.define_metric("trainscope/*", step_metric="trainscope/step")
        self._write = self._write_theirs
        name, key = self._theirs.name, self._theirs.id  # an offline run has no name
        self.note = f"run {f'{name} ({key})' if name else key} of the program, as trainscope/*"

    def _write_theirs(self, records: Sequence[MetricRecord]) -> None:
        self._held += records
        habit = self._habit
        while self._held:
            if habit is not None and habit.with_step:
                self._leave("it is now logged to with step=")
                if habit.behind is not None:
                    warn(
                        f"wandb dropped what the program logged at step {habit.behind}: rows of "
                        f"ours were there already; give sinks.Wandb a run of its own"
                    )
                self._write(())
                return
            if getattr(self._theirs, "_is_finished", False):
                self._leave("it has been finished")
                self._write(())
                return
            record = self._held[0]
            row = {f"trainscope/{name}": value for name, value in record.values.items()}
            self._theirs.log({"trainscope/step": record.step, **row})
            del self._held[0]

    def _leave(self, why: str) -> None:
        """Open a run of our own beside the program's, because ``why``."""
        theirs = self._theirs
        import wandb

        beside: dict[str, Any] = {
            "project": theirs.project,
            "entity": theirs.entity or None,
            "group": theirs.group or theirs.id,
            "name": f"{theirs.name or theirs.id}-trainscope",
            "job_type": "trainscope",
            "config": {"trainscope/beside": theirs.id},
            "settings": wandb.Settings(console="off"),
        }
        if theirs.offline:
            beside["mode"] = "offline"
        self._init = {**beside, **self._init}
        self._start_own()
        warn(
            f"metrics go to a wandb run of their own, {self._own.name} ({self._own.id}, group "
            f"{self._own.group}), not into {theirs.name or theirs.id}: {why}, and in one run "
            f"either the program's values or these would be lost; if it is only logged to without "
            f"step=, say sinks.Wandb(run=run, without_step=True)"
        )
