"""The forward of a model whose calls of torch's functions are replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trainscope_kernels.swapping.calls import instead_of

__all__ = ["SwappedForward"]


class _Replacing(TorchFunctionMode):
    """While it is on, calls of the replaced functions go to these kernels."""

    def __init__(self, impl: str) -> None:
        super().__init__()
        self.impl = impl

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        instead = instead_of(func, self.impl)
        return (func if instead is None else instead)(*args, **(kwargs or {}))


class SwappedForward:
    """Stands in the module's ``forward``: calls the class's own with the calls replaced.

    It is data of the module like any other, so the module pickles, deepcopies (the copy's refers
    to the copy) and compiles; ``state_dict`` knows nothing of it. Each function of torch that the
    model calls takes about a microsecond more in eager mode, and nothing under torch.compile.
    """

    def __init__(self, module: torch.nn.Module, impl: str) -> None:
        self.module = module
        self.impl = impl

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the module's own forward."""
        with _Replacing(self.impl):
            return type(self.module).forward(self.module, *arguments, **named)
