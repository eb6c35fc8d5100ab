"""Sizes of the Gluon attention forward: its tiles, and how a call is cut into them."""

from __future__ import annotations

from typing import NamedTuple

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.gluon_band import limits_of
from trainscope_kernels.attention.gluon_packed import most_blocks
from trainscope_kernels.attention.gluon_schedule import Tiling, heads_together
from trainscope_kernels.attention.gluon_start import multiprocessors

__all__ = ["ROWS", "Plan", "band_of_call", "plan_of", "tiling_of"]

ROWS = 64
"""Queries of one wgmma; the hardware has no other."""
SHORT = 512
"""Queries up to which a causal call has tiles of its own."""


class Plan(NamedTuple):
    """How a head dimension is computed.

    main, rest: the two parts of its columns. warpgroups: of 64 queries each. keys: of a tile.
    q_in_registers: columns of Q. sums_by_thread: row sums stay apart until the end of a tile.
    consumer, producer: registers of a thread. q_stages, stages: of Q, and of K and V each.
    """

    main: int
    rest: int
    warpgroups: int
    keys: int
    q_in_registers: int
    sums_by_thread: bool
    consumer: int
    producer: int
    q_stages: int = 1
    stages: int = 2


PLANS = {
    # TFLOP/s on an H200, 4x32x4096, full / causal.
    # 128: 629 / 561 with Q in shared memory, 634 / 588 in registers.
    # 64: 453 with two warpgroups of 240 registers, 482 with three. Their Q is in shared memory to
    # the end of a block, so that the next one's needs room of its own: 8x32x2048 447 without, 466
    # with it. A third stage of K and V brings nothing.
    64: Plan(64, 0, 3, 128, 0, True, 160, 32, 2),
    96: Plan(64, 32, 2, 128, 96, False, 240, 24),
    128: Plan(128, 0, 2, 128, 128, False, 240, 24),
    # 192 and 256: with 128 keys neither the registers nor the shared memory of an SM hold S, P and
    # O, or two stages of K and V. 192 at 2x16x4096: 572 / 468, where cuDNN has 655 / 562.
    192: Plan(128, 64, 2, 64, 192, False, 240, 24),
    # Half of Q in registers: S with all of it in shared memory reads all that this can give.
    # 2x16x4096: 733 with half of it, 696 with none; causal 619 and 684.
    256: Plan(128, 128, 2, 64, 128, False, 240, 24),
}
MASKED = {
    **PLANS,
    # Three warpgroups' block of 192 queries has a diagonal of two steps of 128 keys, and often
    # ends in the void. Causal 16x32x1024 / 8x32x2048: 282 / 365 with three, 313 / 381 with two.
    64: Plan(64, 0, 2, 128, 64, True, 240, 24),
    256: PLANS[256]._replace(q_in_registers=0),
}
"""Those of calls with a mask or a softcap, which need registers of their own."""
SHORT_CAUSAL = {
    # A diagonal of 64 keys leaves less to hide, which counts where it is most of the work: causal
    # 32x32x512 238, where 128 keys have 222; 16x32x1024 290 and 306.
    64: Plan(64, 0, 2, 64, 64, True, 240, 24, stages=4),
}


class Band(NamedTuple):
    """The keys that a query sees, and the kind of mask that takes: see gluon_band."""

    low: int
    high: int
    mask: str


def band_of_call(call: Call) -> Band:
    """What a query sees in columns from its own number on, and the cheapest mask for it."""
    if call.cu_q is not None:
        return Band(0, 0, "band")  # each sequence has its own
    queries, keys = call.q.shape[2], call.k.shape[2]
    plan_keys = PLANS[call.q.shape[3]].keys
    whole = keys % plan_keys == 0
    low, high = limits_of(call)
    if low <= 1 - queries and high >= keys - 1:
        return Band(low, high, "none" if whole else "end")
    one_tile = high >= 0 and high % plan_keys == 0 and queries + high <= keys
    return Band(low, high, "diagonal" if low <= 1 - queries and one_tile else "band")


def plan_of(call: Call) -> Plan:
    """How the call's heads are computed."""
    queries, dim = call.q.shape[2:]
    mask = band_of_call(call).mask
    if mask in ("none", "end") and call.softcap == 0:
        return PLANS[dim]
    if mask == "diagonal" and queries <= SHORT and dim in SHORT_CAUSAL:
        return SHORT_CAUSAL[dim]
    return MASKED[dim]


def tiling_of(call: Call) -> Tiling:
    """How the call is cut into tiles, and on how many programs."""
    batch, heads, queries, dim = call.q.shape
    plan = plan_of(call)
    rows = plan.warpgroups * ROWS
    instances, row_blocks = batch * heads, -(-queries // rows)
    if call.cu_q is not None:
        row_blocks = most_blocks(rows, call.cu_q.shape[0] - 1, queries)
    # a head's K and V are read by all its row blocks
    together = heads_together(call.k.shape[2] * dim * 2 * call.q.element_size())
    device = call.q.device.index
    programs = min(instances * row_blocks, multiprocessors(device))
    high = band_of_call(call).high
    return Tiling(device, instances, row_blocks, rows, plan.keys, high, together, programs)
