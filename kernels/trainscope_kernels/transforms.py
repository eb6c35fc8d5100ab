"""An op under torch.func.grad, vjp, jacrev and vmap of them: its gradient, for one element a time.

Eager training goes another way (registry.py): what torch.func asks of an autograd.Function makes
each call slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["differentiable_in_transforms", "in_a_gradient"]

_functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009  (torch's stubs leave it out)
_GRADIENT = _functorch.TransformType.Grad


def in_a_gradient() -> bool:
    """Whether a transform that differentiates backward is on, alone or among others."""
    if _functorch.peek_interpreter_stack() is None:
        return False
    return any(each.key() == _GRADIENT for each in _functorch.get_interpreter_stack())


def differentiable_in_transforms(
    name: str,
    compute: Callable[..., Any],
    save: Callable[[Any, tuple[Any, ...], Any], None],
    backward: Callable[..., Any],
) -> Callable[..., Any]:
    """What calls the op where ``in_a_gradient()``; the arguments are those of registry.define.

    compute: the op without autograd.
    """

    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        each = [
            function.apply(
                *[
                    argument if dim is None else argument.select(dim, place)
                    for argument, dim in zip(arguments, in_dims, strict=True)
                ]
            )
            for place in range(info.batch_size)
        ]
        if isinstance(each[0], tuple):
            together = tuple(torch.stack(outputs) for outputs in zip(*each, strict=True))
            return together, (0,) * len(together)
        return torch.stack(each), 0

    function: Any = type(
        f"{name}_in_transforms",
        (torch.autograd.Function,),
        {
            "forward": staticmethod(compute),
            "setup_context": staticmethod(save),
            "backward": staticmethod(backward),
            "vmap": staticmethod(vmap),
        },
    )
    return function.apply
