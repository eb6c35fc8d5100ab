"""Device functions of the attention kernels: which tile a program works on, loads and stores."""

# pyright: reportGeneralTypeIssues=false
# (what @triton.jit makes of a function's results is not in Triton's types)

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["load_rows", "packed_sequence", "rows_of_sequence", "store_rows", "tile_and_head"]


@triton.jit
def tile_and_head(program, tiles, heads, together):
    """Tile and head of a program: the same tile of ``together`` heads, then the next tile.

    Programs that start together so share these heads' keys and values in L2.
    """
    of_group = together * tiles
    first_head = (program // of_group) * together
    here = tl.minimum(heads - first_head, together)
    inside = program % of_group
    return inside // here, first_head + inside % here


@triton.jit
def packed_sequence(tile, cu_tiled, cu_q, cu_k, n_q, n_k, sequences, BLOCK: tl.constexpr):
    """Tile number inside its sequence, then first row and length of its queries and of its keys.

    cu_tiled: of cu_q and cu_k the one along which the tiles of BLOCK run. Sequence b owns the
    tiles from ``cu_tiled[b] // BLOCK + b`` on, which are never fewer than it needs: found by
    bisection on the device, so no longest length has to be known or trusted.
    """
    low = 0
    high = sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(cu_tiled + middle) // BLOCK + middle <= tile:
            low = middle
        else:
            high = middle
    tile -= tl.load(cu_tiled + low) // BLOCK + low
    # before the first sequence there is none: such a tile lies past the end of any
    tile = tl.where(tile < 0, 2147483647 // BLOCK, tile)
    q_from, q_length = rows_of_sequence(cu_q + low, n_q)
    k_from, k_length = rows_of_sequence(cu_k + low, n_k)
    return tile, q_from, q_length, k_from, k_length


@triton.jit
def rows_of_sequence(offsets, total):
    """First row and length of the sequence; what is no row of the tensor is cut off.

    Nobody reads the offsets on the host, and wrong ones must not reach other memory.
    """
    first = tl.minimum(tl.maximum(tl.load(offsets), 0), total)
    end = tl.minimum(tl.load(offsets + 1), total)
    return first, tl.maximum(end - first, 0)


@triton.jit
def load_rows(
    base,
    start,
    length,
    stride_row,
    stride_dim,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BOUNDED: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Tile (ROWS, BLOCK_DIM) from row ``start``; 0 past DIM and, where BOUNDED, past length."""
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, BLOCK_DIM)
    start_ptr = base + tl.cast(start, tl.int64) * stride_row
    inside = rows.to(OFFSET)[:, None] * stride_row + dims.to(OFFSET)[None, :] * stride_dim
    # what stands behind a return is compiled too: hence else
    if BOUNDED:
        fits = (start + rows < length)[:, None]
        if DIM < BLOCK_DIM:
            fits = fits & (dims < DIM)[None, :]
        return tl.load(start_ptr + inside, mask=fits, other=0.0)
    elif DIM < BLOCK_DIM:
        return tl.load(start_ptr + inside, mask=(dims < DIM)[None, :], other=0.0)
    else:
        return tl.load(start_ptr + inside)


@triton.jit
def store_rows(
    base,
    tile,
    start,
    length,
    stride_row,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Write a tile to memory whose last dimension is dense, rounding to its dtype."""
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, BLOCK_DIM)
    start_ptr = base + tl.cast(start, tl.int64) * stride_row
    inside = rows.to(OFFSET)[:, None] * stride_row + dims[None, :]
    fits = (start + rows < length)[:, None]
    if DIM < BLOCK_DIM:
        fits = fits & (dims < DIM)[None, :]
    tl.store(start_ptr + inside, tile.to(base.dtype.element_ty), mask=fits)
