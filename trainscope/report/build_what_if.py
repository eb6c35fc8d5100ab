"""The replay's part of a report, and what it says of single lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trainscope.analysis.replay import what_if as replay
from trainscope.analysis.window_site import WindowSite
from trainscope.catalogue.advice import advice
from trainscope.catalogue.kinds import KINDS
from trainscope.catalogue.snippets import snippet
from trainscope.report.model import Baseline, Finding, Removal, WhatIf
from trainscope.report.model_times import NS_PER_MS
from trainscope.report.steps_words import of_several_loops
from trainscope.report.wording import duration
from trainscope.trace.paths import relative_path

__all__ = [
    "MIN_GAIN",
    "LineKey",
    "as_what_if",
    "gain_findings",
    "gains_by_line",
    "gains_by_site",
    "site_words",
    "with_kind",
]

MIN_GAIN = 0.01
"""Share of a step from which on a gain is worth a word; less is within what a replay can miss."""
_ONE_LOOP = "the window's steps, of one of the loops, stand for the steps of all"
LineKey = tuple[str, int, str]
"""File, line and kind of a wait."""


def site_words(site: WindowSite, cwd: str | None) -> str:
    """``train.py:42``, or as much as the trace tells."""
    if site.file is not None and site.line_is == "wait":
        return f"{relative_path(site.file, cwd)}:{site.line}"
    return site.place


def with_kind(words: str, site: WindowSite) -> str:
    """``train.py:42 (tolist)``: the words of a site whose line waits in other ways too."""
    return f"{words} ({site.kind})"


def as_what_if(found: replay.WhatIf, cwd: str | None, counted_by: str | None = None) -> WhatIf:
    """The report's words for a replay; ``counted_by`` says which loops the steps are turns of."""
    words = _apart(found, cwd)
    assumptions = list(found.assumptions)
    if of_several_loops(counted_by):
        assumptions.append(_ONE_LOOP)
    return WhatIf(
        baseline=_baseline(found),
        removals=[
            Removal(
                sites="all" if each.what == "all" else [words[site] for site in each.sites],
                step_ms=each.step_ns / NS_PER_MS,
                speedup=each.speedup,
                band=each.band,
                replaced_by=list(dict.fromkeys(each.replaced_by)),
            )
            for each in found.removals
        ],
        cannot_tell=found.cannot_tell,
        drifted=found.drifted,
        kept=[words[site] for site in found.kept],
        assumptions=assumptions,
    )


def _apart(found: replay.WhatIf, cwd: str | None) -> dict[WindowSite, str]:
    """The words of each site, with its kind where the same line waits in several ways."""
    sites = {site for each in found.removals for site in each.sites} | {*found.kept}
    words = {site: site_words(site, cwd) for site in sites}
    times = Counter(words.values())
    return {
        site: said if times[said] == 1 else with_kind(said, site) for site, said in words.items()
    }


def _baseline(found: replay.WhatIf) -> Baseline | None:
    if found.drift is None or found.replayed_step_ns is None:
        return None
    measured, wait_ns = found.measured_step_ns, found.measured_wait_ns
    return Baseline(
        measured_step_ms=None if measured is None else measured / NS_PER_MS,
        measured_wait_ms=None if wait_ns is None else wait_ns / NS_PER_MS,
        replayed_step_ms=found.replayed_step_ns / NS_PER_MS,
        drift=found.drift,
        calibrated=found.calibrated,
    )


def gains_by_site(found: replay.WhatIf | None) -> dict[WindowSite, float]:
    """Gain per step in ms of removing each site alone, for the sites looked at."""
    return {each.sites[0]: _gain_ms(each) for each in _alone(found)}


def gains_by_line(found: replay.WhatIf | None) -> dict[LineKey, float]:
    """The same for the lines that the live detector saw, by file, line and kind."""
    gains: dict[LineKey, float] = {}
    for each in _alone(found):
        live = each.sites[0].live
        if live is not None:  # of several places on one line the one that gains most
            gains.setdefault((live.file, live.line, live.kind), _gain_ms(each))
    return gains


def gain_findings(found: replay.WhatIf | None, cwd: str | None) -> Iterator[Finding]:
    """One finding for each site whose removal alone gains something, for a trace without a run."""
    for each in _alone(found):
        site = each.sites[0]
        gain_ms = _gain_ms(each)
        kind = KINDS.get(site.kind)
        if kind is None or each.speedup < 1 + MIN_GAIN:
            continue
        where = site_words(site, cwd)
        low, high = each.band
        yield Finding(
            code=kind.code,
            title=f"{where}: {kind.title}",
            site=where,
            gain_ms_per_step=gain_ms,
            evidence=(
                f"replayed without it a step takes {duration(each.step_ns / NS_PER_MS)}, "
                f"{each.speedup:.2f}x ({low:.2f}x to {high:.2f}x)"
            ),
            advice=advice(site.kind, source="", phase=site.phase, during="training", via=None),
            snippet=snippet(site.kind, ""),
        )


def _alone(found: replay.WhatIf | None) -> Iterator[replay.Removal]:
    if found is not None:
        yield from (each for each in found.removals if each.what == "one")


def _gain_ms(removal: replay.Removal) -> float:
    return removal.step_ns * (removal.speedup - 1) / NS_PER_MS
