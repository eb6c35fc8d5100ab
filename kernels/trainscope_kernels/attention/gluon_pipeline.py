"""What the partitions of Gluon's attention kernels share: ring buffers, and who works on which tile.

A ring is a tuple (tiles, full, empty): buffers in shared memory, and two mbarriers for each. The
producer waits for ``empty`` of a stage, copies into it and so completes ``full``; a consumer waits
for ``full``, reads, and arrives on ``empty``. Both count stages and flip the phase they wait for
each time around. A barrier starts in phase 0, so a wait for phase 1 passes at once: the producer
begins with phase 1 since every stage is empty, a consumer with phase 0.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# (what @gluon.jit adds to a function is not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

__all__ = ["advance", "copy_in", "init_ring", "tile_at", "tiles_of_program"]


@gluon.jit
def init_ring(full, empty, stages: gl.constexpr, fills: gl.constexpr, readers: gl.constexpr):
    """Set up the barriers: ``fills`` arrivals make a stage full, ``readers`` make it empty."""
    for stage in gl.static_range(stages):
        mbarrier.init(full.index(stage), count=fills)
        mbarrier.init(empty.index(stage), count=readers)


@gluon.jit
def advance(stage, phase, STAGES: gl.constexpr):
    """The next stage of a ring, and the phase to wait for there."""
    stage = stage + 1
    around = stage == STAGES
    return gl.where(around, 0, stage), gl.where(around, phase ^ 1, phase)


@gluon.jit
def copy_in(tensor_map, place, ring, stage, phase, STAGES: gl.constexpr):
    """Producer: once the consumers have left the stage, start the copy that will fill it."""
    tiles, full, empty = ring
    mbarrier.wait(empty.index(stage), phase)
    mbarrier.expect(full.index(stage), tensor_map.block_type.nbytes)
    tma.async_copy_global_to_shared(tensor_map, place, full.index(stage), tiles.index(stage))
    return advance(stage, phase, STAGES)


@gluon.jit
def tiles_of_program(schedule, TABLE: gl.constexpr):
    """How many tiles this program works on, and where its list of them starts."""
    table, lists, tiles = schedule
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    if TABLE:
        return gl.load(lists + program), table + gl.load(lists + programs + program)
    else:
        return (tiles - program + programs - 1) // programs, table


@gluon.jit
def tile_at(turn, listed, row_blocks, TABLE: gl.constexpr):
    """(row block, head) of a program's tile: what its list says, or every programs-th one.

    Row blocks of one head are neighbours, so programs that run together share its K and V in L2.
    """
    tile = listed
    if not TABLE:
        tile = turn * gl.num_programs(0) + gl.program_id(0)
    head = tile // row_blocks
    return tile - head * row_blocks, head
