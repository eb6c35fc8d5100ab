"""Registers an op with torch: its schema, what runs, its fake and its gradient.

An op is defined with ``Library.define`` and not with ``torch.library.custom_op``: a call costs
about 3 us less (kernels/bench/results/op_cost.json), and activation checkpointing, FSDP, export
and ``torch.compile(fullgraph=True)`` see it by its name just the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["NAMESPACE", "define", "define_backward"]

NAMESPACE = "trainscope_kernels"
_library = torch.library.Library(NAMESPACE, "DEF")

Op = Callable[..., Any]
PLAIN = (Tensor, torch.nn.Parameter)
below_autograd = torch._C._AutoDispatchBelowAutograd
_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack


def define(
    schema: str,
    *,
    run: Op,
    fake: Op,
    save: Callable[[Any, tuple[Any, ...], Any], None],
    backward: Callable[..., Any],
) -> Op:
    """Define a differentiable op and return it.

    schema: ``name(Tensor x, str impl) -> Tensor``, all arguments positional.
    run: computes the outputs on real tensors, new memory, inputs unchanged.
    fake: the same shapes, dtypes and strides on fake tensors, nothing computed.
    save(ctx, arguments, outputs): keeps on ctx what the gradient needs.
    backward(ctx, *grads): one gradient or None for each argument.
    """
    name, op = _register(schema, run, fake)

    def forward(ctx: Any, *arguments: Any) -> Any:
        outputs = _below_autograd(op, run, arguments)
        save(ctx, arguments, outputs)
        return outputs

    return _record_with(name, op, run, forward, backward)


def define_backward(schema: str, *, run: Op, fake: Op, of: str) -> Op:
    """Define the gradient op of the op named ``of``; differentiating it again raises."""
    name, op = _register(schema, run, fake)

    def forward(ctx: Any, *arguments: Any) -> Any:
        return _below_autograd(op, run, arguments)

    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(
            f"trainscope_kernels.{of} has no second derivative: its backward was differentiated "
            f"(create_graph=True, or a gradient penalty). Use torch's own {of} for this part."
        )

    return _record_with(name, op, run, forward, backward)


def _register(schema: str, run: Op, fake: Op) -> tuple[str, Op]:
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    return name, getattr(getattr(torch.ops, NAMESPACE), name).default


def _below_autograd(op: Op, run: Op, arguments: tuple[Any, ...]) -> Any:
    """What the op does below autograd; plain tensors spare the second way through the dispatcher.

    Whatever may stand in between (a dispatch mode, a functorch transform, a tensor subclass, a
    lazy negation, a tensor of zeros without memory) is met on that way, so it is taken where there
    is any.
    """
    if not _modes() and _transform() is None:
        for each in arguments:
            if isinstance(each, Tensor) and not _is_plain(each):
                break
        else:
            with below_autograd():
                return run(*arguments)
    with below_autograd():
        return op(*arguments)


def _is_plain(x: Tensor) -> bool:
    return type(x) in PLAIN and not x.is_meta and not x.is_neg() and not torch._is_zerotensor(x)


def _record_with(name: str, op: Op, run: Op, forward: Op, backward: Op) -> Op:
    """Make autograd record ``op`` through one autograd.Function of its own."""
    recorded = type(
        f"{name}_recorded",
        (torch.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )

    def below_or_recorded(*arguments: Any) -> Any:
        if torch.is_grad_enabled():
            for each in arguments:
                if isinstance(each, torch.Tensor) and each.requires_grad:
                    return recorded.apply(*arguments)  # type: ignore[attr-defined]
        return _below_autograd(op, run, arguments)

    _library.impl(name, below_or_recorded, "Autograd")
    return op
