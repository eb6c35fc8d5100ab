"""torch's own tables of functions by identity: they must know torch's functions, and ours."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from trainscope.sync.dry.patches import Patches

__all__ = ["Tables"]


class Tables:
    """Keeps the tables of the compiler and of TorchScript right while functions are replaced.

    The compiler fills its tables once, from the names in the torch namespace: were that to happen
    during a dry run, it would know our functions and, after the dry run, not torch's.
    """

    def __init__(self) -> None:
        self._scripted: list[int] = []

    def fill(self) -> None:
        """Let torch fill its tables; to be called while nothing is replaced."""
        rules: Any = importlib.import_module("torch._dynamo.trace_rules")
        for name in ("get_torch_obj_rule_map", "get_tensor_method"):
            fill: Callable[[], object] = getattr(rules, name, lambda: None)
            fill()

    def add(self, patches: Patches) -> None:
        """Let TorchScript take each replacement for the function that it stands for."""
        known = _scriptable()
        for original, replacement in patches.functions():
            operator = known.get(id(original))
            if operator is not None:
                known[id(replacement)] = operator
                self._scripted.append(id(replacement))

    def remove(self) -> None:
        """Take our entries out again."""
        known = _scriptable()
        while self._scripted:
            known.pop(self._scripted.pop(), None)


def _scriptable() -> dict[int, str]:
    """Return TorchScript's operators by the identity of their Python functions."""
    builtins: Any = importlib.import_module("torch.jit._builtins")
    return builtins._get_builtin_table()
