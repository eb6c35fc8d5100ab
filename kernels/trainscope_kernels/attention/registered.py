"""The attention ops that torch knows: their schemas, and how the gradient follows from the call."""

from __future__ import annotations

from typing import Any

import torch

from trainscope_kernels.attention import run
from trainscope_kernels.registry import define, define_backward

__all__ = ["attention_op"]


def _save(ctx: Any, arguments: tuple[Any, ...], outputs: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(*arguments[:6], *outputs)
    ctx.settings = arguments[6:]
    # an output that nothing was made from has gradient None, not a tensor of zeros
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_out: torch.Tensor | None, grad_lse: torch.Tensor | None) -> Any:
    needs_q, needs_k, needs_v = ctx.needs_input_grad[:3]
    *tensors, out, lse = ctx.saved_tensors
    *settings, impl = ctx.settings
    if grad_out is None:
        grad_out = out.new_zeros(()).expand_as(out)
    grads = _backward_op(
        *tensors, *settings, grad_out, grad_lse, out, lse, impl, needs_q, needs_k or needs_v
    )
    wanted = (needs_q, needs_k, needs_v)
    return (
        *(grad if want else None for grad, want in zip(grads, wanted, strict=True)),
        *(None,) * 9,
    )


_CALL = (
    "Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? cu_q, Tensor? cu_k, float scale, "
    "float softcap, int left, int right, bool from_end"
)
_backward_op = define_backward(
    f"flash_attention_backward({_CALL}, Tensor grad_out, Tensor? grad_lse, Tensor out, Tensor lse, "
    "str impl, bool of_q, bool of_kv) -> (Tensor, Tensor, Tensor)",
    run=run.backward,
    fake=run.fake_backward,
    of="flash_attention",
)
attention_op = define(
    f"flash_attention({_CALL}, str impl) -> (Tensor, Tensor)",
    run=run.forward,
    fake=run.fake_forward,
    save=_save,
    backward=_backward,
)
