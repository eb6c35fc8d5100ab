"""What torch's compiler and TorchScript know of functions by identity, kept right meanwhile."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from trainscope.sync.methods import Function
from trainscope.sync.own_code import leave_uncompiled

__all__ = ["Tables"]


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
        leave_uncompiled("trainscope.sync")
        leave_uncompiled("trainscope.sync.dry")  # loaded after the rest

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
