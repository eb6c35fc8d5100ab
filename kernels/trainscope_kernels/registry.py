"""Registers an op with torch: its schema, what runs, its fake and its gradient.

What ``define`` returns calls the op. In plain eager code it goes straight to what runs: the way
through the dispatcher and back into Python costs several times as much as allocating the output.
A mode, transform, tracer, profiler or tensor subclass is met, so activation checkpointing, FSDP,
export and ``torch.compile(fullgraph=True)`` see the op by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from trainscope_kernels.transforms import differentiable_in_transforms, in_a_gradient

__all__ = ["NAMESPACE", "all_plain", "define", "define_backward", "nobody_watches"]

NAMESPACE = "trainscope_kernels"
_library = torch.library.Library(NAMESPACE, "DEF")

Op = Callable[..., Any]
Save = Callable[[Any, tuple[Any, ...], Any], None]
_torch: Any = torch  # the questions below are torch's own, which its stubs leave out
_modes = _torch._C._len_torch_dispatch_stack
_function_modes = _torch._C._len_torch_function_stack
_tracer = _torch._C._get_tracing_state
_profiling = _torch._C._autograd._profiler_enabled
_transform = _torch._C._functorch.peek_interpreter_stack
_is_zerotensor = _torch._is_zerotensor
_is_batched = _torch._C._functorch.is_legacy_batchedtensor
_is_compiling = torch.compiler.is_compiling


def define(
    schema: str,
    *,
    run: Op,
    fake: Op,
    save: Save,
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
    return _record_with(name, op, run, save, backward)


def define_backward(schema: str, *, run: Op, fake: Op, of: str) -> Op:
    """Define the gradient op of the op named ``of``; differentiating it again raises."""
    name, op = _register(schema, run, fake)

    def save(ctx: Any, arguments: tuple[Any, ...], outputs: Any) -> None:
        """Nothing is needed to refuse."""

    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(
            f"trainscope_kernels.{of} has no second derivative: its backward was differentiated "
            f"(create_graph=True, or a gradient penalty). Use torch's own {of} for this part."
        )

    return _record_with(name, op, run, save, backward)


def _register(schema: str, run: Op, fake: Op) -> tuple[str, Op]:
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    return name, getattr(getattr(torch.ops, NAMESPACE), name).default


def _record_with(name: str, op: Any, run: Op, save: Save, backward: Op) -> Op:
    """Make autograd record ``op`` through one autograd.Function; return what calls it."""
    places = _tensor_places(op)

    def compute(*arguments: Any) -> Any:
        return _below_autograd(op, run, places, arguments)

    def forward(ctx: Any, *arguments: Any) -> Any:
        outputs = _below_autograd(op, run, places, arguments)
        save(ctx, arguments, outputs)
        return outputs

    recorded: Any = type(
        f"{name}_recorded",
        (torch.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )
    in_transforms = differentiable_in_transforms(name, compute, save, backward)

    def with_autograd(*arguments: Any) -> Any:
        if forward_ad._current_level >= 0:
            _refuse_tangents(name, places, arguments)
        if _wants_gradient(places, arguments):
            return recorded.apply(*arguments)
        return _below_autograd(op, run, places, arguments)

    _library.impl(name, with_autograd, "Autograd")

    def call(*arguments: Any) -> Any:
        """The op; where nobody could see the difference, without torch's dispatcher."""
        if _is_compiling() or not nobody_watches() or not all_plain(places, arguments):
            if _is_compiling() or not in_a_gradient():
                return op(*arguments)
            if forward_ad._current_level >= 0:  # a tangent may lie where only torch.func finds it
                raise _no_forward_mode(name)
            return in_transforms(*arguments)
        return recorded.apply(*arguments) if _wants_gradient(places, arguments) else run(*arguments)

    return call


def _tensor_places(op: Any) -> tuple[int, ...]:
    """Which of the op's arguments are tensors, or None."""
    return tuple(
        place for place, each in enumerate(op._schema.arguments) if "Tensor" in str(each.type)
    )


def _wants_gradient(places: tuple[int, ...], arguments: tuple[Any, ...]) -> bool:
    if torch.is_grad_enabled():
        for place in places:
            each = arguments[place]
            if each is not None and each.requires_grad:
                return True
    return False


def _below_autograd(op: Op, run: Op, places: tuple[int, ...], arguments: tuple[Any, ...]) -> Any:
    """What the op does below autograd; plain tensors spare the dispatcher's second round."""
    if not _modes() and _transform() is None and all_plain(places, arguments):
        return run(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return op(*arguments)


def _refuse_tangents(name: str, places: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
    """Raise where a tensor carries a forward-mode gradient, which a kernel would lose."""
    for place in places:
        each = arguments[place]
        if each is not None and forward_ad.unpack_dual(each).tangent is not None:
            raise _no_forward_mode(name)


def _no_forward_mode(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"trainscope_kernels.{name} has no forward-mode derivative, and was given a tensor with a "
        "tangent (torch.func.jvp, hessian, or forward_ad). Use torch's own for this part, or "
        "differentiate backward."
    )


def nobody_watches() -> bool:
    """Whether no mode, transform, tracer or profiler is on, which has to be told of each op."""
    return (
        forward_ad._current_level < 0
        and not _modes()
        and not _function_modes()
        and _transform() is None
        and _tracer() is None
        and not _profiling()
    )


def all_plain(places: Iterable[int], arguments: Sequence[Any]) -> bool:
    """Whether the dispatcher has nothing to do for these tensors.

    It unwraps subclasses, carries out lazy negations, gives memory to zeros that have none, and
    takes apart the gradients that ``torch.autograd.grad(..., is_grads_batched=True)`` makes.
    """
    for place in places:
        x = arguments[place]
        if x is not None and (
            (type(x) is not Tensor and type(x) is not Parameter)
            or x.is_meta
            or x.is_neg()
            or _is_zerotensor(x)
            or _is_batched(x)
        ):
            return False
    return True
