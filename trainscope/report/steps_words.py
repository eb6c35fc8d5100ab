"""Steps in words, for the text and the page."""

from __future__ import annotations

from trainscope.report.model_times import StepsReport
from trainscope.report.wording import listed

__all__ = ["left_out_in_words", "of_several_loops"]

_LOOPS = " and at "
"""Between the loops that steps were counted of."""


def of_several_loops(counted_by: str | None) -> bool:
    """Whether the steps are turns of more than one loop, as ``counted_by`` says."""
    return _LOOPS in (counted_by or "").partition(";")[0]


def left_out_in_words(steps: StepsReport) -> str:
    """Steps whose times are not counted: ``1 warm-up and 7 captured left out``; "" without any."""
    out = [
        f"{number:,} {what}"
        for number, what in (
            (steps.left_out.warm_up, "warm-up"),
            (steps.left_out.captured, "captured"),
            (steps.left_out.slowed, "with the profiler still in the process"),
        )
        if number
    ]
    return f"{listed(out)} left out" if out else ""
