"""One sentence on what changed."""

from __future__ import annotations

from collections.abc import Sequence

from trainscope.report.compare.model import SyncChange, TimeChange
from trainscope.report.wording import count_of, duration

__all__ = ["verdict"]


def verdict(
    step: TimeChange,
    new: Sequence[SyncChange],
    gone: Sequence[SyncChange],
    *,
    comparable: bool,
    watched: bool,
) -> str:
    """What became of the step's time, then of the syncs where both were ``watched``."""
    if not watched:
        return _of_time(step, comparable)
    syncs = [
        count_of(len(found), f"{word} sync")
        for word, found in (("new", new), ("removed", gone))
        if found
    ]
    said = f" {' and '.join(syncs)}." if syncs else " No sync came or went."
    return _of_time(step, comparable) + said


def _of_time(step: TimeChange, comparable: bool) -> str:
    before, after = step.before_ms, step.after_ms
    if before is None or after is None or step.ratio is None:
        return "Step times cannot be compared: one side has none."
    times = f"{duration(before)} before, {duration(after)} after"
    if not comparable:
        return f"Step times cannot be compared ({times})."
    if step.band is None:
        return f"Steps took {times}; whether that is more than noise cannot be told."
    low, high = ((bound - 1) * 100 for bound in step.band)
    interval = f"95 % interval {low:+.1f} to {high:+.1f} %"
    if not step.told:
        return f"Steps took as long as before, within noise: {times}, {interval}."
    word = "slower" if step.ratio > 1 else "faster"
    change = abs(step.ratio - 1) * 100
    return f"Steps are {change:.1f} % {word}: {times}, {interval}."
