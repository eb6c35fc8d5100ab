"""What each thread may do: a stack of `no_sync` and `allow_sync` blocks per thread."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["Permit", "enter", "here", "leave"]


@dataclass(frozen=True, eq=False)
class Permit:
    """One block: `mode` ``"allow"`` with its reason, or ``"error"`` or ``"warn"``."""

    mode: str
    reason: str | None = None
    shown: dict[Any, Any] = field(default_factory=dict)
    """Which warnings this block has shown, in the form of a module's warnings registry."""


_stacks: dict[int, tuple[Permit, ...]] = {}


def enter(permit: Permit) -> None:
    """Put `permit` in force on this thread."""
    thread_id = threading.get_ident()
    _stacks[thread_id] = (*_stacks.get(thread_id, ()), permit)


def leave(permit: Permit) -> None:
    """Take `permit` out, on whichever thread it was entered, in any order."""
    for thread_id, stack in list(_stacks.items()):
        if permit in stack:
            rest = tuple(other for other in stack if other is not permit)
            if rest:
                _stacks[thread_id] = rest
            else:
                del _stacks[thread_id]


def here() -> Permit | None:
    """Return the innermost block in force for what runs now, or None.

    The autograd engine's own threads work for the thread that is inside ``backward()``.
    """
    if not _stacks:
        return None
    stack = _stacks.get(threading.get_ident())
    if stack is None and torch._C._current_graph_task_id() != -1:
        stack = _of_backward()
    return None if stack is None else stack[-1]


def _of_backward() -> tuple[Permit, ...] | None:
    frames = sys._current_frames()
    for thread_id, stack in list(_stacks.items()):
        frame = frames.get(thread_id)
        if frame is not None and frame.f_code.co_name == "_engine_run_backward":
            return stack
    return None
