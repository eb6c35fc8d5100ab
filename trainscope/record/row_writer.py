"""From the recorder to ``ranges.i64``, whatever the disk says meanwhile."""

from __future__ import annotations

from trainscope.record.recorder import MAX_WAITING_ROWS, Recorder, Row
from trainscope.trace.run_dir import RunDirectory

__all__ = ["RowWriter"]


class RowWriter:
    """Appends the finished ranges of a recorder to a run directory, on one thread at a time."""

    def __init__(self, recorder: Recorder, directory: RunDirectory) -> None:
        self._recorder = recorder
        self._directory = directory
        self._names_written = 0
        self._waiting: list[Row] = []

    @property
    def waiting(self) -> int:
        """How many ranges the disk has not taken yet."""
        return len(self._waiting)

    def write(self) -> None:
        """Write what is new, the names first.

        What a full disk does not take (OSError) is kept for the next time, as far as memory is
        kept for it; then it is dropped and counted.
        """
        recorder, waiting = self._recorder, self._waiting
        waiting += recorder.take_rows()
        if len(waiting) > MAX_WAITING_ROWS:
            recorder.rows_dropped += len(waiting)
            waiting.clear()
        names = list(recorder.names)
        if len(names) > self._names_written:
            self._directory.write_names(names)
            self._names_written = len(names)
        if waiting:
            self._directory.append_rows(waiting)
            waiting.clear()
