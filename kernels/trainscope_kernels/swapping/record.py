"""What ``swap`` changed, and what it left and why."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Swap", "Swaps"]

ELSEWHERE = (
    "calls of F.gelu, F.softmax and F.scaled_dot_product_attention that other functions make while "
    "the model runs: replaced alike, and not listed"
)


@dataclass(frozen=True)
class Swap:
    """One place in a model."""

    where: str
    """Name of the module (``blocks.0.mlp.1``), or class and function that calls."""
    was: str
    """``nn.GELU(approximate='tanh')``, or ``F.scaled_dot_product_attention``."""
    now: str | None
    """What runs there since; None where nothing was changed."""
    why_not: str | None = None
    """Why it was left."""


class Swaps(list[Swap]):
    """The places in the order of the model's modules; printed, a line each."""

    calls_elsewhere: bool = False
    """Whether calls are replaced, too, that functions outside of the model's classes make while
    it runs; no place is listed for them."""

    @property
    def changed(self) -> list[Swap]:
        """Those found where another kernel runs now."""
        return [each for each in self if each.now is not None]

    @property
    def left(self) -> list[Swap]:
        """Those that are as they were."""
        return [each for each in self if each.now is None]

    def __str__(self) -> str:
        """One line a place."""
        lines = [
            f"{each.where}: {each.was} -> {each.now}"
            if each.now is not None
            else f"{each.where}: {each.was} left, {each.why_not}"
            for each in self
        ]
        if self.calls_elsewhere:
            lines.append(ELSEWHERE)
        return "\n".join(lines) or "nothing to swap"
