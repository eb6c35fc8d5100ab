"""A judgement as text, for a terminal and a CI log."""

from __future__ import annotations

from collections.abc import Iterator

from trainscope.report.gate.judgement import Breach, Judgement
from trainscope.report.text_parts import plain
from trainscope.report.wording import count_of

__all__ = ["render"]


def render(judgement: Judgement) -> str:
    """One line of verdict, then each breach with its advice, then what is gone and what is said."""
    return plain_lines([_verdict(judgement), *_lines(judgement)])


def plain_lines(lines: list[str]) -> str:
    """Lines without control characters, each ended."""
    return "".join(f"{plain(line)}\n" for line in lines)


def _verdict(judgement: Judgement) -> str:
    if judgement.passed:
        return f"passed: no new sync, {count_of(judgement.known, 'known one')}, no budget exceeded"
    counts: dict[str, int] = {}
    for breach in judgement.breaches:
        counts[breach.what] = counts.get(breach.what, 0) + 1
    return "failed: " + ", ".join(_counted(what, count) for what, count in counts.items())


def _counted(what: str, count: int) -> str:
    return {
        "new sync": count_of(count, "new sync"),
        "one more line": f"{count_of(count, 'known sync')} on more lines",
        "more often": f"{count_of(count, 'known sync')} more often",
        "budget": f"{count_of(count, 'budget')} exceeded",
    }[what]


def _lines(judgement: Judgement) -> Iterator[str]:
    for breach in judgement.breaches:
        yield ""
        yield from _breach(breach)
    if judgement.gone:
        yield ""
        many = count_of(len(judgement.gone), "sync")
        yield f"{many} of the baseline did not come; --update drops what is gone:"
        for known in judgement.gone:
            yield f"  {known.file} in {known.function}: {known.source} [{known.kind}]"
    if judgement.notes:
        yield ""
    for note in judgement.notes:
        yield f"note: {note}"
    if any(breach.what != "budget" for breach in judgement.breaches):
        yield ""
        yield (
            "A sync that has to stay: put it under `with ts.allow_sync(reason):`, or accept it "
            "into the baseline with --update."
        )


def _breach(breach: Breach) -> Iterator[str]:
    if breach.what == "budget":
        yield f"budget {breach.where}: {breach.words}"
        return
    yield f"{breach.what}: {breach.where} [{breach.code} {breach.kind}], {breach.words}"
    if breach.source:
        yield f"    {breach.source}"
    if breach.advice:
        yield f"  {breach.advice}"
