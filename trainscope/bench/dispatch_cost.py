"""On the CPU: what a function's operations would cost if they had nothing to compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainscope.bench.subject import Subject
from trainscope.bench.timers import Timer

__all__ = ["ops_ns"]


class _Counting(TorchDispatchMode):
    """Counts operations; compiled code stays compiled under it, and counts as none."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.ops = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        self.ops += 1
        return func(*args, **(kwargs or {}))


def ops_ns(subject: Subject, timer: Timer) -> float:
    """Operations of one call times the cost of one operation on one element, now."""
    if subject.prepare is not None:
        subject.prepare()
    counting = _Counting()
    with counting:
        subject.call()
    one = torch.ones(1, device=timer.device)
    tiny = Subject("one element", one.neg)
    return counting.ops * min(timer.wall_ns(tiny, 100) for _ in range(5))
