"""What torch's compiler and TorchScript know of functions by identity, kept right meanwhile."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from trainscope.sync.methods import Function

__all__ = ["Tables"]

_PACKAGE = "trainscope.sync"


class Tables:
    """Keeps both compilers working while functions of the torch namespace are replaced."""

    def __init__(self) -> None:
        self._scripted: list[int] = []

    def fill(self) -> None:
        """Prepare the compiler; to be called while nothing is replaced.

        It fills its tables once, from the names in the torch namespace: were that to happen
        during a dry run, it would know our functions and, after the dry run, not torch's.
        """
        rules: Any = importlib.import_module("torch._dynamo.trace_rules")
        for name in ("get_torch_obj_rule_map", "get_tensor_method"):
            fill: Callable[[], object] = getattr(rules, name, lambda: None)
            fill()
        _run_our_frames_as_they_are()

    def add(self) -> None:
        """Let TorchScript take each replaced factory for the function that it stands for."""
        known = _scriptable()
        for owner in (torch, torch.fft, torch.nn.functional):
            for ours in vars(owner).values():
                if isinstance(ours, Function):
                    operator = known.get(id(getattr(ours, "__wrapped__", None)))
                    if operator is not None:
                        known[id(ours)] = operator
                        self._scripted.append(id(ours))

    def remove(self) -> None:
        """Take our entries out again."""
        known = _scriptable()
        while self._scripted:
            known.pop(self._scripted.pop(), None)


def _scriptable() -> dict[int, str]:
    """Return TorchScript's operators by the identity of their Python functions."""
    builtins: Any = importlib.import_module("torch.jit._builtins")
    return builtins._get_builtin_table()


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(_PACKAGE + ".")


def _run_our_frames_as_they_are() -> None:
    """Let torch.compile not compile our functions where it runs them beside its graphs.

    After a graph break it compiles whatever Python frame comes next; ours would be compiled as if
    within a graph, where they step aside. What a graph inlines is not touched by this.
    """
    frames: Any = importlib.import_module("torch._dynamo.eval_frame")
    for name, module in list(sys.modules.items()):
        if _is_ours(name):
            for code in _codes(vars(module).values(), name):
                frames.skip_code(code)


def _codes(values: Any, module: str) -> Iterator[CodeType]:
    """Give the code of every function and method that `module` defines, with what they nest."""
    for value in values:
        value = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(value, FunctionType) and value.__module__ == module:
            yield from _nested(value.__code__)
        elif isinstance(value, type) and value.__module__ == module:
            yield from _codes(vars(value).values(), module)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
