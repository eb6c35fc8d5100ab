"""What two consumer warpgroups of the Gluon backward need and Triton has no word for."""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["meet", "settled"]

BOTH = gl.constexpr("bar.sync 8, 256; mov.u32 $0, $1;")


@gluon.jit
def meet():
    """Wait until every thread of both consumer warpgroups is here (barrier 8 of the hardware).

    Triton itself takes barriers 0 to 3 for three warp groups. The value that passes through only
    gives the inline assembly something to return, once a thread.
    """
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    gl.inline_asm_elementwise(
        BOTH, "=r,r", [gl.arange(0, 128, layout)], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def settled(values):
    """The same values, each in a register of its own, now.

    Where the start of dP is first put together while the wgmma of S flies, ptxas waits for S before
    it (C7517), and one warpgroup's S and dP no longer overlap.
    """
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [values], dtype=gl.float32, is_pure=False, pack=1
    )
