"""What the code of a model's classes calls, by name."""

from __future__ import annotations

import types
from collections.abc import Iterator, Set

from torch import nn

from trainscope_kernels.swapping.record import Swap

__all__ = ["INSIDE_TORCH", "names_called", "own_class", "places_of_calls"]

INSIDE_TORCH = (
    *(nn.MultiheadAttention, nn.Transformer),
    *(nn.TransformerEncoder, nn.TransformerEncoderLayer),
)
"""Modules of torch's whose code calls what is replaced."""
CALLED = {
    "gelu": "F.gelu",
    "softmax": "F.softmax",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention",
}
"""Names by which code calls the functions that are replaced."""
NOW = {
    "gelu": "trainscope_kernels.gelu",
    "softmax": "trainscope_kernels.softmax",
    "scaled_dot_product_attention": "trainscope_kernels.flash_attention, but for dropout_p > 0, a "
    "mask that wants a gradient, and tensors that are not on a GPU",
}


def places_of_calls(model: nn.Module, reached: Set[int]) -> Iterator[Swap]:
    """One for each class and function in whose code the name of a replaced function stands.

    ``reached`` are the ids of the modules that run below a forward which replaces calls.
    """
    seen: set[type] = set()
    for name, module in model.named_modules():
        kind = type(module)
        if kind in seen or id(module) not in reached:
            continue
        seen.add(kind)
        if isinstance(module, INSIDE_TORCH[:2]) or kind is nn.TransformerEncoderLayer:
            why = "torch calls its attention where no call can be replaced"
            yield Swap(name or "the model", f"nn.{kind.__name__}", None, why)
        own = own_class(module)
        if own is not None:
            for called in names_called(kind):
                yield Swap(f"calls in {own.__name__}", CALLED[called], NOW[called])


def own_class(module: nn.Module) -> type | None:
    """The class whose forward it runs; None where that is torch's or ours.

    FSDP and parametrizations give a module a class that they make from its own.
    """
    for kind in type(module).__mro__:
        if "forward" in vars(kind):
            package = kind.__module__.partition(".")[0]
            return None if package in ("torch", "trainscope_kernels") else kind
    return None


def names_called(kind: type) -> list[str]:
    """Which of the replaced functions the code of the class names, that of its bases included."""
    names: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "trainscope_kernels", "builtins"):
            continue
        for function in vars(base).values():
            code = getattr(function, "__code__", None)
            if isinstance(code, types.CodeType):
                names |= _names_in(code)
    return [name for name in CALLED if name in names]


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names
