"""What a benchmark is: the same work by several implementations, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Case", "is_on_gpu"]


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


def is_on_gpu() -> bool:
    """Whether torch's default device is a GPU, by what it makes a tensor on.

    torch 2.9's ``get_default_device`` fails once a program has taken its default back.
    """
    return torch.empty(0).device.type == "cuda"
