"""What the first line of a report says of waits outside training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainscope.analysis.gpu_branches import Place, never_with_gpu
from trainscope.analysis.syncs import Line
from trainscope.catalogue.libraries import CHECKPOINT_FRAMES
from trainscope.report.wording import count_of, duration
from trainscope.trace.paths import relative_path
from trainscope.trace.syncs import SyncSite
from trainscope.trace.trace import Trace

__all__ = ["outside_in_words", "places_outside"]

_AMONG_STEPS = ("between", "evaluation")
"""What lies between steps: rollouts of an agent, evaluations, checkpoints."""
_MANY_MORE = 4
"""How many times more waits are worth a word where it is not known how long they are."""


def places_outside(trace: Trace, lines: Sequence[Line]) -> frozenset[Place]:
    """The other lines that wait unasked, none of them while compiling."""
    others = frozenset(
        (site.file, site.line)
        for site in _unasked(trace)
        if site.during not in ("training", "compilation")
    )
    return others - {line.place for line in lines}


def outside_in_words(trace: Trace, lines: Sequence[Line], *, steps_known: bool) -> str | None:
    """Return a sentence, None where nothing waits there; `lines` are those that wait in steps.

    Where most of all that waits is there, as it is when an agent acts step by step, it says so.
    """
    if lines and steps_known:
        mostly = _mostly_outside(trace)
        if mostly is not None:
            return mostly
    outside = len(places_outside(trace, lines))
    if not outside:
        return None
    waits = "would wait" if trace.info.dry_run else "waited"
    return f"{count_of(outside, 'line')} {waits} outside training."


def _mostly_outside(trace: Trace) -> str | None:
    sites = [site for site in _unasked(trace) if site.thread in ("main", "autograd")]
    inside = [site for site in sites if site.during == "training"]
    outside = [site for site in sites if site.during in _AMONG_STEPS]
    timed = all(site.timed for site in (*inside, *outside))

    def amount(site: SyncSite) -> int:
        return site.blocked_ns_total if timed else site.count

    if not timed:  # a checkpoint copies tensor by tensor: the number of its waits says nothing
        outside = [site for site in outside if not (site.via or "").startswith(CHECKPOINT_FRAMES)]
    there, here = sum(map(amount, outside)), sum(map(amount, inside))
    if there <= here * (1 if timed else _MANY_MORE):
        return None
    places: Counter[Place] = Counter()
    for site in outside:
        places[site.file, site.line] += amount(site)
    file, line = places.most_common(1)[0][0]
    most = f"most at {relative_path(file, trace.info.cwd)}:{line}"
    if timed:
        than = f"{duration(there / 1e6)} against {duration(here / 1e6)}"
        return f"The CPU waited longer outside training, {than}, {most}."
    than = f"{there:,} times against {here:,}"
    waits = "would wait" if trace.info.dry_run else "waited"
    return f"The CPU {waits} more often outside training, {than}, {most}."


def _unasked(trace: Trace) -> list[SyncSite]:
    never = never_with_gpu(trace)
    return [
        site
        for site in trace.syncs
        if not site.explicit and site.allowed is None and (site.file, site.line) not in never
    ]
