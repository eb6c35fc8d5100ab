"""What the Gluon backward needs of each query, made once: the start values of two accumulators."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["attention_row_terms"]


@gluon.jit(
    do_not_specialize=["row_blocks", "heads"],
    do_not_specialize_on_alignment=["lse", "grad_lse"],
)
def attention_row_terms(
    out,
    grad_out,
    lse,
    grad_lse,
    terms,
    out_strides,
    grad_strides,
    row_blocks,
    heads,
    per_scale,
    ROWS: gl.constexpr,
    DIM: gl.constexpr,
    HAS_GRAD_LSE: gl.constexpr,
):
    """One program: ROWS queries; moves 4 * DIM bytes of each, so memory is its bound.

    terms: (batch * heads, 2, length) float32, filled with -lse / scale and with -delta, where
    delta is the sum of out * grad_out over the head, less the LSE's own gradient. As the start
    of S = Q K^T the first makes exp2(S * scale * log2(e)) the probability itself; as the start of
    dP = dO V^T the second makes dS = P * dP. Neither costs a register or an instruction more.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // DIM, DIM // 8], [4, 1], [1, 0])
    program = gl.program_id(0)
    instance = program // row_blocks
    row = (program - instance * row_blocks) * ROWS
    batch = (instance // heads).to(gl.int64)
    head = (instance % heads).to(gl.int64)
    length = row_blocks * ROWS
    rows = row + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    far = rows.to(gl.int64)[:, None]
    columns = gl.arange(0, DIM, gl.SliceLayout(0, layout))[None, :]
    out += batch * out_strides[0] + head * out_strides[1]
    grad_out += batch * grad_strides[0] + head * grad_strides[1]
    out_tile = gl.load(out + far * out_strides[2] + columns)
    grad_tile = gl.load(grad_out + far * grad_strides[2] + columns)
    delta = gl.sum(out_tile.to(gl.float32) * grad_tile.to(gl.float32), 1)
    of_head = instance.to(gl.int64) * length
    if HAS_GRAD_LSE:
        # d lse / d score is the probability itself, so its gradient joins delta
        delta -= gl.load(grad_lse + of_head + rows)
    terms += of_head * 2
    gl.store(terms + rows, -gl.load(lse + of_head + rows) * per_scale)
    gl.store(terms + length + rows, -delta)
