"""In which order a program of the Gluon backward goes over query blocks and the heads of a group.

WALK says what a kernel is compiled for:

    "up"     there is one head: block after block, upwards
    "heads"  head after head, each upwards
    "turns"  a block for each head of the group, then the next block, upwards or downwards
    "apart"  the same, and last the blocks that cross the diagonal of a causal mask, for which there
             is a loop of their own (see gluon_backward). Downwards they are the last anyway;
             upwards a program begins after them, at the edge, and comes round to them

Head after head where all programs have about as many blocks, with no mask or in a window: they
stay together, so that what one has read of Q and dO, and its part of dQ's workspace, is still in
the L2 cache for the others. Under a causal mask ("diagonal", see gluon_backward_mask) they have
from few to many blocks, and head after head drift apart, until the rows of a whole group are in use
at once: of 2 x 64/8 heads x 4096 x 128 two thirds come from memory, by a simulation of the cache.

In turns programs that run at the same time meet at the same blocks. Those of the first keys start
together: they go from the last block down to their diagonal, and end one after the other, who has
the most blocks last. Those that take their places then have fewer and fewer: they go up from their
diagonal, and end together. So the first ``cohort`` key blocks of a head go down, the next ones up,
and so on. "apart" they meet as well, but for their last blocks, where each is at its own diagonal.

On an H200, against head after head, the causal backward: 11 % faster in that case, 2 % with 2048
queries, 3 % with 16384, 2 % with head_dim 64; where all went down 5 %, 1 %, -1 %, -2 %. Without a
mask it is 1 % slower. In a window it was not timed: by the simulation nearly every row would come
from memory, and of head after head less than half.

A head of its own goes "up" or "apart": at head_dim 64, where nothing is apart, down and up is 1 %
slower than up. Apart it is 1 % faster than all down with 4096 queries and more, 3 % with 2048.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["after", "begin", "way_of"]


@gluon.jit
def way_of(key_block, cohort, WALK: gl.constexpr):
    """The step from a block to the next: 1 up, -1 down."""
    if WALK == "turns" or WALK == "apart":
        return (key_block // cohort & 1) * 2 - 1
    else:
        return 1


@gluon.jit
def begin(first, edge, stop, way, WALK: gl.constexpr):
    """The block to begin with, of those from ``first`` up to ``stop``; all below the edge are last.

    edge: ``first`` but where the walk is "apart"; there it may be ``stop``.
    """
    if WALK == "turns" or WALK == "apart":
        return gl.where(way > 0, gl.where(edge == stop, first, edge), stop - 1)
    else:
        return first


@gluon.jit
def after(block, member, first, stop, group, way, WALK: gl.constexpr):
    """(block, member, heads to go on by) of the step after that of a block and a member."""
    if WALK == "up":
        return block + 1, member, member * 0
    elif WALK == "heads":
        around = block + 1 == stop
        return gl.where(around, first, block + 1), member, gl.where(around, 1, 0)
    else:
        around = member + 1 == group
        block += gl.where(around, way, 0)
        if WALK == "apart":
            block = gl.where(block == stop, first, block)
        return block, gl.where(around, 0, member + 1), gl.where(around, 1 - group, 1)
