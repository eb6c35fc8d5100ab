"""The rows of a comparison, from what was taken of its functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainscope.bench.admission import Admitted
from trainscope.bench.ceilings import COPY
from trainscope.bench.environment import environment
from trainscope.bench.model import Environment, Measurement, Ratio
from trainscope.bench.outcome import Work, by_the_host, measured, state_of
from trainscope.bench.spread import ratio_of_medians
from trainscope.bench.timers import Timer
from trainscope.bench.trials import Taken

__all__ = ["results"]


def results(
    admitted: Sequence[Admitted],
    taken: Sequence[Taken],
    timer: Timer,
    work: Work,
    baseline: str,
) -> dict[str, Any]:
    """The fields ``rows``, ``copy_of_bytes`` and ``environment`` of a comparison."""
    here = environment(timer.device)
    by_name = {each.subject.name: each for each in taken if each.subject.name != COPY}
    copy = next((each for each in taken if each.subject.name == COPY), None)
    with timer.on_device():
        floor_ns = timer.floor_ns()
        state = state_of(taken[0].subject, timer) if taken else None
        common: dict[str, Any] = {"floor_ns": floor_ns, "state": state}
        rows = []
        for each in admitted:
            mine = by_name.get(each.subject.name)
            if mine is None:
                rows.append(_refused(each, timer, here))
                continue
            rows.append(
                measured(
                    mine,
                    timer,
                    work,
                    here,
                    first_call_us=each.first_ns / 1000,
                    agreement=each.agreement,
                    ratio=_ratio(by_name.get(baseline), mine),
                    of_copy=_ratio(copy, mine),
                    flags=each.flags,
                    **common,
                )
            )
        bytes_only = Work(work.bytes_moved, copy_bytes_s=work.copy_bytes_s)
        of_copy = None if copy is None else measured(copy, timer, bytes_only, here, **common)
    return {"rows": tuple(rows), "copy_of_bytes": of_copy, "environment": here}


def _refused(each: Admitted, timer: Timer, here: Environment) -> Measurement:
    return Measurement(
        name=each.subject.name,
        timer=timer.kind,
        cache=timer.cache,
        calls_per_trial=0,
        time=None,
        agreement=each.agreement,
        flags=each.flags,
        refused=each.agreement.reason,
        environment=here,
    )


def _ratio(to: Taken | None, mine: Taken) -> Ratio | None:
    """How many times faster than ``to``, both by the clock that sees all the work of both."""
    if to is None:
        return None
    if by_the_host(to) or by_the_host(mine):
        return ratio_of_medians(to.subject.name, to.wall_ns, mine.wall_ns)
    return ratio_of_medians(to.subject.name, to.times_ns, mine.times_ns)
