"""The row term of the attention backward, delta, and how its kernels read the LSE."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
# (what @triton.jit adds to a function, and loops over tl.static_range, are not in Triton's types)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trainscope_kernels.attention.tile_sizes import delta_rows, padded
from trainscope_kernels.attention.triton_launch import current_device
from trainscope_kernels.attention.triton_scores import LOG2E
from trainscope_kernels.attention.triton_tiles import load_rows

__all__ = ["attention_delta", "delta", "load_lse"]


@triton.jit
def load_lse(lse, rows, n_q):
    """LSE of these rows in log2 units; +inf where there is no row or it saw no key.

    exp2(score - inf) is 0 whatever the score, -inf included: no probability, and no NaN.
    """
    values = tl.load(lse + rows, mask=rows < n_q, other=-float("inf"))
    return tl.where(values == -float("inf"), float("inf"), values * LOG2E)


@triton.jit(do_not_specialize=["n_q", "heads", "tiles"])
def attention_delta(
    out,
    grad_out,
    grad_lse,
    row_term,
    out_strides,
    grad_strides,
    n_q,
    heads,
    tiles,
    VALUE_DIM: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Sum over the value dim of grad_out * out, less the gradient of the LSE, for ROWS rows."""
    program = tl.program_id(0)
    instance = program // tiles
    first = (program % tiles) * ROWS
    batch = (instance // heads).to(tl.int64)
    head = (instance % heads).to(tl.int64)
    out += batch * out_strides[0] + head * out_strides[1]
    grad_out += batch * grad_strides[0] + head * grad_strides[1]
    out_tile = load_rows(
        out, first, n_q, out_strides[2], out_strides[3],
        ROWS, VALUE_DIM, BLOCK_VALUE, True, tl.int64,
    )  # fmt: skip
    grad_tile = load_rows(
        grad_out, first, n_q, grad_strides[2], grad_strides[3],
        ROWS, VALUE_DIM, BLOCK_VALUE, True, tl.int64,
    )  # fmt: skip
    sums = tl.sum(out_tile.to(WIDE) * grad_tile.to(WIDE), 1)
    rows = first + tl.arange(0, ROWS)
    places = instance.to(tl.int64) * n_q + rows
    if grad_lse is not None:
        # d lse / d logit is the probability itself, so the LSE's gradient joins the row term
        sums -= tl.load(grad_lse + places, mask=rows < n_q, other=0.0)
    tl.store(row_term + places, sums, mask=rows < n_q)


def delta(
    out: torch.Tensor, grad_out: torch.Tensor, grad_lse: torch.Tensor | None, lse: torch.Tensor
) -> torch.Tensor:
    """The row term, shaped and typed like the LSE (batch, heads, queries)."""
    row_term = torch.empty_like(lse)
    batch, heads, n_q, value_dim = out.shape
    rows = delta_rows(value_dim)
    tiles = -(-n_q // rows)
    with current_device(out):
        attention_delta[(tiles * batch * heads,)](
            out,
            grad_out,
            None if grad_lse is None else grad_lse.contiguous(),
            row_term,
            out.stride(),
            grad_out.stride(),
            n_q,
            heads,
            tiles,
            VALUE_DIM=value_dim,
            BLOCK_VALUE=padded(value_dim),
            ROWS=rows,
            WIDE=tl.float64 if lse.dtype == torch.float64 else tl.float32,
            num_warps=4,
        )
    return row_term
