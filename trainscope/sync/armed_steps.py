"""Over which steps the detector was whole, and where not and why."""

from __future__ import annotations

__all__ = ["ArmedSteps"]

_KEPT = 64
"""Stretches listed; a program that disarms more often is told how many more there were."""


class ArmedSteps:
    """Counts steps that were whole at both ends; joins the others into stretches."""

    def __init__(self) -> None:
        self.count = 0
        self.running: int | None = None
        """The step whose end has not been seen yet."""
        self._stretches: list[tuple[int, int, str]] = []
        self._more = 0
        self._before: str | None = None

    def begin(self, step: int, hidden: str | None) -> None:
        """Begin `step`; `hidden` is what disarmed the detector since the last call, or None."""
        if hidden is None and self.running is not None:
            self.running = step  # first: an interrupt may lose a step, not count it twice
            self.count += 1
        else:
            self.end(hidden)
            self.running = step

    def end(self, hidden: str | None) -> None:
        """End the running step, if any."""
        step, self.running = self.running, None
        if step is None:
            self._before = hidden if not self.count and not self._stretches else self._before
        elif hidden is None:
            self.count += 1
        else:
            self._add(step, hidden)

    def _add(self, step: int, reason: str) -> None:
        if self._stretches:
            first, last, known = self._stretches[-1]
            if known == reason and step == last + 1:
                self._stretches[-1] = (first, step, reason)
                return
        if len(self._stretches) < _KEPT:
            self._stretches.append((step, step, reason))
        else:
            self._more += 1

    def disarmed(self) -> tuple[str, ...]:
        """Return the stretches in words, as ``steps 120-124: why``."""
        words = [
            f"step {first}: {reason}" if first == last else f"steps {first}-{last}: {reason}"
            for first, last, reason in self._stretches
        ]
        if self._more:
            words.append(f"{self._more} more steps")
        return tuple(words)

    def disarmed_before(self) -> str | None:
        """Why it was not whole before the first step, unless the first stretch says the same."""
        begun_with = self._stretches[0][2] if self._stretches else None
        return None if self._before == begun_with else self._before
