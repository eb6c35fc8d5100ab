"""Packed sequences for the Gluon forward: a list of their blocks of queries, made on the device.

Lengths are not read on the host. One small kernel lists the blocks of all sequences, no more than
there are, one record a block; the forward's programs read how many and take record after record.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trainscope_kernels.attention.gluon_band import BAND_OPEN
from trainscope_kernels.attention.masking import Band
from trainscope_kernels.attention.triton_launch import Launch, start

__all__ = ["RECORD", "block_records", "longest_first", "most_blocks"]

RECORD = 8
"""Numbers of a record: first query of the block in its sequence; first row and number of the
sequence's queries, and of its keys; low and high of its band, see gluon_band. The first record is
another: the number of blocks."""
LANES = 64
CHUNK = 128
MOST_ORDERED = 2**14
"""Blocks; each is compared with every other, and twice as many take four times as long."""


@triton.jit
def row_at(offsets, there, rows):
    """Offsets where ``there``, cut to the rows that exist: others would be read as memory."""
    offset = tl.load(offsets, mask=there, other=0)
    return tl.minimum(tl.maximum(offset, 0), rows).to(tl.int32)


@triton.jit(do_not_specialize=["n_q", "n_k", "sequences", "left", "right"])
def list_blocks(
    cu_q, cu_k, records, n_q, n_k, sequences, left, right,
    ROWS: tl.constexpr, RECORD: tl.constexpr, OPEN: tl.constexpr, FROM_END: tl.constexpr,
    LANES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One program: LANES records. Each adds up the blocks of all sequences, CHUNK at a time.

    Block t is of the first sequence whose blocks end after t, so counting those that end before
    it finds the sequence; an empty one has no block and is counted with the next.
    """
    block = tl.program_id(0) * LANES + tl.arange(0, LANES)
    before = tl.zeros([LANES], tl.int32)
    start = tl.zeros([LANES], tl.int32)
    total = 0
    for first in range(0, sequences, CHUNK):
        sequence = first + tl.arange(0, CHUNK)
        inside = sequence < sequences
        begin = row_at(cu_q + sequence, inside, n_q)
        length = tl.maximum(row_at(cu_q + sequence + 1, inside, n_q) - begin, 0)
        blocks = (length + ROWS - 1) // ROWS
        ends = total + tl.cumsum(blocks, 0)
        total += tl.sum(blocks, 0)
        passed = (ends[None, :] <= block[:, None]) & inside[None, :]
        before += tl.sum(passed.to(tl.int32), 1)
        start = tl.maximum(start, tl.max(tl.where(passed, ends[None, :], 0), 1))
    here = block < total
    q_begin = row_at(cu_q + before, here, n_q)
    k_begin = row_at(cu_k + before, here, n_k)
    q_length = tl.maximum(row_at(cu_q + before + 1, here, n_q) - q_begin, 0)
    k_length = tl.maximum(row_at(cu_k + before + 1, here, n_k) - k_begin, 0)
    shift = tl.zeros([LANES], tl.int32)
    if FROM_END:
        shift = k_length - q_length
    low = tl.where(left >= 0, shift - left, -OPEN)
    high = tl.where(right >= 0, shift + right, OPEN)
    record = records + (1 + block) * RECORD
    tl.store(record, (block - start) * ROWS, mask=here)
    tl.store(record + 1, q_begin, mask=here)
    tl.store(record + 2, q_length, mask=here)
    tl.store(record + 3, k_begin, mask=here)
    tl.store(record + 4, k_length, mask=here)
    tl.store(record + 5, low, mask=here)
    tl.store(record + 6, high, mask=here)
    if tl.program_id(0) == 0:
        tl.store(records, total)


@triton.jit
def tiles_of(record, here, KEYS: tl.constexpr, ROWS: tl.constexpr):
    """How many tiles of keys the blocks of these records see, as tiles_seen of gluon_band has it;
    none where ``here`` is not."""
    row = tl.load(record, mask=here, other=0)
    length = tl.load(record + 4, mask=here, other=0)
    low = tl.load(record + 5, mask=here, other=0)
    high = tl.load(record + 6, mask=here, other=0)
    end = tl.maximum((tl.minimum(row + ROWS + high, length) + KEYS - 1) // KEYS, 1)
    first = tl.minimum(tl.maximum(row + low, 0) // KEYS, end - 1)
    return tl.where(here, end - first, 0)


@triton.jit
def order_blocks(
    records, ordered,
    ROWS: tl.constexpr, KEYS: tl.constexpr, RECORD: tl.constexpr, LANES: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """One program: LANES records, each put after all that see more keys, or as many and come first.

    A block's place is counted, not sorted for: so each is found without the others.
    """
    total = tl.load(records)
    block = tl.program_id(0) * LANES + tl.arange(0, LANES)
    here = block < total
    record = records + (1 + block) * RECORD
    own = tiles_of(record, here, KEYS, ROWS)
    place = tl.zeros([LANES], tl.int32)
    for first in range(0, total, CHUNK):
        other = first + tl.arange(0, CHUNK)
        theirs = tiles_of(records + (1 + other) * RECORD, other < total, KEYS, ROWS)
        longer = theirs[None, :] > own[:, None]
        before = (theirs[None, :] == own[:, None]) & (other[None, :] < block[:, None])
        place += tl.sum((longer | before).to(tl.int32), 1)
    to = ordered + (1 + place) * RECORD
    for number in tl.static_range(RECORD - 1):
        tl.store(to + number, tl.load(record + number, mask=here, other=0), mask=here)
    if tl.program_id(0) == 0:
        tl.store(ordered, total)


def most_blocks(rows: int, sequences: int, queries: int) -> int:
    """No packed sequences of so many queries in all have more blocks of ``rows``; never 0, for a
    launch has a program."""
    return max(queries // rows + min(sequences, queries), 1)


def block_records(
    cu_q: torch.Tensor, cu_k: torch.Tensor, rows: int, queries: int, keys: int, band: Band
) -> torch.Tensor:
    """The list on its device: int32 (1 + blocks at most, RECORD), unused ones left empty.

    band: see masking.Band; counted from each sequence's own ends.
    """
    sequences = cu_q.shape[0] - 1
    most = most_blocks(rows, sequences, queries)
    records = torch.empty((1 + most, RECORD), device=cu_q.device, dtype=torch.int32)

    def plan() -> Launch:
        limit = min(band.left, BAND_OPEN), min(band.right, BAND_OPEN)
        numbers = (queries, keys, sequences, *limit)
        constants = {
            "ROWS": rows,
            "RECORD": RECORD,
            "OPEN": BAND_OPEN,
            "FROM_END": band.from_end,
            "LANES": LANES,
            "CHUNK": CHUNK,
        }
        return Launch(-(-most // LANES), numbers, constants, 4, 1)

    kind = cu_q.dtype, cu_k.dtype, sequences, rows, queries, keys, band
    start(list_blocks, (cu_q, cu_k, records), kind, plan)
    return records


def longest_first(records: torch.Tensor, rows: int, keys: int) -> torch.Tensor:
    """The same list, blocks that see more tiles of ``keys`` keys first; a very long one as it is.

    Programs that take every so-manieth block of it are done at about the same time.
    """
    most = records.shape[0] - 1
    if most > MOST_ORDERED:
        return records
    ordered = torch.empty_like(records)

    def plan() -> Launch:
        constants = {"ROWS": rows, "KEYS": keys, "RECORD": RECORD, "LANES": LANES, "CHUNK": CHUNK}
        return Launch(-(-most // LANES), (), constants, 4, 1)

    start(order_blocks, (records, ordered), (rows, keys, most), plan)
    return ordered
