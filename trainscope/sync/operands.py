"""What an operand's text and, where a name holds it, its value say about the kind of a wait."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from numbers import Number
from types import FrameType
from typing import Any

import torch

__all__ = [
    "UNKNOWN",
    "called",
    "destination_kind",
    "element_kind",
    "is_number",
    "on_device",
    "source_kind",
    "value_of",
]

_LISTS = (ast.List, ast.ListComp, ast.Tuple, ast.GeneratorExp)
_LIST_CALLS = frozenset({"list", "range", "sorted", "tuple"})
_NUMBER_CALLS = frozenset({"abs", "bool", "float", "int", "len", "max", "min", "round", "sum"})
_ALWAYS_NUMBERS = frozenset({"bool", "float", "int", "item", "len", "round"})
_NUMBER_MODULES = frozenset({"math", "random", "time"})
_MOVES = frozenset({"cpu", "cuda", "item", "numpy", "to", "tolist"})
_MAKERS = frozenset({"empty", "full", "ones", "zeros"})
_STORAGES = frozenset({"TypedStorage", "UntypedStorage"})
UNKNOWN: Any = object()
"""The value of an operand that cannot be had without running code."""


def value_of(node: ast.expr | None, frame: FrameType) -> Any:
    """Return what a literal, a name or an attribute kept in an object holds; no code is run."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        local = frame.f_locals.get(node.id, UNKNOWN)
        return frame.f_globals.get(node.id, UNKNOWN) if local is UNKNOWN else local
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, frame)
        return UNKNOWN if owner is UNKNOWN else _held(owner, node.attr)
    return UNKNOWN


def _held(owner: object, name: str) -> Any:
    """Return an attribute that the object itself keeps; a module's buffers are kept apart."""
    try:
        kept = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return UNKNOWN
    if not isinstance(kept, dict):
        return UNKNOWN
    for names in (kept, kept.get("_buffers"), kept.get("_parameters")):
        if isinstance(names, dict) and name in names:
            return names[name]
    return UNKNOWN


def called(node: ast.expr | None) -> str | None:
    """Return the name of the function or method that an expression calls, if it is a call."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def is_number(node: ast.expr | None, frame: FrameType) -> bool:
    """Return whether an expression is sure to give a Python number, or a tuple of them."""
    value = value_of(node, frame)
    if value is not UNKNOWN:
        return isinstance(value, Number)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand, frame)
    if isinstance(node, ast.BinOp):
        return is_number(node.left, frame) and is_number(node.right, frame)
    if isinstance(node, ast.IfExp):
        return is_number(node.body, frame) and is_number(node.orelse, frame)
    if isinstance(node, ast.Tuple):
        return all(is_number(each, frame) for each in node.elts)
    if isinstance(node, ast.Call):
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in _NUMBER_MODULES:
            return True
        return called(node) in _ALWAYS_NUMBERS
    return False


def on_device(node: ast.expr | None, frame: FrameType) -> bool | None:
    """Return whether an expression gives a tensor on the GPU; None when that is not known."""
    value = value_of(node, frame)
    if isinstance(value, (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)):
        return value.is_cuda
    if value is not UNKNOWN:
        return None
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return on_device(node.value, frame)
    if isinstance(node, ast.BinOp):
        return _any_on_device([node.left, node.right], frame)
    if isinstance(node, ast.UnaryOp):
        return on_device(node.operand, frame)
    if isinstance(node, ast.Call) and _makes(node):
        return _made_on_device(node, frame)
    if isinstance(node, ast.Call) and called(node) not in _MOVES:
        if not isinstance(node.func, ast.Attribute):
            return _any_on_device(node.args, frame)
        owner = on_device(node.func.value, frame)
        return _any_on_device(node.args, frame) if owner is None else owner
    return None


def _makes(call: ast.Call) -> bool:
    """Whether it is ``torch.empty(…)`` or the like."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _MAKERS | _STORAGES:
        return False
    return isinstance(function.value, ast.Name) and function.value.id == "torch"


def _made_on_device(call: ast.Call, frame: FrameType) -> bool | None:
    device = next((word.value for word in call.keywords if word.arg == "device"), None)
    if device is None:  # no default device is a storage's
        return (called(call) or "") in _MAKERS and torch.get_default_device().type != "cpu"
    if isinstance(device, ast.Attribute) and device.attr == "device":
        return on_device(device.value, frame)
    given = value_of(device, frame)
    return None if given in (UNKNOWN, None) else not str(given).startswith("cpu")


def _any_on_device(nodes: list[ast.expr], frame: FrameType) -> bool | None:
    return True if any(on_device(node, frame) for node in nodes) else None


def element_kind(node: ast.expr | None, frame: FrameType) -> str:
    """Return the kind of ``torch.tensor(node, device="cuda")``."""
    value = value_of(node, frame)
    if isinstance(value, torch.Tensor):
        return "item-implicit" if value.is_cuda else "h2d-pageable"
    if isinstance(value, Sequence):
        first = value[0] if value else None
        held = isinstance(first, torch.Tensor) and first.is_cuda
        return "item-implicit" if held else "h2d-list"
    if isinstance(node, _LISTS) or called(node) in _LIST_CALLS or _is_shape(node):
        return "h2d-list"
    if isinstance(value, Number) or called(node) in _NUMBER_CALLS or _is_dimension(node):
        return "h2d-scalar"
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp)):
        return "h2d-scalar"
    return "h2d-pageable"


def _is_shape(node: ast.expr | None) -> bool:
    """Whether it is ``x.shape``, ``x.size()`` or a part of it: numbers of the CPU in a row."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return _is_shape(node.value)
    if isinstance(node, ast.Call):
        return called(node) == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _is_dimension(node: ast.expr | None) -> bool:
    """Whether it is ``x.shape[0]``, ``x.size(0)`` or the like: one number of the CPU."""
    if isinstance(node, ast.Call):
        return called(node) == "size" and bool(node.args)
    return isinstance(node, ast.Subscript) and _is_shape(node.value)


def destination_kind(node: ast.expr | None, frame: FrameType) -> str:
    """Return the kind of ``node.copy_(…)``."""
    return "h2d-pageable" if on_device(node, frame) else "d2h"


def source_kind(node: ast.expr | None, frame: FrameType) -> str:
    """Return the kind of ``node.to(…)`` or ``node.cuda(…)`` that goes to the other side."""
    return "h2d-pageable" if on_device(node, frame) is False else "d2h"
