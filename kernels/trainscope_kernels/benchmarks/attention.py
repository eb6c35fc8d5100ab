"""FlashAttention beside what scaled_dot_product_attention and FlexAttention offer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.config
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from trainscope_kernels.attention import flash_attention
from trainscope_kernels.benchmarks.case import Case

__all__ = ["benchmarks", "manual_attention"]

Shape = tuple[int, int, int, int]
GPU_SHAPES: list[Shape] = [
    (4, 32, 4096, 128),
    (2, 32, 8192, 128),
    (1, 32, 16384, 128),
    (4, 32, 4096, 64),
    (2, 16, 8192, 256),
]
CPU_SHAPES: list[Shape] = [(1, 2, 128, 64)]
LONGEST_MANUAL = 4096
"""Beyond, the score matrices of the written-out version take more than 16 GB."""
MOST_COMPILED = 64
"""Kinds of call that torch.compile keeps of one function; its own limit is 8."""
BACKWARD_TO_FORWARD = 2.5
"""Five matrix products where the forward has two: the convention of the FlashAttention papers."""


def benchmarks() -> list[Case]:
    """Forward and backward, full and causal, of each shape that suits torch's default device."""
    on_gpu = torch.get_default_device().type == "cuda"
    return [
        _case(shape, causal, backward, on_gpu)
        for shape in (GPU_SHAPES if on_gpu else CPU_SHAPES)
        for causal in (False, True)
        for backward in (False, True)
    ]


def _case(shape: Shape, causal: bool, backward: bool, on_gpu: bool) -> Case:
    batch, heads, length, dim = shape
    kind = torch.bfloat16 if on_gpu else torch.float32
    align = "top-left" if causal else None
    impls: dict[str, Callable[..., Any]] = {
        "reference": functools.partial(flash_attention, causal=align, impl="reference"),
        "sdpa": functools.partial(_sdpa, causal=causal),
    }
    if length <= LONGEST_MANUAL:
        impls["manual"] = functools.partial(manual_attention, causal=causal)
    if on_gpu:
        del impls["reference"]
        impls["sdpa fa2"] = functools.partial(
            _sdpa, causal=causal, backend=SDPBackend.FLASH_ATTENTION
        )
        impls["sdpa cudnn"] = functools.partial(
            _sdpa, causal=causal, backend=SDPBackend.CUDNN_ATTENTION
        )
        impls["flex"] = _flex(length, causal)
        impls["triton"] = functools.partial(flash_attention, causal=align, impl="triton")
        impls["gluon"] = functools.partial(flash_attention, causal=align, impl="gluon")
    flops = 4 * batch * heads * length * length * dim // (2 if causal else 1)
    tensors = 8 if backward else 4
    return Case(
        name=f"attention {'backward' if backward else 'forward'} "
        f"{'x'.join(map(str, shape))} {'causal' if causal else 'full'}",
        impls=impls,
        make_inputs=functools.partial(_inputs, shape, kind),
        reference="sdpa",
        bytes_moved=tensors * batch * heads * length * dim * kind.itemsize,
        flops=int(flops * BACKWARD_TO_FORWARD) if backward else flops,
        backward=backward,
    )


def _inputs(shape: Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(shape, dtype=dtype),
        torch.randn(shape, dtype=dtype),
        torch.randn(shape, dtype=dtype),
    )


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, backend: SDPBackend | None = None
) -> Tensor:
    if backend is None:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _flex(length: int, causal: bool) -> Callable[..., Any]:
    def below_diagonal(b: Any, h: Any, row: Any, col: Any) -> Any:
        return row >= col

    mask = create_block_mask(below_diagonal, None, None, length, length) if causal else None
    # each case compiles it anew, and past the limit it would run unfused, 20 times slower
    limit: int = torch._dynamo.config.recompile_limit  # type: ignore[attr-defined]
    torch._dynamo.config.recompile_limit = max(limit, MOST_COMPILED)  # type: ignore[attr-defined]
    compiled = torch.compile(flex_attention, dynamic=False)
    return functools.partial(compiled, block_mask=mask)


def manual_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Softmax attention as the textbook writes it: the score matrix is in memory, three times."""
    scores = (q @ k.mT) * q.shape[-1] ** -0.5
    if causal:
        length = scores.shape[-1]
        below = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~below, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v
