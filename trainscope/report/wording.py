"""Numbers and places in words, for verdicts, findings and tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["count_of", "duration", "listed", "number_ranges", "places", "range_name", "through"]

_SAID_TWICE = re.compile(r"(?:Optimizer\.\w+|enumerate\(DataLoader\))#(?=\w)")
"""What torch writes before the names of its own ranges: ``Optimizer.step#AdamW.step``."""

_FRAMES = 3
"""Library frames named for one line; a trainer's line has a dozen."""


def duration(ms: float) -> str:
    """A time with three significant digits and the unit that suits it: ``284 µs``, ``20.4 ms``."""
    for factor, unit in ((1e3, "µs"), (1.0, "ms")):
        text = _three_digits(ms * factor)
        if float(text) < 1000:
            return f"{text} {unit}"
    return f"{_three_digits(ms / 1e3)} s"


def _three_digits(value: float) -> str:
    """``0.28``, ``2.84``, ``28.4``, ``284``, ``2840``; below 1 two decimals are enough."""
    if value == 0:
        return "0"
    for limit, decimals in ((9.995, 2), (99.95, 1)):
        if value < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.0f}"


def count_of(number: int, noun: str) -> str:
    """``1 line``, ``3 lines``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def range_name(name: str) -> str:
    """``AdamW.step`` for torch's own ``Optimizer.step#AdamW.step``; any other name as it is."""
    return _SAID_TWICE.sub("", name, count=1) if _SAID_TWICE.match(name) else name


def places(stretches: Sequence[str]) -> str:
    """The steps of ``steps 120-124: why``, put together: ``steps 120-124, steps 130-131``."""
    return ", ".join(stretch.partition(":")[0] for stretch in stretches)


def number_ranges(numbers: list[int]) -> str:
    """``0-3, 7`` for 0, 1, 2, 3, 7."""
    stretches: list[list[int]] = []
    for number in numbers:
        if stretches and number == stretches[-1][1] + 1:
            stretches[-1][1] = number
        else:
            stretches.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in stretches)


def through(via: str | None, vias: Mapping[str, int]) -> str:
    """Which library frames waited for a line: ``through a (30 times), b (10) and 2 other places``.

    ``vias`` is empty where one frame, ``via``, or none made all the waits.
    """
    if not vias:
        return "" if via is None else f"through {via}"
    named: list[str] = []
    for frame, number in list(vias.items())[:_FRAMES]:
        named.append(f"{frame} ({number:,})" if named else f"{frame} ({count_of(number, 'time')})")
    if len(vias) > len(named):
        named.append(count_of(len(vias) - len(named), "other place"))
    return f"through {listed(named)}"


def listed(parts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([*filter(None, [", ".join(parts[:-1])]), *parts[-1:]])
