"""The forward of a module whose calls of torch's functions are replaced."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import _get_current_function_mode, _pop_mode, _push_mode

from trainscope_kernels.errors import KernelError
from trainscope_kernels.swapping.mode import Replacing

__all__ = ["SwappedForward", "UnswappedInEval"]


class SwappedForward:
    """Stands in the module's ``forward``: calls the class's own with the calls replaced.

    It is data of the module like any other, so the module pickles, deepcopies (the copy's refers
    to the copy) and compiles; ``state_dict`` knows nothing of it. Each function of torch that the
    module calls takes about a microsecond more in eager mode, and nothing under torch.compile.
    """

    def __init__(self, module: nn.Module, impl: str) -> None:
        self._refer_to(module)
        self.impl = impl

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the module's own forward."""
        if torch.compiler.is_compiling():
            return self._replaced(self.module, arguments, named)
        # a shallow copy of the module, as nn.DataParallel makes one for each GPU, shares this
        # object: whose forward it is, only the caller knows
        caller = sys._getframe(1).f_locals.get("self")
        if isinstance(caller, nn.Module) and vars(caller).get("forward") is self:
            return self._replaced(caller, arguments, named)
        return self._replaced(self.module, arguments, named)

    def _replaced(self, module: Any, arguments: Any, named: Any) -> Any:
        forward = type(module).forward
        if not torch.compiler.is_compiling():
            on = _get_current_function_mode()
            if isinstance(on, Replacing) and on.does_here(self.impl):
                return forward(module, *arguments, **named)
        with Replacing(self.impl):
            return forward(module, *arguments, **named)

    @property
    def module(self) -> nn.Module:
        """The module whose forward this is."""
        module = self._module()
        if module is None:
            raise KernelError("the model of this forward is gone: keep the model, not its forward")
        return module

    def _refer_to(self, module: nn.Module) -> None:
        # weakly: a cycle would keep a deleted model's memory until the garbage is collected
        self._module = weakref.ref(module)

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module, "impl": self.impl}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._refer_to(state["module"])
        self.impl = state["impl"]

    @property
    def __signature__(self) -> inspect.Signature:
        """The class's own: trainers read it to see which columns of a batch the model takes."""
        return inspect.signature(self._own())

    @property
    def __func__(self) -> Callable[..., Any]:
        """This as a function of the module: accelerate takes it to wrap it and to bind it again.

        The class's own would run the model with nothing replaced.
        """

        def forward(module: nn.Module, *arguments: Any, **named: Any) -> Any:
            return self._replaced(module, arguments, named)

        forward.__signature__ = inspect.signature(type(self.module).forward)  # type: ignore[attr-defined]
        return forward

    def __getattr__(self, name: str) -> Any:
        """What a method has and this has not, such as ``__code__``, which torch.export reads."""
        if "_module" not in vars(self):  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self._own(), name)

    def _own(self) -> Any:
        module = self.module
        return type(module).forward.__get__(module)


class UnswappedInEval(SwappedForward):
    """The forward of torch's transformer modules, which in eval mode run as if not swapped.

    They have a fast path there, which they do not take while a mode is on; it gives 0 where the
    padding is. So do classes derived from them whose forward calls theirs.
    """

    def _replaced(self, module: Any, arguments: Any, named: Any) -> Any:
        if module.training:
            return super()._replaced(module, arguments, named)
        popped = []  # no ExitStack: torch.compile would break its graph there
        try:
            while isinstance(_get_current_function_mode(), Replacing):
                popped.append(_pop_mode())
            return type(module).forward(module, *arguments, **named)
        finally:
            while popped:
                _push_mode(popped.pop())
