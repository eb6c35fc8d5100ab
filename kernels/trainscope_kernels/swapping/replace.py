"""Modules of torch replaced by modules of these kernels."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from trainscope_kernels.swapping.modules import GELU, Softmax
from trainscope_kernels.swapping.record import Swap

__all__ = ["swap_modules"]


def swap_modules(model: nn.Module, impl: str) -> Iterator[Swap]:
    """Replace each ``nn.GELU`` and ``nn.Softmax`` below the model; what became of each.

    Those of an earlier swap get the impl of this one.
    """
    made: dict[int, nn.Module] = {}  # one that is used twice stays one
    for where, child in list(model.named_modules(remove_duplicate=False)):
        if child is model:
            continue
        if isinstance(child, (GELU, Softmax)) and child.impl != impl:
            was, child.impl = f"trainscope_kernels.{child}", impl
            yield Swap(where, was, f"trainscope_kernels.{child}")
        if not isinstance(child, (nn.GELU, nn.Softmax)):
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
    if "forward" in vars(module):
        return "its forward was replaced on the instance"
    if module._parameters or module._buffers or module._modules:
        return "it holds parameters, buffers or modules, which would be lost"
    return None


def _made_from(module: nn.GELU | nn.Softmax, impl: str) -> nn.Module:
    new: nn.Module
    if isinstance(module, nn.GELU):
        new = GELU(module.approximate, impl=impl)
    else:
        assert module.dim is not None
        new = Softmax(module.dim, impl=impl)
    return new.train(module.training)
