"""One sentence on what changed."""

from __future__ import annotations

from collections.abc import Sequence

from trainscope.report.compare.model import SyncChange, TimeChange
from trainscope.report.wording import count_of, duration

__all__ = ["verdict"]

_OF_ONE_PROGRAM_PERCENT = 3
"""A host was seen to drift by as much within half a second, so two runs of one program differ by it
however narrow the interval of each is."""
_FEW_PHASES = 3
"""From so many on it is no chance that all of them change as the step does."""


def verdict(
    step: TimeChange,
    phases: Sequence[TimeChange],
    new: Sequence[SyncChange],
    gone: Sequence[SyncChange],
    *,
    comparable: bool,
    watched: bool,
) -> str:
    """What became of the step's time, then of the syncs where both were ``watched``."""
    time = _of_time(step, phases, comparable)
    if not watched:
        return time
    syncs = [
        count_of(len(found), f"{word} sync")
        for word, found in (("new", new), ("removed", gone))
        if found
    ]
    said = f" {' and '.join(syncs)}." if syncs else " No sync came or went."
    return time + said


def _of_time(step: TimeChange, phases: Sequence[TimeChange], comparable: bool) -> str:
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
    like = ", and so is every phase, as if the machine were" if _all_alike(step, phases) else ""
    if change < _OF_ONE_PROGRAM_PERCENT:
        like = ", by no more than two runs of one program may differ"
    return f"Steps are {change:.1f} % {word}{like}: {times}, {interval}."


def _all_alike(step: TimeChange, phases: Sequence[TimeChange]) -> bool:
    """Whether all phases changed with the step, as on a machine that has less to do meanwhile."""
    return len(phases) >= _FEW_PHASES and all(
        phase.told and ((phase.ratio or 0) > 1) is ((step.ratio or 0) > 1) for phase in phases
    )
