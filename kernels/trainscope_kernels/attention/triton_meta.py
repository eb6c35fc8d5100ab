"""What the attention kernels that multiply are compiled for, in one place for all three."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

__all__ = ["NOT_SPECIALIZED", "Meta", "meta"]

NOT_SPECIALIZED = ["n_q", "n_k", "heads", "group", "instances", "tiles", "sequences", "together"]
NOT_SPECIALIZED += ["left", "right"]
"""Numbers of which no value has a kernel of its own; as one tuple Triton would look at each."""


class Meta(NamedTuple):
    """The kernels' one constexpr argument; each field is a constexpr itself.

    A bare string in it would be no constexpr, and Triton's ``==`` of the two is always true.
    """

    VARLEN: Any
    """Packed sequences: cu_q and cu_k are there."""
    MASK: Any
    """"none", "hide" (boolean) or "add"."""
    SOFTCAP: Any
    FOLD: Any
    """Forward: the scale goes into the exponent, for nothing else touches the scores."""
    HAS_LEFT: Any
    HAS_RIGHT: Any
    """Whether the band has a limit on that side."""
    FROM_END: Any
    """The last query is level with the last key."""
    RAGGED: Any
    """The last tile of the looped axis may be cut short."""
    DIM: Any
    VALUE_DIM: Any
    BLOCK_M: Any
    """Queries of a tile."""
    BLOCK_N: Any
    """Keys of a tile."""
    BLOCK_DIM: Any
    BLOCK_VALUE: Any
    """DIM and VALUE_DIM, padded to a power of two."""
    OFFSET: Any
    """Type of offsets inside a tile."""
    WIDE: Any
    """Type of scores and sums."""
    PRECISION: Any
    """Of float32 products."""


def meta(**values: Any) -> Meta:
    """Meta of these plain values."""
    return Meta(**{name: tl.constexpr(value) for name, value in values.items()})
