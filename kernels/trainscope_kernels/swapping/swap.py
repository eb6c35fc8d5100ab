"""Goes through a model and swaps what these kernels can do."""

from __future__ import annotations

from torch import nn

from trainscope_kernels.errors import ArgumentError
from trainscope_kernels.swapping.code import INSIDE_TORCH, places_of_calls
from trainscope_kernels.swapping.forward import SwappedForward
from trainscope_kernels.swapping.record import Swaps
from trainscope_kernels.swapping.replace import swap_modules
from trainscope_kernels.swapping.set_forwards import swap_forwards

__all__ = ["swap"]

IMPLS = ("auto", "reference", "triton")


def swap(model: nn.Module, *, impl: str = "auto") -> Swaps:
    """Let the model's GELU, softmax and attention run through these kernels; in place.

    Modules ``nn.GELU`` and ``nn.Softmax`` are replaced (erf stays erf, tanh stays tanh). Calls of
    ``F.gelu``, ``F.softmax``, ``torch.softmax`` and ``F.scaled_dot_product_attention`` anywhere
    below the forward of the model's own modules are replaced while it runs, also in code that is
    not the model's own, but not in threads that it starts; dropout in attention, and what the
    kernels do not take, is left to torch call by call. So are, in eval mode, torch's transformer
    modules and classes of them that call their forward, for they have a fast path. What
    torch.utils.checkpoint runs again is replaced where it is a module, and left where it is a
    function.
    impl: of every op; with "auto" what is not on a GPU is left to torch. It is chosen here also
    below ``torch.nn.attention.sdpa_kernel``, which only tells torch what to take.

    Returns the places with what became of each, or why it was left. The calls are found in the
    code of the model's classes: one that a function outside of them makes (the attention of
    transformers is one) is replaced and not listed, and printed the places end with a line that
    says so. A GELU or softmax written out in other operations is not found. The model keeps its
    class, parameters and ``state_dict``; swapping again changes nothing but ``impl``. A second
    derivative raises, as these kernels have none; ``torch.jit.script`` does not read a swapped
    model, and ``torch.export`` takes it with ``strict=False``, its default.
    Raises ArgumentError for what is no model, and for another impl.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if impl not in IMPLS:
        raise ArgumentError(f"impl={impl!r}; allowed: {', '.join(map(repr, IMPLS))}")
    swaps = Swaps(swap_modules(model, impl))
    reached, left = swap_forwards(model, impl)
    swaps.extend(places_of_calls(model, reached, impl))
    swaps.extend(left)
    swaps.calls_elsewhere = any(
        isinstance(vars(module).get("forward"), SwappedForward) and type(module) not in INSIDE_TORCH
        for module in model.modules()
    )
    return swaps
