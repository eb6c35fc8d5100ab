"""One recording: recorder, detector, capture, metrics and files, held together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from trainscope.errors import TrainscopeError
from trainscope.metrics.fork import drop_in_child
from trainscope.metrics.logger import MetricsLogger
from trainscope.metrics.sinks import Jsonl, SinkContext
from trainscope.metrics.worker import Worker
from trainscope.notice import say
from trainscope.record import nvtx
from trainscope.record.annotations import ProfilerAnnotations
from trainscope.record.capture import Capture
from trainscope.record.closing import Closing
from trainscope.record.exit import Handle, at_end
from trainscope.record.faults import Faults
from trainscope.record.hooks import Hooks
from trainscope.record.ranges import NullRange, Range, new_range
from trainscope.record.recorder import Recorder
from trainscope.record.saving import Saving
from trainscope.record.settings import Settings
from trainscope.record.world import this_process
from trainscope.sync.detector import SyncDetector
from trainscope.sync.noted import NotedWaits
from trainscope.sync.own import own_work
from trainscope.trace.run_dir import RunDirectory

if TYPE_CHECKING:
    from trainscope.metrics.sinks import Sink

__all__ = ["Session"]


class Session:
    """What an enabled ``Scope`` holds. Its own faults end the recording, never the loop."""

    _closing: Closing | None = None
    """None until there is something to close."""
    _forked = False

    def __init__(self, settings: Settings, sinks: Sequence[Sink]) -> None:
        self.settings = settings
        self.counted_by: str | None = None
        world = this_process()
        self.directory = RunDirectory.create(
            settings.run_dir,
            rank=world.rank,
            world_size=world.size,
            launch_id=world.launch_id,
        )
        if self.directory.moved_from is not None and world.rank == 0:
            say(
                f"trainscope: {self.directory.moved_from} is not empty, so this run goes to "
                f"{self.directory.path}"
            )
        self.faults = Faults(self.directory.path, self.close)
        self.recorder = Recorder(domain=nvtx.open_domain())
        self._loop = self.recorder.loop
        self._loop.h2d = partial(self.range, "h2d")
        self.detector = SyncDetector(settings.sync, dry_run=settings.dry_run, loop=self._loop)
        self.capture = (
            None
            if settings.schedule is None
            else Capture(settings.schedule, self.directory.rank_dir, with_stack=settings.stacks)
        )
        self._annotations = ProfilerAnnotations()
        self.noted_waits = NotedWaits()
        self._ranges: dict[str, Range] = {}
        self.hooks = Hooks(self.recorder)
        self.worker = Worker()
        self.worker.follow(self.hooks.lulls)
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
        self._next_step = settings.start_step
        self.own_ns = 0
        """CPU time on the loop's thread of all but the ranges."""
        self._saving = Saving(self, world, self.faults.not_saved)
        self._open = True
        self._at_end: AbstractContextManager[object] = nullcontext()
        self._closing = Closing(self._stages())
        try:
            self._start()
        except BaseException:  # nothing stays of a scope that the program never gets
            self.close()
            raise

    def _start(self) -> None:
        drop_in_child(self)
        self._saving.begin()
        self._at_end = handle = Handle(self.close, self.save)
        handle.enlist()
        self.worker.add(self._saving.write_new)
        self.worker.start()
        self.detector.start()

    # ---- hot path -----------------------------------------------------------------------------
    def begin_step(self) -> None:
        """Begin the next step; one left open by an exception is ended first."""
        if not self._open:
            return
        try:
            recorder = self.recorder
            if recorder.step >= 0:
                self.end_step()
            step = self._next_step
            capture = self.capture
            if capture is not None and step >= capture.begin_at:
                self._advance(capture, step)
            began_ns = perf_counter_ns()
            self.detector.begin_step(step)
            self.hooks.begin_step()
            self.own_ns += recorder.begin_step(step) - began_ns
        except Exception as fault:
            self.faults.give_up(fault)

    def next_step(self) -> None:
        """End the open step and begin the next: what a loop does that has come round.

        It is ``end_step`` and ``begin_step``; where no window begins or ends and the metrics want
        nothing it is both in one.
        """
        recorder, capture = self.recorder, self.capture
        step = recorder.step
        if (
            step < 0
            or not self._open
            or self.metrics.wants_step_end
            or (capture is not None and (step >= capture.end_at or step + 1 >= capture.begin_at))
        ):
            self.end_step()
            self.begin_step()
            return
        began_ns = perf_counter_ns()
        try:
            self._next_step = following = step + 1
            self.detector.begin_step(following)
            self.hooks.begin_step()
            self.own_ns += recorder.next_step(began_ns) - began_ns
        except Exception as fault:
            self.faults.give_up(fault)

    def _advance(self, capture: Capture, step: int) -> None:
        """A window may begin or end with this step."""
        capture.begin_step(step)
        self.recorder.window = self._annotations if capture.in_window else None
        self.detector.noted = self.noted_waits if capture.in_window else None

    def end_step(self, end_ns: int | None = None) -> None:
        """End the step that is open; ``end_ns`` is when it ended, where that was before now."""
        if not self._open:
            return
        began_ns = perf_counter_ns()
        recorder = self.recorder
        step = recorder.step
        if step < 0:
            return
        try:
            self._next_step = step + 1  # first: an interrupt here must not give a number twice
            recorder.end_step(began_ns if end_ns is None else end_ns)
            self.metrics.end_step(step)
        except TrainscopeError:
            raise  # a NaN that the user asked to be stopped at
        except Exception as fault:
            self.faults.give_up(fault)
        finally:
            self.own_ns += perf_counter_ns() - began_ns
        capture = self.capture
        if capture is not None and step >= capture.end_at and self._open:
            try:
                capture.end_step(step)
            except Exception as fault:
                self.faults.give_up(fault)

    def drop_step(self) -> None:
        """Forget the open step: the loader had no batch for it. The next one takes its number."""
        if self._open:
            self.recorder.drop_step()
            self.detector.drop_step()

    def range(self, name: str) -> Range | NullRange:
        """Return the range of that name; on another thread than the loop's one that does nothing.

        The steps are the loop's, so what other threads do in the meantime is not recorded.
        Raises ConfigError for a name that is no string.
        """
        if get_ident() != self._loop.thread_id or not self._open:
            return NullRange()
        try:
            return self._ranges[name]
        except (KeyError, TypeError):  # a new name, or one that cannot be
            return new_range(self.recorder, self._ranges, name)

    def log(self, values: Mapping[str, object]) -> None:
        """Log values of the open step, or of the last one when called between steps."""
        if not self._open:
            if self._forked:
                self.faults.logged_in_child()
            else:
                self.faults.logged_too_late()
            return
        began_ns = perf_counter_ns()
        step = self.recorder.step
        if step < 0:
            step = max(self._next_step - 1, self.settings.start_step)
        try:
            self.metrics.log(step, values, began_ns)
        except TrainscopeError:
            raise
        except Exception as fault:
            self.faults.not_logged(fault)
        self.own_ns += perf_counter_ns() - began_ns

    def wrap(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        module_depth: int,
    ) -> None:
        """Hook one model and its optimizers."""
        if not self._open:
            return
        self.hooks.add_model(model, module_depth=module_depth)
        for optimizer in optimizers:
            self.hooks.add_optimizer(optimizer)

    # ---- files --------------------------------------------------------------------------------
    def save(self) -> None:
        """Bring every file up to date, so that a report can be made now."""
        if not self._open:
            return
        self.metrics.flush()
        self.worker.run_now()
        try:
            self._saving.write_info()
            with own_work():
                self._saving.write_state()
        except OSError as fault:
            self.faults.not_saved(fault)

    # ---- the end ------------------------------------------------------------------------------
    def _stages(self) -> list[Callable[[], None]]:
        return [
            self.recorder.close_all,
            self.hooks.remove,
            self.detector.stop,
            self._close_capture,
            self.metrics.close,
            self.worker.close,
            self._saving.write_info,
            self._saving.write_state,
            self.directory.close,
        ]

    def _close_capture(self) -> None:
        if self.capture is not None:
            ended = self._next_step - 1
            self.capture.close(ended if ended >= self.settings.start_step else None)

    def close(self) -> None:
        """End the recording: hooks out, everything written; raises no ``Exception``.

        Later calls do nothing, but one after a ``KeyboardInterrupt`` does what was left to do.
        """
        self._open = False
        closing = self._closing
        if closing is None:
            return
        faults = closing.run(self._at_end)  # a SIGTERM meanwhile waits for the end of it
        if faults and not closing.closed:
            self._at_end = at_end(self.close)  # then there may be memory, or a shallower stack
        for fault in faults:
            self.faults.not_saved(fault)

    def drop_after_fork(self) -> None:
        """In a forked child: record nothing, and leave the parent's files alone."""
        self._open = False
        self._forked = True
        if self._closing is not None:
            self._closing.forget()
        self.recorder.abandon()
