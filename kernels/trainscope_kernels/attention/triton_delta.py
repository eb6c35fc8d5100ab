"""What the attention backward needs of each row, made once: its LSE and its delta."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false
# (what @triton.jit adds to a function, and loops over tl.static_range, are not in Triton's types)

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trainscope_kernels.attention.tile_sizes import delta_rows, padded
from trainscope_kernels.attention.triton_launch import Launch, start
from trainscope_kernels.attention.triton_scores import LOG2E
from trainscope_kernels.attention.triton_tiles import load_rows

__all__ = ["attention_delta", "load_terms", "row_terms"]


@triton.jit
def load_terms(row_terms, start, n_q, ROWS: tl.constexpr, BOUNDED: tl.constexpr):
    """Of these rows the LSE in log2 units, and minus delta.

    Each row has its terms in one 16-byte word: as two vectors of floats, Triton loads them once
    for each of a thread's 16 columns and twice as many instructions run in the dK/dV loop.
    """
    rows = start + tl.arange(0, ROWS)
    words = row_terms + tl.cast(start, tl.int64) * 4
    words += tl.arange(0, ROWS)[:, None] * 4 + tl.arange(0, 4)[None, :]
    if BOUNDED:
        terms = tl.load(words, mask=(rows < n_q)[:, None], other=0.0)
    else:
        terms = tl.load(words)
    both, _ = tl.split(tl.reshape(terms, [ROWS, 2, 2]))
    return tl.split(both)


@triton.jit(do_not_specialize=["n_q", "heads", "tiles"])
def attention_delta(
    out,
    grad_out,
    grad_lse,
    lse,
    row_terms,
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
    """The terms of ROWS rows: (log2 LSE, 0, -delta, 0).

    delta is the sum of grad_out * out over the value dim, less the gradient of the LSE. A row
    that saw no key gets LSE +inf: exp2(score - inf) is 0 for any score, -inf included.
    """
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
    natural = tl.load(lse + places, mask=rows < n_q, other=0.0)
    log2_lse = tl.where(natural == -float("inf"), float("inf"), natural * LOG2E)
    terms = tl.join(log2_lse, -sums)
    terms = tl.reshape(tl.join(terms, tl.zeros_like(terms)), [ROWS, 4])
    words = row_terms + places[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(words, terms, mask=(rows < n_q)[:, None])


def row_terms(
    out: torch.Tensor, grad_out: torch.Tensor, grad_lse: torch.Tensor | None, lse: torch.Tensor
) -> torch.Tensor:
    """(batch, heads, queries, 4), typed as the LSE: log2 LSE, 0, minus delta and 0 of each row."""
    batch, heads, n_q, value_dim = out.shape
    terms = lse.new_empty((batch, heads, n_q, 4))
    rows = delta_rows(value_dim)
    tiles = -(-n_q // rows)

    def plan() -> Launch:
        constants = {
            "VALUE_DIM": value_dim,
            "BLOCK_VALUE": padded(value_dim),
            "ROWS": rows,
            "WIDE": tl.float64 if lse.dtype == torch.float64 else tl.float32,
        }
        numbers = (out.stride(), grad_out.stride(), n_q, heads, tiles)
        return Launch(tiles * batch * heads, numbers, constants, 4, 1)

    grad_lse = None if grad_lse is None else grad_lse.contiguous()
    kind = (out.shape, out.stride(), out.dtype, grad_out.stride(), grad_out.dtype, grad_lse is None)
    start(attention_delta, (out, grad_out, grad_lse, lse, terms), kind, plan)
    return terms
