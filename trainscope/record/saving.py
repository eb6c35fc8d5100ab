"""What a session writes into its run directory, and when."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainscope.errors import RunDirectoryError
from trainscope.record.facts import counts, run_info
from trainscope.record.row_writer import RowWriter
from trainscope.record.world import World

if TYPE_CHECKING:
    from trainscope.record.session import Session

__all__ = ["Saving"]

SAVE_STATE_EVERY_S = 5.0
"""Files replaced whole, so less often than rows are appended; a kill loses this much of them."""


class Saving:
    """Writes the files of ``session``, from whichever thread asks."""

    def __init__(
        self, session: Session, world: World, not_saved: Callable[[Exception], None]
    ) -> None:
        self._session = session
        self._world = world
        self._not_saved = not_saved
        self._started = (time.time_ns(), time.perf_counter_ns())
        self._traced = sys.gettrace() is not None
        self._rows = RowWriter(session.recorder, session.directory)
        self._state_saved_s = time.monotonic()
        self._noted = 0

    def begin(self) -> None:
        """Write ``run.json`` for the first time.

        Raises:
            RunDirectoryError: nothing can be written there.
        """
        try:
            self.write_info()
        except OSError as fault:
            raise RunDirectoryError(
                f"cannot write to {self._session.directory.path}: {fault.strerror or fault}; "
                "name a place that can be written to"
            ) from fault

    def write_info(self) -> None:
        """Replace ``run.json``."""
        session = self._session
        session.directory.write_info(
            run_info(
                session.settings,
                self._world,
                self._started,
                session.counted_by,
                traced=self._traced,
            )
        )

    def write_new(self) -> None:
        """On the worker: append the finished ranges, now and then replace the rest.

        What goes wrong is told and tried again at the next call: a disk may have room again.
        """
        try:
            self._rows.write()
            if time.monotonic() - self._state_saved_s > SAVE_STATE_EVERY_S:
                self.write_state()
        except Exception as fault:
            self._not_saved(fault)

    def write_state(self) -> None:
        """Replace the files of syncs, metrics, captures and counts."""
        self._state_saved_s = time.monotonic()
        session = self._session
        directory, hooks = session.directory, session.hooks
        directory.write_syncs(session.detector.sites(), session.detector.state())
        directory.write_json("metrics.json", session.metrics.state())
        if session.capture is not None:
            directory.write_json("captures.json", session.capture.state())
        if len(session.noted_waits) > self._noted:
            waits = session.noted_waits.so_far()
            directory.write_json("window_waits.json", waits)
            self._noted = len(waits)
        counted = counts(
            session.recorder,
            session.calls.own_ns,
            hooks.not_seen(),
            rows_refused=self._rows.refused,
            watches_optimizers=hooks.watches_optimizers,
        )
        directory.write_json("counts.json", counted)
