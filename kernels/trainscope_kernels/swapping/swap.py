"""Goes through a model and swaps what these kernels can do."""

from __future__ import annotations

import types
from collections.abc import Iterator

import torch
from torch import nn

from trainscope_kernels.errors import ArgumentError
from trainscope_kernels.modules import GELU, Softmax
from trainscope_kernels.swapping.forward import SwappedForward
from trainscope_kernels.swapping.record import Swap, Swaps

__all__ = ["swap"]

IMPLS = ("auto", "reference", "triton")
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
INSIDE_TORCH = (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoderLayer)


def swap(model: nn.Module, *, impl: str = "auto") -> Swaps:
    """Let the model's GELU, softmax and attention run through these kernels; in place.

    Modules ``nn.GELU`` and ``nn.Softmax`` are replaced (erf stays erf, tanh stays tanh). Calls of
    ``F.gelu``, ``F.softmax``, ``torch.softmax`` and ``F.scaled_dot_product_attention`` anywhere
    below ``model.forward`` are replaced while it runs, also in code that is not the model's own;
    dropout in attention, and what the kernels do not take, is left to torch call by call.
    impl: of every op; with "auto" calls on tensors that are not on a GPU are left to torch.

    Returns the places with what became of each, or why it was left. The calls are found by name
    in the code of the model's classes: one that is made elsewhere is replaced and not listed. The
    model keeps its class, parameters and ``state_dict``; swapping again changes nothing.
    Raises ArgumentError for what is no model, and for another impl.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if impl not in IMPLS:
        raise ArgumentError(f"impl={impl!r}; allowed: {', '.join(map(repr, IMPLS))}")
    swaps = Swaps(_swap_modules(model, impl))
    swaps.extend(_swap_calls(model, impl))
    return swaps


def _swap_modules(model: nn.Module, impl: str) -> Iterator[Swap]:
    made: dict[int, nn.Module] = {}  # one that is used twice stays one
    for where, child in list(model.named_modules(remove_duplicate=False)):
        if child is model or not isinstance(child, (nn.GELU, nn.Softmax)):
            continue
        was = f"nn.{child}" if type(child) in (nn.GELU, nn.Softmax) else repr(child)
        why_not = _why_left(child)
        if why_not is not None:
            yield Swap(where, was, None, why_not)
            continue
        new = made.setdefault(id(child), _made_from(child, impl))
        parent, _, name = where.rpartition(".")
        setattr(model.get_submodule(parent), name, new)
        yield Swap(where, was, f"trainscope_kernels.{new}")
    if isinstance(model, (nn.GELU, nn.Softmax)):
        why = "it is the model itself: use trainscope_kernels.GELU or Softmax in its place"
        yield Swap("the model", f"nn.{model}", None, why)


def _why_left(module: nn.Module) -> str | None:
    if type(module) not in (nn.GELU, nn.Softmax):
        return f"{type(module).__name__} is a class of its own, which may do something else"
    if isinstance(module, nn.Softmax) and module.dim is None:
        return "its dim is None, which torch guesses from the input"
    if any(
        (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        + (module._backward_pre_hooks,)
    ):
        return "it has hooks, which would be lost"
    return None


def _made_from(module: nn.GELU | nn.Softmax, impl: str) -> nn.Module:
    new: nn.Module
    if isinstance(module, nn.GELU):
        new = GELU(module.approximate, impl=impl)
    else:
        assert module.dim is not None
        new = Softmax(module.dim, impl=impl)
    return new.train(module.training)


def _swap_calls(model: nn.Module, impl: str) -> Iterator[Swap]:
    yield from _places_of_calls(model)
    if isinstance(model, torch.jit.ScriptModule):
        yield Swap("the model", "a TorchScript module", None, "its code cannot be reached")
    elif isinstance(vars(model).get("forward"), SwappedForward):
        vars(model)["forward"].impl = impl
    elif "forward" in vars(model):
        why = "its forward was replaced on the instance; swap before that is done"
        yield Swap("the model", "calls in it", None, why)
    elif not isinstance(model, (nn.GELU, nn.Softmax)):
        model.forward = SwappedForward(model, impl)  # type: ignore[method-assign]


def _places_of_calls(model: nn.Module) -> Iterator[Swap]:
    """One for each class and function in whose code the name of a replaced function stands."""
    seen: set[type] = set()
    for name, module in model.named_modules():
        kind = type(module)
        if kind in seen:
            continue
        seen.add(kind)
        if isinstance(module, INSIDE_TORCH):
            why = "torch calls its attention where no call can be replaced"
            yield Swap(name or "the model", f"nn.{kind.__name__}", None, why)
        if kind.__module__.partition(".")[0] in ("torch", "trainscope_kernels"):
            continue
        for called in _names_called(kind):
            yield Swap(f"calls in {kind.__name__}", CALLED[called], NOW[called])


def _names_called(kind: type) -> list[str]:
    names: set[str] = set()
    for function in vars(kind).values():
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
