"""What must be said beside a table of times, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from trainscope.bench.model import Measurement
from trainscope.bench.time_text import time_text

__all__ = ["FLAGGED", "REFUSED", "how", "remarks"]

FLAGGED = "yellow"
REFUSED = "red"


def remarks(rows: Sequence[Measurement]) -> Iterator[Text]:
    """Why a row has no time, its flags, the naive claim and a check that was a loose one."""
    for row in rows:
        if row.refused is not None:
            yield Text(f"{row.name}: refused, {row.refused}", style=REFUSED)
        for flag in row.flags:
            yield Text(f"{row.name}: {flag.code}: {flag.text}", style=FLAGGED)
        naive_us, time = row.first_call_us, row.time
        on_gpu = row.timer == "cuda-events"
        if on_gpu and time is not None and naive_us is not None and naive_us < time.median_us / 2:
            claimed = time.median_us / naive_us
            yield Text(
                f"{row.name}: one call without warm-up and sync would have claimed "
                f"{time_text(naive_us)}, {claimed:.3g} times faster than it is",
                style="dim",
            )
        checked = row.agreement
        if checked is not None and checked.ok and checked.reason is not None:
            yield Text(f"{row.name}: checked by tolerance only, {checked.reason}", style="dim")


def how(rows: Sequence[Measurement]) -> Iterator[Text]:
    """How the first that was timed was timed, and in which state the GPU was then."""
    for row in rows:
        if row.time is None:
            continue
        flushed = "L2 flushed before each call" if row.cache == "cold" else "caches warm"
        calls = "1 call" if row.calls_per_trial == 1 else f"{row.calls_per_trial} calls"
        parts = [f"{row.time.trials} trials of {calls}", row.timer, flushed]
        if row.state is not None:
            known = (
                (row.state.sm_clock_mhz, "SM {:.0f} MHz"),
                (row.state.memory_clock_mhz, "memory {:.0f} MHz"),
                (row.state.temperature_c, "{:.0f} C"),
                (row.state.power_w, "{:.0f} W"),
            )
            parts += [text.format(value) for value, text in known if value is not None]
        yield Text(" · ".join(parts), style="dim")
        return
