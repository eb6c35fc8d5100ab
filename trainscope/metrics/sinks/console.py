"""The newest values as a line in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trainscope.errors import ConfigError
from trainscope.metrics.records import MetricRecord, SinkContext

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

__all__ = ["Console"]


class Console:
    """Prints the newest record as one line on standard error, at most ``per_second`` a second.

    It prints plain lines and takes over no part of the screen, so it mixes with the prints and
    progress bars of the program. Only rank 0 prints. The last record is always printed.

    Args:
        per_second: lines a second at most.
        names: metrics to show, in this order; default all.
        console: a ``rich.console.Console`` to print on.
        clock_s: where the time comes from, in seconds.

    Raises:
        ConfigError: ``per_second`` is not above 0.
    """

    name = "console"

    def __init__(
        self,
        per_second: float = 1.0,
        *,
        names: Sequence[str] | None = None,
        console: RichConsole | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        if not per_second > 0:
            raise ConfigError(f"Console: per_second is {per_second!r}; it must be above 0")
        self._period_s = 1.0 / per_second
        self._names = names
        self._console = console
        self._clock_s = clock_s
        self._next_s = 0.0
        self._unshown: MetricRecord | None = None
        self._silent = False

    def open(self, run: SinkContext) -> None:
        """Find the terminal."""
        from rich.console import Console as RichConsole

        self._silent = run.rank != 0
        self._next_s = self._clock_s()
        if self._console is None:
            # as a line in a notebook too: rich would make a separate output of each there
            self._console = RichConsole(stderr=True, highlight=False, force_jupyter=False)

    def write(self, records: Sequence[MetricRecord]) -> None:
        """Print the newest record if the last line is old enough."""
        self._unshown = records[-1]
        now_s = self._clock_s()
        if now_s >= self._next_s:
            self._next_s = now_s + self._period_s
            self._show()

    def close(self) -> None:
        """Print the last record if it was held back."""
        self._show()

    def _show(self) -> None:
        record, self._unshown = self._unshown, None
        if record is None or self._silent or self._console is None:
            return
        names = record.values if self._names is None else self._names
        shown = [f"{n} {_short(record.values[n])}" for n in names if n in record.values]
        # soft_wrap: a long line stays one line when the output is a file
        self._console.print(f"step {record.step}  {'  '.join(shown)}", markup=False, soft_wrap=True)


def _short(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.5g}"
