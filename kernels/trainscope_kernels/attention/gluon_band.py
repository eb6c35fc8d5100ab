"""Which tiles of keys a block of queries sees, and which of those need no mask, in Gluon.

A band as in masking.py, counted in columns: query i sees key j where i + low <= j <= i + high. A
side without limit is BAND_OPEN away, far beyond any length and far from overflowing an int32.

MASK says what a kernel is compiled for:

    "none"      no band, and a whole number of tiles
    "end"       no band; the last tile is cut short
    "diagonal"  no limit on the left; high is a multiple of KEYS and of no row past the last key, so
                that 64 queries meet the diagonal in one tile, their last, and each sees a key;
                where a block has no more than KEYS of them, all its warpgroups in the same one
    "band"      anything: tiles at both ends may need the mask, and a query may see nothing
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from trainscope_kernels.attention.call import Call

__all__ = ["BAND_OPEN", "limits_of", "open_keys", "tiles_of_warpgroup", "tiles_seen"]

BAND_OPEN = 2**30


def limits_of(call: Call) -> tuple[int, int]:
    """(low, high) of a call that is not of packed sequences."""
    shift = call.k.shape[2] - call.q.shape[2] if call.from_end else 0
    low = -BAND_OPEN if call.left < 0 else max(shift - call.left, -BAND_OPEN)
    high = BAND_OPEN if call.right < 0 else min(shift + call.right, BAND_OPEN)
    return low, high


@gluon.jit
def tiles_seen(
    row, low, high, length, ROWS: gl.constexpr, KEYS: gl.constexpr, MASK: gl.constexpr
):  # fmt: skip
    """(first, end): the tiles of keys that the ROWS queries from ``row`` on see; one at least."""
    first = 0
    end = length
    if MASK == "diagonal" or MASK == "band":
        end = gl.minimum(row + ROWS + high, length)
    end = gl.cdiv(end, KEYS)
    if MASK == "band":
        end = gl.maximum(end, 1)
        first = gl.minimum(gl.maximum(row + low, 0) // KEYS, end - 1)
    return first, end


@gluon.jit
def tiles_of_warpgroup(
    block_row, row, queries, low, high, length,
    ROWS: gl.constexpr, BLOCK: gl.constexpr, KEYS: gl.constexpr, MASK: gl.constexpr,
):  # fmt: skip
    """(first, end) of a warpgroup's ROWS queries from ``row`` on, and of its block's BLOCK.

    Past the last query nothing is to be seen: such a warpgroup takes the one tile that it must.
    """
    first, end = tiles_seen(row, low, high, length, ROWS, KEYS, MASK)
    block_first, block_end = tiles_seen(block_row, low, high, length, BLOCK, KEYS, MASK)
    here = row < queries
    if MASK == "band":
        first = gl.where(here, first, block_first)
    return first, gl.where(here, end, block_first + 1), block_first, block_end


@gluon.jit
def open_keys(row, low, high, length, ROWS: gl.constexpr, KEYS: gl.constexpr):
    """(begin, end): a tile of KEYS keys needs no mask where its first is at begin or between."""
    return row + ROWS - 1 + low, gl.minimum(row + high, length - 1) - (KEYS - 2)
