"""The mode in which calls of torch's functions go to these kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trainscope_kernels.swapping.calls import instead_of

__all__ = ["Replacing"]

_C: Any = torch._C
_saved_tensors_hooks = _C._autograd._top_saved_tensors_default_hooks


class Replacing(TorchFunctionMode):
    """While it is on, in this thread, calls of the replaced functions go to these kernels.

    What torch.utils.checkpoint runs again in backward, where the mode is not on, has to compute
    the same both times: in a region that begins while the mode is on nothing is replaced, unless
    a module's forward in it, which runs again too, turns on a mode of its own.
    """

    def __init__(self, impl: str) -> None:
        super().__init__()
        self.impl = impl
        self._region = None if torch.compiler.is_compiling() else _checkpointed_region()

    def does_here(self, impl: str) -> bool:
        """Whether a mode of this impl, turned on here and now, would do nothing else."""
        return impl == self.impl and self._region is _checkpointed_region()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call what stands for ``func``."""
        instead = instead_of(func, self.impl)
        if instead is None or not (torch.compiler.is_compiling() or self.does_here(self.impl)):
            instead = func
        return instead(*args, **(kwargs or {}))


def _checkpointed_region() -> Any:
    """What tells one region of torch.utils.checkpoint from another; None outside of any."""
    hooks = _saved_tensors_hooks(True)
    return hooks[0] if hooks and hooks[0].__module__ == "torch.utils.checkpoint" else None
