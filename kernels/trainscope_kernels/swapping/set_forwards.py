"""Which modules of a model get a forward that replaces calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch
from torch import nn

from trainscope_kernels.swapping.code import (
    INSIDE_TORCH,
    names_a_call,
    own_class,
    runs_forward_of,
)
from trainscope_kernels.swapping.forward import SwappedForward, UnswappedInEval
from trainscope_kernels.swapping.record import Swap

__all__ = ["swap_forwards"]

DECODERS = (nn.TransformerDecoder, nn.TransformerDecoderLayer)
"""Torch's, which call an activation and have no fast path."""
LATER = (inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.iscoroutinefunction)


def swap_forwards(model: nn.Module, impl: str) -> tuple[set[int], list[Swap]]:
    """Replace the forwards of the model's own modules.

    Returns the ids of the modules that run below such a forward, and what had to be left. The
    outermost forward would do while the model runs; but checkpointing runs an inner one again by
    itself, and a method such as ``generate`` may call only a part.
    """
    reached: set[int] = set()
    return reached, list(_below("", model, impl, reached, set(), inside=False))


def _below(
    name: str, module: nn.Module, impl: str, reached: set[int], seen: set[int], *, inside: bool
) -> Iterator[Swap]:
    """``inside``: a forward that replaces calls calls this module's."""
    if id(module) in seen:
        return
    seen.add(id(module))
    script = isinstance(module, torch.jit.ScriptModule)
    why_not = _why_left(module)
    if why_not is None:
        inside = _set_forward(module, impl, inside) or inside
    elif script or not inside:
        yield Swap(name or "the model", *why_not)
    if script:
        return
    if inside:
        reached.add(id(module))
    for child_name, child in module.named_children():
        below = f"{name}.{child_name}" if name else child_name
        yield from _below(below, child, impl, reached, seen, inside=inside)


def _why_left(module: nn.Module) -> tuple[str, None, str] | None:
    """What is left, nothing, and why, of a module whose forward cannot be replaced; else None."""
    if isinstance(module, torch.jit.ScriptModule):
        return "a TorchScript module", None, "its code cannot be reached"
    own = own_class(module)
    if own is None:
        return None
    forward = vars(module).get("forward")
    if forward is not None and not isinstance(forward, SwappedForward):
        why = "its forward was replaced on the instance; swap before that is done"
        return "calls in it", None, why
    of_class = vars(own)["forward"]
    if any(is_kind(of_class) for is_kind in LATER):
        why = "its forward is a generator or coroutine, which runs after the call has returned"
        return "calls in it", None, why
    return None


def _set_forward(module: nn.Module, impl: str, inside: bool) -> bool:
    """Whether the module's forward replaces calls from now on."""
    forward = vars(module).get("forward")
    kind: type[SwappedForward] | None
    if isinstance(forward, SwappedForward):
        forward.impl = impl
        return True
    if runs_forward_of(INSIDE_TORCH, type(module)) and forward is None:
        kind = UnswappedInEval
    elif own_class(module) is not None or isinstance(module, torch.fx.GraphModule):
        wanted = not inside or module._modules or names_a_call(type(module))
        kind = SwappedForward if wanted else None
    elif isinstance(module, DECODERS) and forward is None:
        kind = SwappedForward
    else:
        kind = None
    if kind is None:
        return False
    # past a __setattr__ of the module's own, which may hand it on to another
    vars(module)["forward"] = kind(module, impl)
    return True
