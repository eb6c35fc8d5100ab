"""dQ of the Gluon backward: the float32 workspace it is summed in, and the kernel that reads it.

Every program of the backward adds to dQ of many queries, and so many programs add to each. Their
sums are kept in the order of the accumulator's registers: a thread holds four neighbours of
the workspace and adds them with one 16-byte ``red``, a warp 512 contiguous bytes. Row-major, the
same sums would be 8-byte pieces of 8 rows. The order in which programs add is not fixed, so the
last bits of dQ move from run to run.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["add_to_workspace", "attention_dq"]

# Inline assembly must return something: the four values come back as they went in.
ADD_FOUR = gl.constexpr(
    "red.global.add.v4.f32 [$8], {$4, $5, $6, $7}; "
    "mov.b32 $0, $4; mov.b32 $1, $5; mov.b32 $2, $6; mov.b32 $3, $7;"
)
LOAD_FOUR = gl.constexpr("ld.global.v4.f32 {$0, $1, $2, $3}, [$4];")


@gluon.jit
def places(layout: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Where each element of a ROWS x COLUMNS accumulator stands: (4 registers, thread, register).

    A warp has 16 rows. Its lane holds, for every 8 columns, two neighbours in a row and the two
    8 rows below: four registers in this order.
    """
    row = gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))[None, :]
    thread = (row >> 4) * 32 + (row & 7) * 4 + ((column >> 1) & 3)
    register = (column & 1) + ((row >> 3) & 1) * 2
    return (column >> 3) * (ROWS * 8) + thread * 4 + register


@gluon.jit
def add_to_workspace(values, workspace, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Add an accumulator to the ROWS * COLUMNS floats from ``workspace`` on."""
    layout: gl.constexpr = values.type.layout
    pointers = workspace + places(layout, ROWS, COLUMNS)
    gl.inline_asm_elementwise(
        ADD_FOUR,
        "=r,=r,=r,=r,r,r,r,r,l,l,l,l",
        [values, pointers.to(gl.int64)],
        dtype=gl.float32,
        is_pure=False,
        pack=4,
    )


@gluon.jit(do_not_specialize=["length", "row_blocks", "heads"])
def attention_dq(
    workspace,
    dq,
    dq_strides,
    length,
    row_blocks,
    heads,
    scale,
    ROWS: gl.constexpr,
    DIM: gl.constexpr,
    COLUMNS: gl.constexpr,
    RAGGED: gl.constexpr,
):
    """One program: ROWS queries and half of their columns, from the workspace into dQ.

    workspace: (batch * heads, row_blocks, 2, ROWS * DIM / 2) float32. dq: (batch, heads, length,
    COLUMNS) with these strides. RAGGED: the last block is not all inside.
    """
    HALF: gl.constexpr = DIM // 2
    summed: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    stored: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HALF, HALF // 8], [4, 1], [1, 0])
    program = gl.program_id(0)
    half = program % 2
    block = program // 2
    instance = block // row_blocks
    row = (block - instance * row_blocks) * ROWS
    batch = (instance // heads).to(gl.int64)
    head = (instance % heads).to(gl.int64)
    pointers = workspace + program.to(gl.int64) * (ROWS * HALF) + places(summed, ROWS, HALF)
    sums = gl.inline_asm_elementwise(
        LOAD_FOUR,
        "=r,=r,=r,=r,l,l,l,l",
        [pointers.to(gl.int64)],
        dtype=gl.float32,
        is_pure=False,
        pack=4,
    )
    values = gl.convert_layout((sums * scale).to(dq.dtype.element_ty), stored)
    rows = row + gl.arange(0, ROWS, gl.SliceLayout(1, stored))
    far = rows.to(gl.int64)[:, None]
    columns = half * HALF + gl.arange(0, HALF, gl.SliceLayout(0, stored))
    dq += batch * dq_strides[0] + head * dq_strides[1]
    if RAGGED or COLUMNS < DIM:
        inside = (rows[:, None] < length) & (columns[None, :] < COLUMNS)
        gl.store(dq + far * dq_strides[2] + columns[None, :], values, inside)
    else:
        gl.store(dq + far * dq_strides[2] + columns[None, :], values)
