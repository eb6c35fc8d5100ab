"""What a subscript does before its operator: it reads scalar indices, and makes tensors of others.

None of it is seen by replacing ``Tensor.__getitem__``, which cannot be undone: see `reads`.
"""

from __future__ import annotations

from types import FrameType

import torch
from torch import Tensor

from trainscope.sync.dry.marks import Made, Marks
from trainscope.sync.implicit import runs_subscript

__all__ = ["note_of_bool", "note_of_list", "scalar_kind"]

_MASKS = (torch.bool, torch.uint8)


def note_of_list(tensor: Tensor, marks: Marks, caller: FrameType) -> None:
    """Remember that a subscript made `tensor`, now lifted, of the Python list it was given.

    Of a NumPy array it makes one over the array's memory, which nothing can resize.
    """
    if tensor.dim() > 0 and tensor.untyped_storage().resizable() and runs_subscript(caller):
        marks.made_index(tensor, Made.OF_LIST)


def note_of_bool(tensor: Tensor, marks: Marks, caller: FrameType) -> None:
    """Remember that a subscript made `tensor` for an index that is one bool: beside its operand."""
    if runs_subscript(caller):
        marks.made_index(tensor, Made.OF_BOOL)


def scalar_kind(tensor: Tensor, caller: FrameType) -> str | None:
    """Return the kind of reading `tensor` as a scalar index; None where no subscript reads it."""
    if not runs_subscript(caller):
        return None
    return "nonzero" if tensor.dtype in _MASKS else "index"
