"""What the partitions of Gluon's attention kernels share: rings of buffers, and lists of tiles.

A ring is a tuple (tiles, full, empty): buffers in shared memory, and two mbarriers for each of
them. The producer waits for ``empty``, then starts the copy that completes ``full``; a consumer
waits for ``full``, reads, and arrives on ``empty``. Each of them counts the stages by itself and
flips the phase that it waits for each time around. A new barrier is in phase 0, so a wait for
phase 1 passes at once: the producer begins with 1, since every stage is empty, a consumer with 0.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

__all__ = [
    "advance",
    "block_of",
    "copy_in",
    "head_and_block",
    "init_ring",
    "tile_after",
    "tiles_of_program",
]


@gluon.jit
def init_ring(full, empty, STAGES: gl.constexpr, FILLS: gl.constexpr, READERS: gl.constexpr):
    """Set the barriers up: FILLS arrivals make a stage full, READERS make it empty."""
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=FILLS)
        mbarrier.init(empty.index(stage), count=READERS)


@gluon.jit
def advance(stage, phase, STAGES: gl.constexpr):
    """The next stage of a ring, and the phase to wait for there."""
    if STAGES == 1:
        return stage, phase ^ 1
    else:
        stage = stage + 1
        around = stage == STAGES
        return gl.where(around, 0, stage), gl.where(around, phase ^ 1, phase)


@gluon.jit
def copy_in(tensor_map, place, ring, stage, phase, STAGES: gl.constexpr):
    """Producer: once the consumers have left the stage, start the copy that fills it."""
    tiles, full, empty = ring
    mbarrier.wait(empty.index(stage), phase)
    mbarrier.expect(full.index(stage), tensor_map.block_type.nbytes)
    tma.async_copy_global_to_shared(tensor_map, place, full.index(stage), tiles.index(stage))
    return advance(stage, phase, STAGES)


@gluon.jit
def tiles_of_program(schedule, TABLE: gl.constexpr):
    """How many tiles this program works on, where its list of them starts, and its first one."""
    table, lists, tiles = schedule
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    if TABLE:
        listed_at = table + gl.load(lists + programs + program)
        return gl.load(lists + program), listed_at, gl.load(listed_at)
    else:
        return (tiles - program + programs - 1) // programs, table, program


@gluon.jit
def tile_after(turn, tile, listed_at, TABLE: gl.constexpr):
    """The tile of the next turn, fetched a turn early: its latency then hides behind the work.

    Without a table row blocks of one head are neighbours: programs that run together share its K
    and V in L2. A list has one entry more than tiles, so that this may read past the last turn.
    """
    if TABLE:
        return gl.load(listed_at + turn + 1)
    else:
        return tile + gl.num_programs(0)


@gluon.jit
def head_and_block(tile, row_blocks, heads, together, PACKED: gl.constexpr):
    """The head, counted through all batches, and the block of its queries that a tile is.

    PACKED: blocks are listed longest first, so that neighbours in the list need not share keys. The
    keys of ``together`` heads share the L2 cache, whose tiles come before those of others.
    """
    if PACKED:
        group = tile // (together * row_blocks)
        inside = tile - group * together * row_blocks
        here = gl.minimum(heads - group * together, together)
        row_block = inside // here
        return group * together + inside - row_block * here, row_block
    else:
        instance = tile // row_blocks
        return instance, tile - instance * row_blocks


@gluon.jit
def block_of(
    records, row_block, length_q, length_k, low, high, QUERIES: gl.constexpr, PACKED: gl.constexpr
):  # fmt: skip
    """Where a block of queries is: its first query, the first row and the length of its sequence's
    queries, then of its keys, and its band.

    records: of packed sequences, see gluon_packed; else all are one sequence of these lengths. A
    record is read each time that it is asked for, so that nobody has to keep it in registers.
    """
    if PACKED:
        record = records + (1 + row_block) * 8
        row = gl.load(record, volatile=True)
        q_from = gl.load(record + 1, volatile=True)
        length_q = gl.load(record + 2, volatile=True)
        k_from = gl.load(record + 3, volatile=True)
        length_k = gl.load(record + 4, volatile=True)
        low = gl.load(record + 5, volatile=True)
        high = gl.load(record + 6, volatile=True)
        return row, q_from, length_q, k_from, length_k, low, high
    else:
        return row_block * QUERIES, 0, length_q, 0, length_k, low, high
