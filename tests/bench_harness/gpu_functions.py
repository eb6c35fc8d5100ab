"""Functions with a fault each, as a benchmark meets them on a real GPU."""

from __future__ import annotations

import torch

__all__ = ["OnAnotherStream", "manual_gelu", "waits_by_item", "waits_by_synchronize"]


def manual_gelu(x: torch.Tensor) -> torch.Tensor:
    """The chapter's: one kernel for each operation."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def waits_by_item(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.flatten()[0].item()
    return y


def waits_by_synchronize(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch.cuda.synchronize()
    return y


class OnAnotherStream:
    """Doubles on a stream of its own; the current stream waits for it only if asked to."""

    def __init__(self, *, join: bool) -> None:
        self._join = join
        self._stream = torch.cuda.Stream()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        current = torch.cuda.current_stream()
        with torch.cuda.stream(self._stream):
            y = x * 2
        y.record_stream(current)
        if self._join:
            current.wait_stream(self._stream)
        return y
