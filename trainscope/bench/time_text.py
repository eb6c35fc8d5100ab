"""Times as a reader wants them."""

from __future__ import annotations

__all__ = ["time_text"]


def time_text(us: float) -> str:
    """Three digits or more, in the unit that leaves one to three of them before the point."""
    unit_us, name = 1e6, "s"
    for below_us, smaller_us, smaller in (
        (0.9995, 1e-3, "ns"),
        (999.5, 1.0, "us"),
        (999.5e3, 1e3, "ms"),
    ):
        if us < below_us:
            unit_us, name = smaller_us, smaller
            break
    value = us / unit_us
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {name}"
