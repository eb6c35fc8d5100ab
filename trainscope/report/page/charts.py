"""Curves of the page as SVG that needs no script: pure functions from numbers to markup."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from trainscope.report.page.history import Series

__all__ = ["curve", "nice_ticks"]

_WIDTH, _HEIGHT = 520, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 8, 22


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """At most ``count`` + 1 round numbers (1, 2 or 5 times a power of ten) in [low, high]."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def curve(series: Series, unit: str = "") -> Markup:
    """The middle of each bucket as a line, from lowest to highest as a band."""
    if not series.step:
        return Markup("")
    low, high = _span(series.low, series.high)
    first, last = series.step[0], max(series.step[-1], series.step[0] + 1)

    def x(step: float) -> float:
        return _LEFT + (step - first) / (last - first) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    up = [f"{x(s):.1f},{y(v):.1f}" for s, v in zip(series.step, series.high, strict=True)]
    down = [f"{x(s):.1f},{y(v):.1f}" for s, v in zip(series.step, series.low, strict=True)]
    line = [f"{x(s):.1f},{y(v):.1f}" for s, v in zip(series.step, series.middle, strict=True)]
    parts = [
        f'<svg class="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(_in_words(series, unit))}">'
    ]
    for tick in nice_ticks(low, high):
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" '
            f'y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
        )
    for tick in nice_ticks(first, last, 5):
        if tick == int(tick):
            parts.append(
                f'<text x="{x(tick):.1f}" y="{_HEIGHT - 6}" text-anchor="middle">'
                f"{int(tick):,}</text>"
            )
    parts.append(f'<text x="{_LEFT - 6}" y="{_HEIGHT - 6}" text-anchor="end">step</text>')
    if len(line) > 1:
        parts.append(f'<polygon class="band" points="{" ".join(up + down[::-1])}"/>')
        parts.append(f'<polyline class="line" points="{" ".join(line)}"/>')
    else:
        cx, cy = line[0].split(",")
        parts.append(f'<circle class="dot" cx="{cx}" cy="{cy}" r="3"/>')
    parts.append("</svg>")
    return Markup("".join(parts))


def _span(lows: Sequence[float], highs: Sequence[float]) -> tuple[float, float]:
    """The range of the axis, a little wider than the values."""
    low, high = min(lows), max(highs)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - margin, high + margin


def _short(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:.6g}"


def _in_words(series: Series, unit: str) -> str:
    return (
        f"{series.name} from {_short(series.middle[0])}{unit} at step {series.step[0]} to "
        f"{_short(series.middle[-1])}{unit} at step {series.step[-1]}, "
        f"lowest {_short(min(series.low))}{unit}, highest {_short(max(series.high))}{unit}"
    )
