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
    do_not_specialize=["length", "row_blocks", "heads"],
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
    length,
    row_blocks,
    heads,
    per_scale,
    ROWS: gl.constexpr,
    DIM: gl.constexpr,
    COLUMNS: gl.constexpr,
    RAGGED: gl.constexpr,
    HAS_GRAD_LSE: gl.constexpr,
):
    """One program: ROWS queries; moves 4 * DIM bytes of each, so memory is its bound.

    terms: (batch * heads, 2, row_blocks * ROWS) float32, filled with -lse * per_scale and with
    -delta, where delta is the sum of out * grad_out over the head, less the LSE's own gradient;
    per_scale is 1 / scale. As the
    start of S = Q K^T the first makes exp2(S * scale * log2(e)) the probability itself; as the
    start of dP = dO V^T the second makes dS = P * dP. Neither costs a register or an instruction
    more. A row that sees no key, and one past the last of ``length``, gets -inf and 0: its P, and
    so its part in every gradient, is 0, whatever its scores are. RAGGED: there are such past rows.
    COLUMNS: of the DIM of a row, those that there are.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // DIM, DIM // 8], [4, 1], [1, 0])
    program = gl.program_id(0)
    instance = program // row_blocks
    row = (program - instance * row_blocks) * ROWS
    batch = (instance // heads).to(gl.int64)
    head = (instance % heads).to(gl.int64)
    padded = row_blocks * ROWS
    rows = row + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    far = rows.to(gl.int64)[:, None]
    columns = gl.arange(0, DIM, gl.SliceLayout(0, layout))[None, :]
    out += batch * out_strides[0] + head * out_strides[1]
    grad_out += batch * grad_strides[0] + head * grad_strides[1]
    lse += instance.to(gl.int64) * length
    grad_lse += instance.to(gl.int64) * length
    within = rows < length
    if RAGGED or COLUMNS < DIM:
        inside = within[:, None] & (columns < COLUMNS)
        out_tile = gl.load(out + far * out_strides[2] + columns, inside, 0.0)
        grad_tile = gl.load(grad_out + far * grad_strides[2] + columns, inside, 0.0)
    else:
        out_tile = gl.load(out + far * out_strides[2] + columns)
        grad_tile = gl.load(grad_out + far * grad_strides[2] + columns)
    if RAGGED:
        row_lse = gl.load(lse + rows, within, float("-inf"))
    else:
        row_lse = gl.load(lse + rows)
    delta = gl.sum(out_tile.to(gl.float32) * grad_tile.to(gl.float32), 1)
    if HAS_GRAD_LSE:
        # d lse / d score is the probability itself, so its gradient joins delta
        if RAGGED:
            delta -= gl.load(grad_lse + rows, within, 0.0)
        else:
            delta -= gl.load(grad_lse + rows)
    unseen = row_lse == float("-inf")
    terms += instance.to(gl.int64) * (2 * padded)
    gl.store(terms + rows, gl.where(unseen, row_lse, -row_lse * per_scale))
    gl.store(terms + padded + rows, gl.where(unseen, 0.0, -delta))
