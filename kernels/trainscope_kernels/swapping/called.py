"""Which of the replaced functions a method's code calls, found without running it."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from trainscope_kernels.swapping.calls import REPLACED

__all__ = ["NAMES", "called_in", "function_of", "names_in", "replaced_name"]

ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")
BETWEEN = ("CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL")
"""What may stand between the parts of ``F.gelu`` and loads nothing."""
NAMES = {function.__name__ for function in REPLACED}


def replaced_name(value: Any) -> str | None:
    """``F.gelu``, ``F.softmax`` or ``F.scaled_dot_product_attention``, also of a partial of it.

    None for anything else.
    """
    if isinstance(value, functools.partial):
        value = value.func
    return f"F.{value.__name__}" if any(value is each for each in REPLACED) else None


def function_of(value: Any) -> types.FunctionType | None:
    """The function below a property, a static or class method and decorators; None without one."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    # asked of its own dict: some objects have every attribute that is asked for
    if "__wrapped__" in getattr(value, "__dict__", ()):
        value = inspect.unwrap(value)
    return value if isinstance(value, types.FunctionType) else None


def names_in(code: types.CodeType) -> set[str]:
    """Every global and attribute that the code names, functions inside it included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
    return names


def called_in(method: Any) -> set[str]:
    """``replaced_name`` of what the code names; method: as it stands in the class's body.

    ``self.softmax`` is the model's own, whatever it is, and a function that is only called gelu
    is not torch's. An attribute ``softmax`` of anything else is taken for the method of a tensor.
    """
    function = function_of(method)
    if function is None:
        return set()
    code, own = function.__code__, None
    if code.co_argcount and not isinstance(method, staticmethod):
        own = code.co_varnames[0]
    known = {**function.__globals__, **_closure(function)}
    names = map(replaced_name, _loaded(code, known, own))
    return {name for name in names if name is not None}


def _closure(function: types.FunctionType) -> dict[str, Any]:
    known = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            known[name] = cell.cell_contents
        except ValueError:  # its variable has no value yet
            continue
    return known


def _loaded(code: types.CodeType, known: Mapping[str, Any], own: str | None) -> Iterator[Any]:
    """What the code loads that may be a replaced function."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in BETWEEN]
    imported: Any = None
    for place, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            imported = sys.modules.get(step.argval)
        elif step.opname in GLOBAL:
            yield known.get(step.argval)
        elif step.argval in NAMES and step.opname == "IMPORT_FROM":
            yield getattr(imported, step.argval, None)
        elif step.argval in NAMES and step.opname in ATTRIBUTE:
            yield _attribute(steps, place, known, own)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _loaded(constant, known, own)


def _attribute(
    steps: list[dis.Instruction], place: int, known: Mapping[str, Any], own: str | None
) -> Any:
    """What ``torch.nn.functional.gelu`` is, whose last part is loaded at ``place``."""
    names: list[str] = []
    while steps[place].opname in ATTRIBUTE:
        names.insert(0, steps[place].argval)
        place -= 1
    base = steps[place]
    # newer Pythons load two variables at once
    variable = base.argval[-1] if isinstance(base.argval, tuple) else base.argval
    of_tensor = torch.Tensor.softmax if names == ["softmax"] else None
    if base.opname in GLOBAL and variable in known:
        value = known[variable]
        for name in names:
            if not isinstance(value, (types.ModuleType, type)):
                return of_tensor
            value = getattr(value, name, None)
        return value
    if base.opname.startswith("LOAD_"):
        if variable == own:
            return None
        if any(s.opname == "IMPORT_NAME" and s.argval.startswith("torch") for s in steps):
            return getattr(F, names[-1])  # of an F that the function imports itself
    return of_tensor
