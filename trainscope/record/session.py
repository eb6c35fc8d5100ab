"""One recording: recorder, detector, capture, metrics and files, held together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import torch

from trainscope.metrics.fork import drop_in_child
from trainscope.metrics.logger import MetricsLogger
from trainscope.metrics.sinks import Jsonl, SinkContext
from trainscope.metrics.worker import Worker
from trainscope.notice import say
from trainscope.record import nvtx
from trainscope.record.capture import Capture
from trainscope.record.closing import Closing
from trainscope.record.exit import Handle, at_end
from trainscope.record.faults import Faults
from trainscope.record.hooks import Hooks
from trainscope.record.loop_calls import LoopCalls
from trainscope.record.recorder import Recorder
from trainscope.record.saving import Saving
from trainscope.record.settings import Settings
from trainscope.record.world import World, this_process
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

    def __init__(self, settings: Settings, sinks: Sequence[Sink]) -> None:
        self.settings = settings
        self.counted_by: str | None = None
        world = this_process()
        self.directory = _made_directory(settings, world)
        self.faults = Faults(self.directory.path, self.close)
        self.recorder = Recorder(domain=nvtx.open_domain())
        loop = self.recorder.loop
        self.detector = SyncDetector(settings.sync, dry_run=settings.dry_run, loop=loop)
        self.capture = (
            None
            if settings.schedule is None
            else Capture(settings.schedule, self.directory.rank_dir, with_stack=settings.stacks)
        )
        self.noted_waits = NotedWaits()
        self.hooks = Hooks(self.recorder)
        self.worker = Worker()
        self.worker.follow(self.hooks.lulls)
        self.metrics = _made_logger(settings, sinks, self.directory, world, self.worker)
        self.calls = LoopCalls(self)
        loop.h2d = partial(self.calls.range, "h2d")
        self._saving = Saving(self, world, self.faults.not_saved)
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

    def wrap(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        module_depth: int,
    ) -> None:
        """Hook one model and its optimizers."""
        if not self.calls.open:
            return
        self.hooks.add_model(model, module_depth=module_depth)
        for optimizer in optimizers:
            self.hooks.add_optimizer(optimizer)

    # ---- files --------------------------------------------------------------------------------
    def save(self) -> None:
        """Bring every file up to date, so that a report can be made now."""
        if not self.calls.open:
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
            self.capture.close(self.calls.last_step)

    def close(self) -> None:
        """End the recording: hooks out, everything written; raises no ``Exception``.

        Later calls do nothing, but one after a ``KeyboardInterrupt`` does what was left to do.
        """
        closing = self._closing
        if closing is None:
            return
        self.calls.open = False
        faults = closing.run(self._at_end)  # a SIGTERM meanwhile waits for the end of it
        if faults and not closing.closed:
            self._at_end = at_end(self.close)  # then there may be memory, or a shallower stack
        for fault in faults:
            self.faults.not_saved(fault)

    def drop_after_fork(self) -> None:
        """In a forked child: record nothing, and leave the parent's files alone."""
        self.calls.open = False
        self.calls.forked = True
        if self._closing is not None:
            self._closing.forget()
        self.recorder.abandon()


def _made_directory(settings: Settings, world: World) -> RunDirectory:
    directory = RunDirectory.create(
        settings.run_dir,
        rank=world.rank,
        world_size=world.size,
        launch_id=world.launch_id,
    )
    if directory.moved_from is not None and world.rank == 0:
        say(
            f"trainscope: {directory.moved_from} is not empty, so this run goes to {directory.path}"
        )
    return directory


def _made_logger(
    settings: Settings,
    sinks: Sequence[Sink],
    directory: RunDirectory,
    world: World,
    worker: Worker,
) -> MetricsLogger:
    return MetricsLogger(
        [Jsonl(), *sinks],
        context=SinkContext(
            run_dir=directory.path,
            rank_dir=directory.rank_dir,
            rank=world.rank,
            world_size=world.size,
            run_name=directory.path.name,
        ),
        worker=worker,
        every=settings.every,
        reduce=settings.reduce,
        stop_on_nan=settings.stop_on_nan,
    )
