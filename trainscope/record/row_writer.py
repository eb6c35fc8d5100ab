"""From the recorder to ``ranges.i64``, whatever the disk says meanwhile."""

from __future__ import annotations

from trainscope.record.recorder import MAX_WAITING_ROWS, Recorder
from trainscope.record.unsure_rows import FIELDS
from trainscope.trace.run_dir import RunDirectory

__all__ = ["RowWriter"]

_ROWS_AT_ONCE = 1024
"""40 KiB, written whole or not at all: so much more fits on a disk that is nearly full."""


class RowWriter:
    """Appends the finished ranges of a recorder to a run directory, on one thread at a time."""

    def __init__(self, recorder: Recorder, directory: RunDirectory) -> None:
        self._recorder = recorder
        self._directory = directory
        self._names_written = 0
        self._waiting: list[int] = []
        self.refused = 0
        """How many ranges the disk did not take at the last try."""

    def write(self) -> None:
        """Write what is new, the names first.

        What a full disk does not take (OSError) is kept for the next time, as far as memory is
        kept for it; then it is dropped and counted.
        """
        recorder, waiting = self._recorder, self._waiting
        waiting += recorder.take_rows()
        if len(waiting) > MAX_WAITING_ROWS * FIELDS:
            recorder.rows_dropped += len(waiting) // FIELDS
            waiting.clear()
        try:
            names = recorder.names.so_far()
            if len(names) > self._names_written:
                self._directory.write_names(names)
                self._names_written = len(names)
            while waiting:
                at_once = waiting[: _ROWS_AT_ONCE * FIELDS]
                self._directory.append_rows(at_once)
                del waiting[: len(at_once)]
        finally:
            self.refused = len(waiting) // FIELDS
