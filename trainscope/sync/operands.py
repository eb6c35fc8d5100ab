"""What an operand's text and, for a plain name, its value say about the kind of a wait."""

from __future__ import annotations

import ast
from numbers import Number
from types import FrameType
from typing import Any

import torch

__all__ = ["destination_kind", "element_kind", "index_kind", "source_kind", "stored_kind"]

_LISTS = (ast.List, ast.ListComp, ast.Tuple, ast.GeneratorExp)
_LIST_CALLS = frozenset({"list", "range", "sorted", "tuple"})
_NUMBER_CALLS = frozenset({"abs", "bool", "float", "int", "len", "max", "min", "round", "sum"})
_REDUCTIONS = frozenset({"amax", "amin", "max", "mean", "median", "min", "norm", "prod", "sum"})
_UNKNOWN: Any = object()


def _value(node: ast.expr | None, frame: FrameType) -> Any:
    """Return the value of a plain name or a literal; no attribute is read and no code is run."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        local = frame.f_locals.get(node.id, _UNKNOWN)
        return frame.f_globals.get(node.id, _UNKNOWN) if local is _UNKNOWN else local
    return _UNKNOWN


def _called(node: ast.expr | None) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def element_kind(node: ast.expr | None, frame: FrameType) -> str:
    """Return the kind of ``torch.tensor(node, device="cuda")``."""
    value = _value(node, frame)
    if isinstance(value, torch.Tensor):
        return "item-implicit" if value.is_cuda else "h2d-pageable"
    if isinstance(value, (list, tuple)):
        first = value[0] if value else None
        on_device = isinstance(first, torch.Tensor) and first.is_cuda
        return "item-implicit" if on_device else "h2d-list"
    if isinstance(value, range) or isinstance(node, _LISTS) or _called(node) in _LIST_CALLS:
        return "h2d-list"
    if isinstance(value, Number) or _called(node) in _NUMBER_CALLS:
        return "h2d-scalar"
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp)):
        return "h2d-scalar"
    return "h2d-pageable"


def index_kind(index: ast.expr, frame: FrameType) -> str:
    """Return the kind of reading ``x[index]``."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in parts:
        value = _value(part, frame)
        if isinstance(value, (list, range)) or isinstance(part, (ast.List, ast.ListComp)):
            return "h2d-list"
        if isinstance(value, torch.Tensor):
            if not value.is_cuda:
                return "h2d-pageable"
            if value.dim() == 0 and not value.is_floating_point() and value.dtype != torch.bool:
                return "index"
        if _called(part) in ("argmax", "argmin"):
            return "index"
    return "nonzero"


def stored_kind(index: ast.expr, stored: ast.expr | None, frame: FrameType) -> str:
    """Return the kind of ``x[index] = stored``."""
    by_index = index_kind(index, frame)
    if by_index != "nonzero":
        return by_index
    value = _value(stored, frame)
    if isinstance(value, torch.Tensor) and not value.is_cuda:
        return "h2d-pageable"
    if all(_selects_nothing(part, frame) for part in _parts(index)):
        return "h2d-pageable"
    if isinstance(value, torch.Tensor):
        return "item-implicit" if value.dim() == 0 else "nonzero"
    return "item-implicit" if _is_scalar_tensor(stored) else "nonzero"


def destination_kind(node: ast.expr | None, frame: FrameType) -> str:
    """Return the kind of ``node.copy_(…)``."""
    return "h2d-pageable" if _on_device(node, frame) else "d2h"


def source_kind(node: ast.expr | None, frame: FrameType) -> str:
    """Return the kind of ``node.to(…)`` or ``node.cuda(…)`` that goes to the other side."""
    return "h2d-pageable" if _on_device(node, frame) is False else "d2h"


def _on_device(node: ast.expr | None, frame: FrameType) -> bool | None:
    value = _value(node, frame)
    if isinstance(value, (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)):
        return value.is_cuda
    return None


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _selects_nothing(part: ast.expr, frame: FrameType) -> bool:
    """Return whether an index part is a slice, an ellipsis or a Python number."""
    if isinstance(part, ast.Slice):
        return True
    value = _value(part, frame)
    return value is None or value is Ellipsis or isinstance(value, Number)


def _is_scalar_tensor(node: ast.expr | None) -> bool:
    """Return whether the text shows a tensor of no dimension: a reduction, or a size of ``()``."""
    if not isinstance(node, ast.Call):
        return False
    name = _called(node)
    first = node.args[0] if node.args else None
    if name in _REDUCTIONS:
        return not node.args and not node.keywords
    if name == "tensor":
        return isinstance(first, ast.Constant)
    return isinstance(first, ast.Tuple) and not first.elts
