"""The kind of a wait at ``x[index]`` or ``x[index] = value``, by what can wait there at all.

Silent on the GPU: reading by a GPU tensor of whole numbers; filling under one mask with a number;
storing a GPU value by anything but a mask. (One GPU value under one mask is a fill as well, whose
value is read.) So what waits tells much of what is not known.
"""

from __future__ import annotations

import ast
from numbers import Number
from types import FrameType

import numpy as np
import torch

from trainscope.sync.operands import UNKNOWN, called, is_number, on_device, value_of

__all__ = ["read_kind", "stored_kind"]

_MASKS = (torch.bool, torch.uint8)
_REDUCTIONS = frozenset({"amax", "amin", "max", "mean", "min", "norm", "prod", "std", "sum", "var"})


def read_kind(read: ast.Subscript, frame: FrameType) -> str:
    """Return the kind of reading ``x[index]``."""
    if on_device(read.value, frame) is False:
        return "index"
    kinds = _index_kinds(read.slice, frame)
    # on older torch a mask on the host is copied with a wait
    kinds = ["h2d-pageable" if kind == "host mask" else kind for kind in kinds]
    return _first(kinds, "h2d-list", "h2d-pageable", "index") or "nonzero"


def stored_kind(target: ast.Subscript, stored: ast.expr | None, frame: FrameType) -> str:
    """Return the kind of ``x[index] = stored``."""
    kinds = _index_kinds(target.slice, frame)
    place = on_device(target.value, frame)
    if place is False:
        return "index" if "index" in kinds else "d2h"
    by_index = _first(kinds, "h2d-list", "h2d-pageable", "index")
    if by_index is not None:
        return by_index
    if "mask" in kinds and is_number(stored, frame):
        return "nonzero"  # beside another index: one mask alone would be filled
    value = value_of(stored, frame)
    if is_number(stored, frame) or _is_one_on_host(value):
        return "h2d-scalar"
    if isinstance(value, torch.Tensor) and not value.is_cuda:
        return "h2d-pinned" if value.is_pinned() else "h2d-pageable"
    if len(kinds) == 1 and kinds[0] in ("mask", "unknown") and _is_one(stored, value):
        return "item-implicit"  # a fill under the mask, whose value is read
    if all(kind == "basic" for kind in kinds):
        if on_device(stored, frame):
            return "d2h"  # on one side nothing waits, so x is on the host
        return "h2d-scalar" if _is_element(target, frame) else "h2d-pageable"
    if all(kind in ("basic", "whole numbers", "host mask") for kind in kinds):
        return "h2d-scalar"
    return "nonzero"


def _index_kinds(index: ast.expr, frame: FrameType) -> list[str]:
    value = value_of(index, frame)
    if isinstance(value, tuple):
        return [_kind_of_value(each) for each in value]
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return [_kind_of_part(part, frame) for part in parts]


def _kind_of_part(part: ast.expr, frame: FrameType) -> str:
    if isinstance(part, ast.Slice) or is_number(part, frame):
        return "basic"
    if isinstance(part, (ast.List, ast.ListComp)):
        return "h2d-list"
    if _picks_one(part):
        return "index"
    value = value_of(part, frame)
    return "unknown" if value is UNKNOWN else _kind_of_value(value)


def _kind_of_value(value: object) -> str:
    if isinstance(value, (list, range)):
        return "h2d-list"
    if isinstance(value, np.ndarray):
        return "host mask" if value.dtype == np.bool_ else "h2d-pageable"
    if value is None or isinstance(value, (Number, slice, type(...))):
        return "basic"
    if not isinstance(value, torch.Tensor):
        return "unknown"
    if value.dtype in _MASKS:
        return "mask" if value.is_cuda else "host mask"
    if not value.is_cuda:
        return "basic" if value.dim() == 0 else "h2d-pageable"
    return "index" if value.dim() == 0 else "whole numbers"


def _picks_one(part: ast.expr) -> bool:
    """Return whether the text shows a position of no dimension: ``argmax`` over everything."""
    if not isinstance(part, ast.Call) or called(part) not in ("argmax", "argmin"):
        return False
    function = part.func
    of_torch = isinstance(function, ast.Attribute) and (
        isinstance(function.value, ast.Name) and function.value.id == "torch"
    )
    return len(part.args) == int(of_torch) and not part.keywords


def _is_one_on_host(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_cuda and value.dim() == 0


def _is_one(stored: ast.expr | None, value: object) -> bool:
    """Return whether one value is stored: known, or by its text (a size of ``()``, a reduction)."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    if not isinstance(stored, ast.Call):
        return False
    first = stored.args[0] if stored.args else None
    if called(stored) in _REDUCTIONS:
        return not stored.args and not stored.keywords
    if called(stored) == "tensor":
        return isinstance(first, ast.Constant)
    return isinstance(first, ast.Tuple) and not first.elts


def _is_element(target: ast.Subscript, frame: FrameType) -> bool:
    """Return whether an index of Python numbers picks one element of a tensor that is known."""
    holder = value_of(target.value, frame)
    parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    return (
        isinstance(holder, torch.Tensor)
        and holder.dim() == len(parts)
        and all(is_number(part, frame) for part in parts)
    )


def _first(kinds: list[str], *wanted: str) -> str | None:
    return next((kind for kind in kinds if kind in wanted), None)
