"""One recording: recorder, detector, capture, metrics and files, held together."""

from __future__ import annotations

import platform
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

import trainscope
from trainscope.errors import TrainscopeError
from trainscope.metrics.logger import MetricsLogger
from trainscope.metrics.sinks import Jsonl, SinkContext
from trainscope.metrics.worker import Worker
from trainscope.record import nvtx
from trainscope.record.annotations import ProfilerAnnotations
from trainscope.record.capture import Capture
from trainscope.record.exit import at_end
from trainscope.record.hooks import Hooks
from trainscope.record.ranges import NullRange, Range
from trainscope.record.recorder import Recorder
from trainscope.record.settings import Settings
from trainscope.record.world import this_process
from trainscope.sync.detector import SyncDetector
from trainscope.sync.own import own_work
from trainscope.trace.counts import Counts
from trainscope.trace.run_dir import RunDirectory
from trainscope.trace.run_info import RunInfo

if TYPE_CHECKING:
    from trainscope.metrics.sinks import Sink

__all__ = ["Session"]

SAVE_SYNCS_EVERY_S = 5.0
"""syncs.json is replaced whole, so less often than rows are appended; a kill loses this much."""


class Session:
    """What an enabled ``Scope`` holds. Its own faults end the recording, never the loop."""

    def __init__(self, settings: Settings, sinks: Sequence[Sink]) -> None:
        self.settings = settings
        self.counted_by: str | None = None
        self._world = world = this_process()
        self.directory = RunDirectory.create(
            settings.run_dir,
            rank=world.rank,
            world_size=world.size,
            launch_id=world.launch_id,
        )
        if self.directory.moved_from is not None and world.rank == 0:
            print(
                f"trainscope: {self.directory.moved_from} is in use, so this run goes to "
                f"{self.directory.path}",
                file=sys.stderr,
            )
        self.recorder = Recorder(domain=nvtx.open_domain())
        self.recorder.loop.h2d = partial(self.range, "h2d")
        self.detector = SyncDetector(
            settings.sync, dry_run=settings.dry_run, loop=self.recorder.loop
        )
        self.capture = (
            None
            if settings.schedule is None
            else Capture(settings.schedule, self.directory.rank_dir, with_stack=settings.stacks)
        )
        self._annotations = ProfilerAnnotations()
        self._ranges: dict[str, Range] = {}
        self.hooks = Hooks(self.recorder)
        self.worker = Worker()
        self.metrics = MetricsLogger(
            [Jsonl(), *sinks],
            context=SinkContext(
                run_dir=self.directory.path,
                rank_dir=self.directory.rank_dir,
                rank=world.rank,
                world_size=world.size,
                run_name=self.directory.path.name,
            ),
            worker=self.worker,
            every=settings.every,
            reduce=settings.reduce,
            stop_on_nan=settings.stop_on_nan,
        )
        self._started = (time.time_ns(), perf_counter_ns())
        self._next_step = settings.start_step
        self._own_ns = 0
        self._names_written = 0
        self._syncs_saved_s = time.monotonic()
        self._open = True
        self._write_info()
        self.worker.add(self._save_new)
        self.worker.start()
        self.detector.start()
        self._at_end = at_end(self.close, flush=self.save)

    # ---- hot path -----------------------------------------------------------------------------
    def begin_step(self) -> None:
        """Begin the next step; one left open by an exception is ended first."""
        if not self._open:
            return
        try:
            if self.recorder.step >= 0:
                self.end_step()
            step = self._next_step
            capture = self.capture
            if capture is not None:
                capture.begin_step(step)
                self.recorder.window = self._annotations if capture.in_window else None
            began_ns = perf_counter_ns()
            self.detector.begin_step(step)
            self.recorder.begin_step(step)
            self._own_ns += perf_counter_ns() - began_ns
        except Exception as fault:
            self._give_up(fault)

    def end_step(self, end_ns: int | None = None) -> None:
        """End the step that is open; ``end_ns`` is when it ended, where that was before now."""
        if not self._open:
            return
        began_ns = perf_counter_ns()
        try:
            step = self.recorder.step
            if step < 0:
                return
            self.recorder.end_step(end_ns=end_ns)
            self._next_step = step + 1
            self.metrics.end_step(step)
        except TrainscopeError:
            raise  # a NaN that the user asked to be stopped at
        except Exception as fault:
            self._give_up(fault)
        finally:
            self._own_ns += perf_counter_ns() - began_ns
        if self.capture is not None and self._open:
            try:
                self.capture.end_step(step)
            except Exception as fault:
                self._give_up(fault)

    def drop_step(self) -> None:
        """Forget the open step: the loader had no batch for it. The next one takes its number."""
        if self._open:
            self.recorder.end_step(keep=False)
            self.detector.drop_step()

    def range(self, name: str) -> Range | NullRange:
        """Return the range of that name; on another thread than the loop's one that does nothing.

        The steps are the loop's, so what other threads do in the meantime is not recorded.
        """
        if get_ident() != self.recorder.loop.thread_id:
            return NullRange()
        found = self._ranges.get(name)
        if found is None:
            found = self._ranges[name] = Range(self.recorder, name)
        return found

    def log(self, values: Mapping[str, object]) -> None:
        """Log values of the open step, or of the last one when called between steps."""
        if not self._open:
            self._warn_closed()
            return
        began_ns = perf_counter_ns()
        step = self.recorder.step
        if step < 0:
            step = max(self._next_step - 1, self.settings.start_step)
        try:
            self.metrics.log(step, values)
        except TrainscopeError:
            raise
        except Exception as fault:
            self._give_up(fault)
        self._own_ns += perf_counter_ns() - began_ns

    def wrap(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        module_depth: int,
    ) -> None:
        """Hook one model and its optimizers."""
        self.hooks.add_model(model, module_depth=module_depth)
        for optimizer in optimizers:
            self.hooks.add_optimizer(optimizer)

    # ---- files --------------------------------------------------------------------------------
    def _write_info(self) -> None:
        unix_ns, counter_ns = self._started
        self.directory.write_info(
            RunInfo(
                launch_id=self._world.launch_id,
                world_size=self._world.size,
                created_unix_ns=unix_ns,
                perf_counter_ns=counter_ns,
                # asking for the name would start CUDA in a process that has not yet
                device=torch.cuda.get_device_name() if torch.cuda.is_initialized() else None,
                torch=torch.__version__,
                trainscope=trainscope.__version__,
                python=platform.python_version(),
                platform=platform.platform(),
                argv=sys.argv,
                dry_run=self.settings.dry_run,
                counted_by=self.counted_by,
                settings=self.settings.model_dump(mode="json", exclude={"schedule"}),
                schedule=(
                    None
                    if self.settings.schedule is None
                    else self.settings.schedule.model_dump(mode="json")
                ),
            )
        )

    def _save_new(self) -> None:
        """On the worker: append the finished ranges, now and then replace the syncs."""
        rows = self.recorder.take_rows()
        names = list(self.recorder.names)
        if len(names) > self._names_written:
            self.directory.write_names(names)
            self._names_written = len(names)
        if rows:
            self.directory.append_rows(rows)
        if time.monotonic() - self._syncs_saved_s > SAVE_SYNCS_EVERY_S:
            self._save_state()

    def _save_state(self) -> None:
        self._syncs_saved_s = time.monotonic()
        directory = self.directory
        directory.write_syncs(self.detector.sites(), self.detector.state())
        directory.write_json("metrics.json", self.metrics.state())
        if self.capture is not None:
            directory.write_json("captures.json", self.capture.state())
        recorder = self.recorder
        directory.write_json(
            "counts.json",
            Counts(
                optimizer_steps=recorder.optimizer_steps if self.hooks.watches_optimizers else None,
                forwards=recorder.forwards,
                backwards=recorder.backwards,
                range_cost_ns=_range_cost_ns(),
                per_step_cost_ns=self._own_ns / max(recorder.steps_done, 1),
                not_seen=list(self.hooks.not_seen()),
            ),
        )

    def save(self) -> None:
        """Bring every file up to date, so that a report can be made now."""
        if not self._open:
            return
        self.metrics.flush()
        self.worker.run_now()
        self._write_info()
        with own_work():
            self._save_state()

    def close(self) -> None:
        """End the recording: hooks out, everything written. Later calls do nothing."""
        if not self._open:
            return
        self._open = False
        with self._at_end:  # a SIGTERM that comes meanwhile waits for the end of it
            self.recorder.close_all()
            self.hooks.remove()
            self.detector.stop()
            if self.capture is not None:
                self.capture.close()
            self.metrics.close()
            self.worker.close()
            self._write_info()
            self._save_state()
            self.directory.close()

    # ---- faults -------------------------------------------------------------------------------
    def _give_up(self, fault: Exception) -> None:
        """A fault of ours ends the recording with one warning; the training goes on."""
        warnings.warn(
            f"trainscope stopped recording because of a fault of its own "
            f"({type(fault).__name__}: {fault}); the training goes on. "
            f"What was recorded is in {self.directory.path}",
            RuntimeWarning,
            stacklevel=4,
        )
        try:
            self.close()
        except Exception as second:
            self._open = False
            print(f"trainscope: closing failed as well: {second!r}", file=sys.stderr)

    def _warn_closed(self) -> None:
        warnings.warn(
            "scope.log was called after scope.close(): the values are not logged",
            RuntimeWarning,
            stacklevel=4,
        )


def _range_cost_ns(ranges: int = 200) -> float:
    """CPU time of one range with no tool attached, in nanoseconds, measured now."""
    recorder = Recorder()
    recorder.begin_step(0)
    began_ns = perf_counter_ns()
    for _ in range(ranges):
        with Range(recorder, "cost"):
            pass
    return (perf_counter_ns() - began_ns) / ranges
