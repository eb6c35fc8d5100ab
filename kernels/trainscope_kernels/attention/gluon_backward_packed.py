"""Packed sequences in the Gluon backward: where a program's block is, and how its rows are written.

The records are those of gluon_packed: of blocks of queries as in the forward, and for dK and dV
of blocks of keys, in a list made with queries and keys exchanged, and the band turned over.
What TMA reads past the end of a sequence is of the next one. Its P is 0; but 0 times a NaN would be
NaN, so that rows which a product sums over are emptied first.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from trainscope_kernels.attention.gluon_mask import worked_out_here

__all__ = ["empty_rows", "packed_block", "put_rows"]

CHUNK = gl.constexpr(16)


@gluon.jit
def packed_block(records, heads, RECORD: gl.constexpr):
    """(head, first row in its sequence, start and length of the own side, of the other, low, high,
    whether there is such a block) of a program; a length is 0 where there is none.

    There are as many programs as there may be blocks, and the last ones have none.
    """
    blocks = gl.load(records)
    program = gl.program_id(0)
    head = program // gl.maximum(blocks, 1)
    record = records + (1 + program - head * gl.maximum(blocks, 1)) * RECORD
    other_length = gl.load(record + 4)
    live = (head < heads) & (blocks > 0) & (other_length > 0)
    own_length = gl.where(live, gl.load(record + 2), 0)
    return (
        head,
        gl.load(record),
        gl.load(record + 1),
        own_length,
        gl.load(record + 3),
        gl.where(live, other_length, 0),
        gl.load(record + 5),
        gl.load(record + 6),
        live,
    )


@gluon.jit
def empty_rows(tile, begin, ROWS: gl.constexpr, DIM: gl.constexpr):
    """Zeros in the rows of a tile from ``begin`` on, if there are any.

    Each warpgroup does it for itself, before it reads: both write the same.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // DIM, DIM // 8], [4, 1], [1, 0])
    if begin < ROWS:
        # few rows at a time, for few registers
        row = worked_out_here(gl.arange(0, CHUNK, gl.SliceLayout(1, layout)))[:, None]
        for chunk in gl.static_range(ROWS // CHUNK):
            part = tile.slice(chunk * CHUNK, CHUNK, 0)
            values = part.load(layout)
            part.store(gl.where(row < begin - chunk * CHUNK, values, gl.zeros_like(values)))
        fence_async_shared()


@gluon.jit
def put_rows(
    values, tile, box, tensor_map, place, to, row_stride, left,
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, PACKED: gl.constexpr,
):  # fmt: skip
    """Rows to memory, through shared memory and TMA, which leaves out what is not in the tensor.

    tile, box: the same shared memory, (rows, columns) and as the tensor map has it. PACKED: where
    fewer than ROWS are left of the sequence they are stored one by one, from ``to`` on, with a
    stride in eights, since a box would reach into the next one.
    """
    if PACKED:
        if left >= ROWS:
            tile.store(values)
            fence_async_shared()
            tma.async_copy_shared_to_global(tensor_map, place, box)
        else:
            layout: gl.constexpr = values.type.layout
            row = gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
            column = gl.arange(0, values.shape[1], gl.SliceLayout(0, layout))[None, :]
            pointers = to + row.to(gl.int64) * row_stride * 8 + column
            gl.store(pointers, values, (row < left) & (column < COLUMNS))
    else:
        tile.store(values)
        fence_async_shared()
        tma.async_copy_shared_to_global(tensor_map, place, box)
