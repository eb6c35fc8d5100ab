"""What a call of attention is to the kernels of the Gluon backward: sizes, band and factors."""

from __future__ import annotations

from typing import NamedTuple

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.gluon_band import limits_of
from trainscope_kernels.attention.gluon_schedule import heads_together
from trainscope_kernels.attention.tile_sizes import padded

__all__ = [
    "LOG2E",
    "ROWS",
    "Band",
    "Factors",
    "Sizes",
    "band_of",
    "factors_of",
    "power_of_two",
    "sizes_of",
]

LOG2E = 1.4426950408889634
ROWS = 64
"""Queries of one wgmma; the hardware has no other."""
KEYS = 128
"""The longest tile of keys that a kernel takes; a number of keys is whole in multiples of it."""


class Sizes(NamedTuple):
    """Numbers of everything. dim: of a head; width: what it is padded to in the kernels."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    dim: int
    width: int

    @property
    def row_blocks(self) -> int:
        """Blocks of ROWS queries."""
        return -(-self.queries // ROWS)

    @property
    def key_heads_together(self) -> int:
        """How many have the Q, dO and sums of a query head each in the L2 cache at once.

        They are read and added to by all key blocks of the head, which go over the query heads of
        a group at about the same time. With few together the longest programs of the last ones come
        late: at 4 x 64/8 heads x 4096 one cost 7 %.
        """
        most = heads_together(self.queries * self.width * 8)
        return power_of_two(self.batch * self.key_heads, most)

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.key_heads


def power_of_two(number: int, most: int) -> int:
    """The largest one up to ``most`` that divides the number."""
    found = 1
    while found * 2 <= most and number % (found * 2) == 0:
        found *= 2
    return found


def sizes_of(call: Call) -> Sizes:
    """Those of its tensors."""
    batch, heads, queries, dim = call.q.shape
    return Sizes(batch, heads, call.k.shape[1], queries, call.k.shape[2], dim, padded(dim))


class Band(NamedTuple):
    """The keys that a query sees, and the kind of mask that takes: see gluon_backward_mask."""

    low: int
    high: int
    mask: str

    @property
    def is_open(self) -> bool:
        """Whether every query sees every key."""
        return self.mask in ("none", "end")


def band_of(call: Call) -> Band:
    """What a query sees in columns from its own number on, and the cheapest mask for it."""
    if call.cu_q is not None:
        return Band(0, 0, "band")  # each sequence has its own
    queries, keys = call.q.shape[2], call.k.shape[2]
    whole = keys % KEYS == 0
    low, high = limits_of(call)
    if low <= 1 - queries and high >= keys - 1:
        return Band(low, high, "none" if whole else "end")
    # where all keys exist that the last query sees, its limit hides what follows
    exist = whole or queries + high <= keys
    return Band(low, high, "diagonal" if low <= 1 - queries and exist else "band")


class Factors(NamedTuple):
    """Of the scores on their way to P, see gluon_backward; and of the LSE on its way to them.

    P is exp2(log2_scale * S), or where scores are capped of their tanh.
    """

    log2_scale: float
    tanh_scale: float
    of_lse: float
    capped: bool


def factors_of(call: Call) -> Factors:
    """Those of its scale and softcap."""
    if call.softcap == 0:
        return Factors(call.scale * LOG2E, 0.0, 1.0 / call.scale, False)
    return Factors(call.softcap * LOG2E, 2 * LOG2E * call.scale / call.softcap, LOG2E, True)
