"""Who is timed in gluon_vs_cudnn.py: our kernels, torch's backends and FlexAttention."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch._functorch.config as functorch_config
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from trainscope_kernels.attention import flash_attention

__all__ = ["backend_of", "backwards", "forward_of", "forwards", "once"]

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}


def forwards(
    names: tuple[str, ...], qkv: list[Tensor], causal: bool
) -> dict[str, Callable[[], Any]]:
    """Each contestant's forward; FlexAttention's where it can be called."""
    calls = {name: forward_of(name, qkv, causal) for name in names}
    return {name: call for name, call in calls.items() if name != "flex" or can_be_called(call)}


def backwards(
    names: tuple[str, ...], qkv: list[Tensor], causal: bool
) -> dict[str, Callable[[], Any]]:
    """Each contestant's backward, through a forward of its own; FlexAttention's likewise."""
    calls: dict[str, Callable[[], Any]] = {}
    grad = torch.randn_like(qkv[0])
    for name in names:
        leaves = [x.detach().requires_grad_() for x in qkv]
        forward = forward_of(name, leaves, causal)
        if name == "flex" and not can_be_called(forward):
            continue
        call = partial(torch.autograd.grad, once(name, forward), leaves, grad, retain_graph=True)
        if name != "flex" or can_be_called(call):
            calls[name] = call
    return calls


def forward_of(name: str, qkv: list[Tensor], causal: bool) -> Callable[[], Any]:
    """A call for the clock: torch's backend is chosen outside of it."""
    grouped = qkv[0].shape[1] != qkv[1].shape[1]
    if name == "flex":
        return flex(qkv, causal, grouped)
    if name in BACKENDS:
        return lambda: F.scaled_dot_product_attention(
            qkv[0], qkv[1], qkv[2], is_causal=causal, enable_gqa=grouped
        )
    return lambda: flash_attention(*qkv, causal=True if causal else None, impl=name)


def flex(qkv: list[Tensor], causal: bool, grouped: bool) -> Callable[[], Any]:
    """FlexAttention, compiled for this one shape."""
    # of all shapes together torch compiles but a few, and its backward may be called but once
    torch.compiler.reset()
    functorch_config.donated_buffer = False
    length = qkv[0].shape[2]
    mask = create_block_mask(below_diagonal, None, None, length, length) if causal else None
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(*qkv, block_mask=mask, enable_gqa=grouped)


def below_diagonal(batch: Any, head: Any, row: Any, column: Any) -> Any:
    """What a causal query sees."""
    return row >= column


def can_be_called(call: Callable[[], Any]) -> bool:
    """Whether what torch compiles at the first call could be; says why not."""
    try:
        call()
    except Exception as error:  # torch's compiler raises anything, and the others are to be timed
        print(f"left blank: {type(error).__name__}: {str(error)[:200]}")
        return False
    return True


def backend_of(name: str) -> contextlib.AbstractContextManager[Any]:
    """In which torch's attention is the contestant's own."""
    return sdpa_kernel(BACKENDS[name]) if name in BACKENDS else contextlib.nullcontext()


def once(name: str, call: Callable[[], Any]) -> Any:
    """A call out of the clock's sight."""
    with backend_of(name):
        return call()
