"""The replay's section of a text report: what taking syncs out gains, and what else was found."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from trainscope.report.model import Finding, Removal, Report, WhatIf
from trainscope.report.replay_trust import trust_in_words
from trainscope.report.text_parts import INDENT, hanging, heading, plain, table
from trainscope.report.wording import duration

__all__ = ["findings_section", "taken_out", "what_if_section"]

MOST_FINDINGS = 12
_WIDE = 72
"""Columns from which a table has room for the band."""


def what_if_section(report: Report, width: int) -> Iterator[RenderableType]:
    """The removals of the replay, how far it is to be trusted, and what stands in their place."""
    what_if = report.what_if
    if what_if is None:
        return
    yield heading("What taking syncs out gains, replayed from the captured window")
    if what_if.cannot_tell is not None:
        yield hanging("", plain(f"cannot tell: {what_if.cannot_tell}"))
    if what_if.removals:
        yield _removals(what_if, width)
        for words in _in_their_place(what_if):
            yield hanging("- ", plain(words))
    if what_if.kept:
        yield hanging("- ", plain(f"kept, the program needs it: {', '.join(what_if.kept)}"))
    if what_if.baseline is not None:
        yield hanging("", trust_in_words(what_if))
    for words in what_if.assumptions:
        yield hanging("- ", plain(f"assumed: {words}"))


def findings_section(report: Report) -> Iterator[RenderableType]:
    """What the captured window shows beside syncs; the syncs too where no table has them."""
    known = report.run.source == "run"
    shown = [each for each in report.findings if _is_shown(each, syncs_have_a_table=known)]
    if not shown:
        return
    yield heading("Findings")
    for finding in shown[:MOST_FINDINGS]:
        yield hanging("", plain(f"{finding.code} {finding.title}"), style="bold")
        yield hanging("", plain(finding.evidence), indent=2 * INDENT)
        yield hanging("→ ", plain(finding.advice), indent=2 * INDENT, style="green")
        for line in (finding.snippet or "").splitlines():
            yield hanging("", plain(line), indent=3 * INDENT, style="yellow")
    if len(shown) > MOST_FINDINGS:
        yield hanging("", f"and {len(shown) - MOST_FINDINGS:,} more: --format json lists all")


def _is_shown(finding: Finding, *, syncs_have_a_table: bool) -> bool:
    if finding.code.startswith("TS5"):
        return False  # in the sections about captures and about what could not be seen
    return not (syncs_have_a_table and finding.code.startswith("TS1"))


def _removals(what_if: WhatIf, width: int) -> RenderableType:
    wide = width >= _WIDE
    grid = table("without", "step", "speedup", *(("may be",) if wide else ()))
    for removal in what_if.removals:
        low, high = removal.band or (removal.speedup, removal.speedup)
        grid.add_row(
            Text(plain(taken_out(removal))),
            duration(removal.step_ms),
            f"{removal.speedup:.2f}x",
            *((f"{low:.2f}x to {high:.2f}x",) if wide else ()),
        )
    return grid


def taken_out(removal: Removal) -> str:
    """The syncs that a row of the table is without."""
    if removal.sites == "all":
        return "all of them"
    few = "the fewest that keep most of it: " if len(removal.sites) > 1 else ""
    return few + ", ".join(removal.sites)


def _in_their_place(what_if: WhatIf) -> Iterator[str]:
    """What replaces the syncs, each way once."""
    ways = dict.fromkeys(way for removal in what_if.removals for way in removal.replaced_by)
    yield from (f"a wait taken out is replaced by {way}" for way in ways)
