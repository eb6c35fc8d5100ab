"""Inputs as they were given, put back after a function that changed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from trainscope.bench.model import Flag

__all__ = ["Given"]

_CHANGES = Flag(
    code="changes-inputs",
    text="it writes into its inputs, so later calls, its own and others', start from what it left",
)


class Given:
    """The inputs' tensors and what they held, so that none starts from what another wrote."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        leaves = pytree.tree_leaves(tuple(inputs))
        self._tensors = [each for each in leaves if torch.is_tensor(each)]
        self._memory = [each.detach() for each in self._tensors]
        try:
            self._held = [each.clone() for each in self._memory]
        except torch.OutOfMemoryError:  # what fills half a GPU is timed, and not looked after
            self._held = self._memory

    def restored(self) -> tuple[Flag, ...]:
        """Put back what was changed, and say so."""
        changed = False
        for tensor, memory, held in zip(self._tensors, self._memory, self._held, strict=True):
            if _is_elsewhere(tensor, memory):  # resize_, set_
                tensor.data = memory
                changed = True
            if not _same(memory, held):
                memory.copy_(held)
                changed = True
        return (_CHANGES,) if changed else ()


def _is_elsewhere(tensor: torch.Tensor, memory: torch.Tensor) -> bool:
    if tensor.layout != torch.strided or tensor.is_nested:
        return False
    one, other = (
        (each.shape, each.stride(), each.storage_offset(), each.untyped_storage()._cdata)
        for each in (tensor, memory)
    )
    return one != other


def _same(tensor: torch.Tensor, held: torch.Tensor) -> bool:
    try:
        if torch.equal(tensor, held):
            return True
        # NaN is not equal to itself
        return (tensor.is_floating_point() or tensor.is_complex()) and bool(
            ((tensor == held) | (tensor.isnan() & held.isnan())).all()
        )
    except (RuntimeError, NotImplementedError):  # nothing can be said of such a layout
        return True
