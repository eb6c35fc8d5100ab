"""What a benchmark is: the same work by several implementations, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One row of a benchmark's table for each impl.

    name: what is computed, on what. impls: by name, each called with what make_inputs returns.
    reference: the key of the impl that the others must agree with. bytes_moved: the least that
    memory must read and write in one call. flops: floating-point operations in one call.
    backward: the gradients of the inputs are timed, and not the call.
    """

    name: str
    impls: dict[str, Callable[..., Any]]
    make_inputs: Callable[[], tuple[Any, ...]]
    reference: str
    bytes_moved: int | None
    flops: int | None
    backward: bool
