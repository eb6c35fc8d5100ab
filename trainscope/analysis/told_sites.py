"""The sync sites of a trace as far as they are sure: in how many steps, and with what advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from trainscope.catalogue.advice import advice
from trainscope.catalogue.kinds import KINDS
from trainscope.trace.syncs import SyncSite
from trainscope.trace.trace import Trace

__all__ = ["rated_steps", "sites_of"]

_NAMED = ("scope.step", "scope.steps")
_Wait = tuple[str, int, str, str, str | None, bool, str | None]
"""What is the same of a wait whenever it comes."""


def rated_steps(trace: Trace, steps: int) -> int:
    """The steps among which a line's waits are shared out; 0 where it is in doubt what a step is.

    Few of the waits are then in the ``steps`` there are.
    """
    return 0 if trace.info.steps_in_doubt else steps


def sites_of(trace: Trace, steps: int) -> tuple[SyncSite, ...]:
    """The sites of a trace, each with its number of steps only where that is sure.

    An inferred step begins with the first event of a turn, so what waits before it counts as the
    step's before: a line that waits once in every turn is seen twice in some steps and not in
    others. Where all steps have equally many waits of a site, none was shifted. And what the first
    turn of a second loop waits for comes before that loop is known to train: a line that was seen
    between steps as often as it is missing in steps may have been in them all. What an evaluation
    waits for before its first forward comes before its loop is known to evaluate.

    With no step there is nothing that was before the first, and so had "nothing to do".
    """
    sites = trace.syncs if steps else tuple(_advised_in_a_loop(site) for site in trace.syncs)
    if trace.info.counted_by is None or trace.info.counted_by in _NAMED:
        return sites
    sites = _with_first_batches(sites, steps)
    between: Counter[tuple[str, int, str]] = Counter()
    for site in sites:
        if site.during == "between":
            between[site.file, site.line, site.kind] += site.count
    return tuple(
        replace(site, steps=0)
        if site.steps
        and (
            site.count % site.steps
            or site.steps < steps <= site.steps + between[site.file, site.line, site.kind]
        )
        else site
        for site in sites
    )


def _with_first_batches(sites: Sequence[SyncSite], steps: int) -> tuple[SyncSite, ...]:
    """The sites; what waited before a loop was known to evaluate is put to its later turns.

    That is a line of an evaluation that was seen in one step at most: the one before it.
    """
    evaluated = Counter[_Wait]()
    training = Counter[_Wait]()
    for site in sites:
        if site.during == "evaluation":
            evaluated[_same_wait(site)] += site.count
        elif site.during == "training":
            training[_same_wait(site)] += site.steps or steps
    return tuple(
        replace(site, during="evaluation", steps=0)
        if site.during in ("training", "between")
        and training[_same_wait(site)] <= 1 < steps
        and site.count < evaluated[_same_wait(site)]
        else site
        for site in sites
    )


def _same_wait(site: SyncSite) -> _Wait:
    where = (site.file, site.line, site.kind, site.thread, site.via)
    return (*where, site.explicit, site.allowed)


def _advised_in_a_loop(site: SyncSite) -> SyncSite:
    if site.during != "setup" or site.kind not in KINDS:
        return site
    what = advice(site.kind, source=site.source, phase=site.phase, during="training", via=site.via)
    return replace(site, advice=what)
