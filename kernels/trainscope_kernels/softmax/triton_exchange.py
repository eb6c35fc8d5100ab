"""How the programs that share a row tell one another their part of it, and why that always ends.

A program that waits has published its own part before, so it only waits for others to start:

- Programs are numbered as they start (``ticket``), whatever the order of the grid. All rows but
  the one that is being started have every program they need: those end and make room. The
  programs that wait for one that has not started are thus fewer than a row's shares.
- For these and one more there is room. ``launch.room_on`` lets so few wait that four launches may
  be half started at once and each program may need a multiprocessor for itself; it counts those
  of the MIG slice, or of the MPS client's part. A GPU starts all programs of one launch before
  those of the next with the same priority, and torch has four priorities. CUDA promises no such
  order; experiments found it (Amert et al., "GPU Scheduling on the NVIDIA TX2", RTSS 2017).
- Who waits keeps its place and stops nobody: other warps get their turns, and a time slice or a
  debugger stops and continues all programs of a process together.

Not counted are green contexts (some of the multiprocessors for some of the streams), and other MPS
clients where none has a part of its own: impl="reference" is the way out there.

A word is never one of an earlier launch: each call makes its words anew and fills them with zeros
on its kernels' stream. Their memory goes to later work of that stream only, and an exception
leaves none behind. In a captured graph the fill is part of each replay, and replays of one graph
follow one another.

The words carry all there is to know, so nothing else has to be visible with them: relaxed order
is enough.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["combined", "published", "still_packed", "ticket"]


@triton.jit
def ticket(words_ptr, TOGETHER: tl.constexpr, WIDE: tl.constexpr):
    """This program's number, from which its tile and its share follow."""
    if TOGETHER:
        # the word before those of the shares
        program = tl.atomic_add(words_ptr, 1, sem="relaxed")
    else:
        program = tl.program_id(0)
    if WIDE:
        return program.to(tl.int64)
    return program.to(tl.int32)


@triton.jit
def published(words_ptr, row, share, rows, shares, largest, total):
    """Leave one share's maximum and sum of each row for the other shares.

    In float32 both go in one 64-bit word, so that whoever reads it has either nothing (0) or all:
    no fence and no flag. The word is never 0, for a sum of 0 comes with a maximum of -inf.
    """
    place = row.to(tl.int64) * shares + share
    if total.dtype == tl.float64:
        words_ptr += 2 * place + 1
        tl.store(words_ptr, largest.to(tl.int64, bitcast=True), mask=row < rows)
        tl.store(words_ptr + 1, total.to(tl.int64, bitcast=True), mask=row < rows)
    else:
        high = largest.to(tl.int32, bitcast=True).to(tl.int64) << 32
        low = total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
        tl.atomic_xchg(words_ptr + 1 + place, high | low, mask=row < rows, sem="relaxed")


@triton.jit
def combined(
    words_ptr, row, rows, shares,
    DTYPE: tl.constexpr,
    SHARES: tl.constexpr,
    AXIS: tl.constexpr,
    WAIT: tl.constexpr,
):  # fmt: skip
    """Every share's maximum and sum, shares along AXIS; absent ones are -inf and 0.

    WAIT: read until all are there. The order of the shares, and so the result, is fixed.
    """
    share = tl.arange(0, SHARES)
    if AXIS == 1:
        share = share[None, :]
    else:
        share = share[:, None]
    place = row.to(tl.int64) * shares + share
    there = (row < rows) & (share < shares)
    if tl.float64 == DTYPE:
        words_ptr += 2 * place + 1
        largest = tl.load(words_ptr, mask=there, other=0).to(tl.float64, bitcast=True)
        total = tl.load(words_ptr + 1, mask=there, other=0).to(tl.float64, bitcast=True)
    else:
        words_ptr += 1 + place
        # volatile: each turn reads what the others' programs wrote, past this one's L1
        word = tl.load(words_ptr, mask=there, other=1, volatile=True)
        if WAIT:
            while tl.min(tl.min((word != 0).to(tl.int32), axis=1), axis=0) == 0:
                word = tl.load(words_ptr, mask=there, other=1, volatile=True)
        largest = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        total = word.to(tl.int32).to(tl.float32, bitcast=True)
    return tl.where(there, largest, float("-inf")), tl.where(there, total, 0.0)


@triton.jit
def still_packed(values):
    """The same values, of which the compiler does not know that it has them in float32 already.

    It would keep the converted ones while programs wait, two registers for two 16-bit values
    where one does.
    """
    if values.dtype.primitive_bitwidth == 16:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [values], dtype=values.dtype, is_pure=False, pack=2
        )
    return values
