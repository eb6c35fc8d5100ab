"""Steps of a window: which stretches of a captured trace are turns of the training loop."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.launched_by import calls_of_ops, values_at
from trainscope.analysis.nesting import depths
from trainscope.trace.window import Column, Spans, Window

__all__ = ["WindowSteps", "find_steps"]

_PROFILER = re.compile(r"ProfilerStep#(\d+)")
_OURS = re.compile(r"(?:trainscope(?:: ?|/|@))?step (\d+)(?:@trainscope)?")
_OTHERS = re.compile(
    r"(?:epoch[ _#:=-]*\d+[ ,_/:-]*)?(?:global|train|training|optimizer|opt)?[ _-]?"
    r"(?:step|iteration|iter|itr|batch)[ _#:=-]*(?:\[|\()?(\d+)(?:\]|\))?",
    re.IGNORECASE,
)
_BATCH = re.compile(r"(?:.*[\]._ ])?(?:run_training_batch|training_batch|train_step|training_step)")
_OPTIMIZER = re.compile(r"Optimizer\.step#.*")
_WHOLE = 0.9
"""Share of a turn that the ranges taken for steps cover at least where the last is a whole step."""
_APART = 0.1
"""Share of a step from which on the time until the next one is no part of the step."""
_APART_NS = 200_000
"""Shorter ones are what ending a step and beginning the next takes under a profiler."""
_NO_TURN = re.compile(r"Optimizer\.zero_grad#.*|(?:Pg|PG|nccl|c10d|record_param_comms).*")


@dataclass(frozen=True, eq=False)
class WindowSteps:
    """The steps of one thread in a window, in time order, none inside another."""

    number: Column
    """The number in the range's name; counted from 0 where names have none or all the same."""
    start_ns: Column
    end_ns: Column
    """End of the range itself, which may be less than a whole turn."""
    period_ns: Column
    """From its start to the next step's, or to its own end where ``apart`` says that something else
    came between; -1 for the last, and where it is not known that the next one follows."""
    thread: int
    """A place in ``Window.threads``; -1 without steps."""
    found_by: str
    """What was taken for a step, in words; empty without steps."""
    cannot_tell: str = ""
    """Why there are no steps, in words; empty with steps."""
    rows: Column | None = None
    """Rows of ``Window.ranges`` that the steps are."""
    apart: NDArray[np.bool_] | None = None
    """Where the program did something else until the next step; None where that is not known."""

    @property
    def follows(self) -> NDArray[np.bool_]:
        """Whether the next step begins where this one ends."""
        known: NDArray[np.bool_] = self.period_ns >= 0
        return known if self.apart is None else known & ~self.apart

    def __len__(self) -> int:
        return len(self.number)

    def first(self, count: int) -> WindowSteps:
        """The first steps, so many at most."""
        return replace(
            self,
            number=self.number[:count],
            start_ns=self.start_ns[:count],
            end_ns=self.end_ns[:count],
            period_ns=self.period_ns[:count],
            rows=None if self.rows is None else self.rows[:count],
            apart=None if self.apart is None else self.apart[:count],
        )

    @property
    def covered(self) -> float:
        """How much of a turn its range covers, the median; 1 where no turn is known.

        Where it is little, the last step, whose turn is not known, is no whole one.
        """
        known = self.period_ns > 0
        if not known.any():
            return 1.0
        length = (self.end_ns - self.start_ns)[known]
        return float(np.median(np.minimum(length / self.period_ns[known], 1.0)))

    @property
    def until_ns(self) -> Column:
        """Where a step's time ends: at the next start where that follows, else at its own end."""
        return np.where(self.period_ns >= 0, self.start_ns + self.period_ns, self.end_ns)

    def at(self, time_ns: Column) -> Column:
        """The place of the step in whose time each moment falls; -1 for none."""
        if not len(self):
            return np.full(len(time_ns), -1, dtype=np.int64)
        place = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        inside = (place >= 0) & (time_ns < self.until_ns[np.maximum(place, 0)])
        return np.where(inside, place, -1)

    def of_calls(self, window: Window) -> Column:
        """The place of the step that made each call, on whichever thread; -1 for none."""
        return self.at(window.calls.start_ns)

    def of_ops(self, window: Window) -> Column:
        """The place of the step whose call enqueued each GPU op, whenever it ran; -1 for none."""
        return values_at(self.of_calls(window), calls_of_ops(window))

    def gpu_period_ns(self, window: Window) -> Column:
        """From the first GPU op that a step enqueued to the next step's; -1 as in ``period_ns``.

        Where the CPU runs ahead in a short window, this is the length of a step and ``period_ns``
        is too short.
        """
        first = np.full(len(self), np.iinfo(np.int64).max)
        step = self.of_ops(window)
        known = step >= 0
        np.minimum.at(first, step[known], window.gpu.start_ns[known])
        has = first < np.iinfo(np.int64).max
        period = np.full(len(self), -1, dtype=np.int64)
        if len(self) > 1:
            good = has[:-1] & has[1:] & self.follows[:-1]
            period[:-1][good] = (first[1:] - first[:-1])[good]
        return period


def find_steps(window: Window) -> WindowSteps:
    """The steps: profiler's, trainscope's or another tool's ranges, else the outermost that repeat.

    Ranges of one thread only: of the one that has most of them. One inside another of its like is
    left out, and one that begins before the last has ended begins at that end.
    """
    ranges = window.ranges
    if not len(ranges):
        return _none("the trace has no ranges: mark the steps (ProfilerStep, trainscope, NVTX)")
    whole = np.flatnonzero(ranges.end_ns > ranges.start_ns)
    used = np.unique(ranges.name_id[whole])
    used = used[(used >= 0) & (used < len(window.names))]
    for pattern, words in (
        (_PROFILER, "ranges ProfilerStep#N"),
        (_OURS, "ranges 'step N'"),
        (_OTHERS, "ranges such as {name!r}"),
        (_BATCH, "ranges {name!r}"),
    ):
        numbers = _numbers(window, used, pattern)
        if numbers:
            found = _of_names(window, whole, numbers, words)
            if len(found):
                return _with_own_ends(found) if pattern is _OURS else found
    return _repeating(window, whole, used)


def _numbers(window: Window, used: Column, pattern: re.Pattern[str]) -> dict[int, int]:
    """By ``name_id`` the number in each name of the pattern; -1 where the name has none."""
    found = {}
    for name_id in used:
        match = pattern.fullmatch(window.names[name_id][:300])
        if match is not None:
            digits = (match.groups() or ("",))[0]
            found[int(name_id)] = int(digits) if digits and len(digits) < 19 else -1
    return found


def _of_names(window: Window, rows: Column, numbers: dict[int, int], words: str) -> WindowSteps:
    ranges = window.ranges
    mine = rows[np.isin(ranges.name_id[rows], list(numbers))]
    mine = mine[ranges.thread[mine] >= 0]
    if not len(mine):
        return _none("")
    thread = _busiest_thread(ranges, mine)
    mine = mine[ranges.thread[mine] == thread]
    mine, start_ns = _apart(ranges, mine)
    if not len(mine):
        return _none("")
    number = np.array([numbers[int(name)] for name in ranges.name_id[mine]], dtype=np.int64)
    if (number < 0).any() or (len(number) > 1 and (number == number[0]).all()):
        number = np.arange(len(mine), dtype=np.int64)
    end_ns = ranges.end_ns[mine]
    period_ns = np.full(len(mine), -1, dtype=np.int64)
    follows = np.diff(number) == 1
    period_ns[:-1][follows] = np.diff(start_ns)[follows]
    name = window.names[int(ranges.name_id[mine[0]])]
    in_vain = _begun_in_vain(window, number, start_ns, end_ns)
    period_ns[:-1][in_vain[1:]] = -1  # an evaluation may come before the next
    kept = ~in_vain
    return WindowSteps(
        number[kept],
        start_ns[kept],
        end_ns[kept],
        period_ns[kept],
        thread,
        words.format(name=name),
        rows=mine[kept],
    )


def _begun_in_vain(
    window: Window, number: Column, start_ns: Column, end_ns: Column
) -> NDArray[np.bool_]:
    """Which steps launched nothing and are followed by another of their number.

    Where steps are inferred one begins with the fetch of its batch, and is none where the epoch is
    over: the next takes its number.
    """
    calls_ns = np.sort(window.calls.start_ns)
    launched = np.searchsorted(calls_ns, end_ns) > np.searchsorted(calls_ns, start_ns)
    return np.append(np.diff(number) == 0, False) & ~launched


def _with_own_ends(steps: WindowSteps) -> WindowSteps:
    """trainscope's steps, which end where it says: what comes until the next may be none's."""
    length_ns = steps.end_ns - steps.start_ns
    until_next_ns = np.append(steps.start_ns[1:] - steps.end_ns[:-1], 0)
    apart = until_next_ns > np.maximum(_APART * length_ns, _APART_NS)
    apart &= steps.period_ns >= 0
    return replace(steps, apart=apart, period_ns=np.where(apart, length_ns, steps.period_ns))


def _busiest_thread(ranges: Spans, rows: Column) -> int:
    """The thread with most of the rows; of equal ones that with most time in them."""
    thread = ranges.thread[rows]
    count = np.bincount(thread)
    spent = np.bincount(thread, weights=ranges.end_ns[rows] - ranges.start_ns[rows])
    return int(np.lexsort((-spent, -count))[0])


def _apart(ranges: Spans, rows: Column) -> tuple[Column, Column]:
    """The rows of one thread that lie in no other one, and where each begins once apart."""
    end_ns = ranges.end_ns[rows]
    before = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], end_ns)))[:-1]
    outside = end_ns > before
    return rows[outside], np.maximum(ranges.start_ns[rows], before)[outside]


def _repeating(window: Window, rows: Column, used: Column) -> WindowSteps:
    """Steps by the outermost range name that repeats on a thread."""
    ranges = window.ranges
    turns = [int(name_id) for name_id in used if not _NO_TURN.fullmatch(window.names[name_id][:80])]
    rows = rows[np.isin(ranges.name_id[rows], turns) & (ranges.thread[rows] >= 0)]
    depth = depths(ranges)[rows]
    optimizer = list(_numbers(window, np.array(turns, dtype=np.int64), _OPTIMIZER))
    by_optimizer = np.isin(ranges.name_id[rows], optimizer)
    for mine, words in (
        (~by_optimizer, "the range {name!r}, the outermost that repeats"),
        (by_optimizer, "the time from one optimizer step to the next ({name!r})"),
    ):
        for level in np.unique(depth[mine]):
            here = rows[mine & (depth == level)]
            chosen = _most_regular(ranges, here)
            if chosen is not None:
                found = _of_names(window, here, {chosen: -1}, words)
                return found if found.covered >= _WHOLE else found.first(len(found) - 1)
    return _none(
        "no range repeats, so where a step begins is not known: mark the steps "
        "(ProfilerStep, trainscope, NVTX)"
    )


def _most_regular(ranges: Spans, rows: Column) -> int | None:
    """The repeating name with most time; of those that come as often, the one that comes first."""
    if not len(rows):
        return None
    rows = rows[ranges.thread[rows] == _busiest_thread(ranges, rows)]
    name, first, inverse = np.unique(ranges.name_id[rows], return_index=True, return_inverse=True)
    count = np.bincount(inverse)
    spent = np.bincount(inverse, weights=ranges.end_ns[rows] - ranges.start_ns[rows])
    repeats: NDArray[np.bool_] = count > 1
    if not repeats.any():
        return None
    most = int(np.argmax(np.where(repeats, spent, -1)))
    alike = np.flatnonzero(count == count[most])
    return int(name[alike[np.argmin(first[alike])]])


def _none(reason: str) -> WindowSteps:
    empty = np.zeros(0, dtype=np.int64)
    return WindowSteps(empty, empty, empty, empty, -1, "", cannot_tell=reason, rows=empty)
