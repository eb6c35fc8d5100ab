"""What a function moves through memory and keeps there, told from its operations: no counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Traffic", "kept_bytes", "traffic_of"]


class Traffic(NamedTuple):
    """operations: those that read or write memory. bytes_moved: what they take and what they give.

    In eager torch an operation is a kernel, so that is what goes through the GPU's memory, less
    what its cache still holds.
    """

    operations: int
    bytes_moved: int


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations = self.bytes_moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        taken, given = (_tensors(each) for each in ((args, kwargs), out))
        if not _same_memory(taken, given):
            self.operations += 1
            self.bytes_moved += sum(_bytes_of(each) for each in (*taken, *given))
        return out


def traffic_of(fn: Callable[..., Any], *inputs: Any) -> Traffic:
    """The traffic of one call; a view is no operation, and what is expanded is as small as it is.

    An operation in place, which gives what it takes, counts as a view.
    """
    counting = _Counting()
    with counting:
        fn(*inputs)
    return Traffic(counting.operations, counting.bytes_moved)


def kept_bytes(fn: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> int:
    """Bytes that a forward keeps for its backward, its inputs and its output left out."""
    wanted = [x.detach().requires_grad_() for x in inputs]
    saved: list[torch.Tensor] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        saved.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out = fn(*wanted)
    there = {_place(each) for each in (*wanted, out)}
    memory = {_place(x): x.untyped_storage().nbytes() for x in saved}
    return sum(size for place, size in memory.items() if place not in there)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(values) if torch.is_tensor(each)]


def _same_memory(taken: list[torch.Tensor], given: list[torch.Tensor]) -> bool:
    places = {_place(each) for each in taken}
    return bool(given) and all(_place(each) in places for each in given)


def _place(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _bytes_of(x: torch.Tensor) -> int:
    """Of the memory that the elements lie in; what is expanded is there once."""
    elements = 1
    for size, stride in zip(x.shape, x.stride(), strict=True):
        elements *= size if stride else 1
    return elements * x.element_size()
