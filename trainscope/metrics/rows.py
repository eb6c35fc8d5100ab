"""The rows that a generation fills, of one kind on one device each, and where they come from."""

from __future__ import annotations

import torch
from torch import Tensor

from trainscope.metrics.lanes import RowBlock, make_blocks
from trainscope.metrics.split import ROW_LIMIT

__all__ = ["Blocks", "Rows"]

_VIEWS_AT_ONCE = 64


class Blocks:
    """The blocks of all generations: those of one kind are made at its first value."""

    def __init__(self, generations: int) -> None:
        self._count = generations
        self._spare: dict[tuple[torch.device, str], list[RowBlock]] = {}

    def take(self, device: torch.device, kind: str) -> RowBlock:
        """Return a block that no generation has."""
        spare = self._spare.get((device, kind))
        if not spare:
            spare = make_blocks(device, kind, ROW_LIMIT, self._count)
            self._spare[device, kind] = spare
        return spare.pop()


class Rows:
    """A block and how far it is filled."""

    __slots__ = ("address", "block", "note_write", "row_bytes", "used", "views")

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self.note_write = block.note_write
        self.address = block.buffer.data_ptr()
        self.row_bytes = block.buffer.element_size()
        self.used = 0
        self.views: list[Tensor] = []

    def make_views(self, end: int) -> None:
        """Make 0-d views of the rows up to ``end``; they are kept for every later round."""
        while len(self.views) < end:
            start = len(self.views)
            self.views.extend(self.block.buffer[start : start + _VIEWS_AT_ONCE].unbind())
