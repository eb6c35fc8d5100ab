"""Tile sizes of the attention kernels, by GPU and head dimension, with the reason for each.

Chosen among those that compile without spills in their inner loop and fit into shared memory
(kernels/bench/tune_attention.py times the candidates). Static: nothing is tuned while it runs,
so a CUDA graph can capture the first call of a shape.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from trainscope_kernels.impls import interpreting

__all__ = ["Tile", "delta_rows", "padded", "pick_tile"]


class Tile(NamedTuple):
    """Queries and keys of one step of a kernel, and how many warps and stages work on it."""

    queries: int
    keys: int
    warps: int
    stages: int


HOPPER = {
    # Measured on an H200 (kernels/bench/results/attention_tiles_h200.txt), in TFLOP/s of full
    # attention. Small tiles of one warpgroup win, for two programs share a multiprocessor and the
    # one multiplies while the other is at its softmax.
    # Dim 64: 64 x 64 has 438, 128 x 64 429, 128 x 128 358. Dim 128: 64 x 64 in three stages 484,
    # 128 x 64 472, 128 x 128 448. Dim 256: 128 x 64 has 508, 128 x 32 465, 64 x 32 388.
    "forward": {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(128, 64, 8, 2)},
    # Dim 64: 556, 64 x 128 in three stages 424. Dim 128: 604, 64 x 128 in three stages 568. At dim
    # 256 no tile is free of spills: 64 x 64 has 302, 32 x 64, with the fewest, 209.
    "dkdv": {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 2), 256: Tile(64, 64, 8, 2)},
    # Dim 64: 604, as 128 x 64 with 8 warps, which has 416 causal where this has 534. Dim 128: 639,
    # 128 x 128 617, 64 x 64 570. Dim 256: 482 in one stage, 128 x 32 421, 64 x 32 341.
    "dq": {64: Tile(64, 64, 4, 3), 128: Tile(128, 64, 8, 3), 256: Tile(128, 64, 8, 1)},
}
AMPERE = {
    # Within 99 KB, what compute capability 8.6, 8.9 and 12.0 have; 128 x 128 spills at dim 128.
    "forward": {64: Tile(128, 64, 4, 3), 128: Tile(128, 64, 8, 2), 256: Tile(64, 32, 4, 2)},
    "dkdv": {64: Tile(64, 128, 8, 2), 128: Tile(64, 64, 8, 2), 256: Tile(16, 64, 8, 2)},
    "dq": {64: Tile(64, 64, 4, 2), 128: Tile(64, 64, 8, 2), 256: Tile(64, 16, 8, 2)},
}
FLOAT32 = {
    # Within 99 KB on every GPU; a float32 product takes three tf32 ones, whose operands spill.
    "forward": {64: Tile(64, 32, 4, 2), 128: Tile(32, 32, 4, 2), 256: Tile(32, 16, 8, 2)},
    "dkdv": {64: Tile(32, 64, 4, 2), 128: Tile(32, 32, 4, 2), 256: Tile(16, 32, 8, 2)},
    "dq": {64: Tile(64, 32, 4, 2), 128: Tile(32, 32, 4, 2), 256: Tile(32, 16, 8, 2)},
}
INTERPRETED = Tile(32, 16, 4, 1)
"""Unequal and small, so that small tests have many boundaries of both kinds."""


def padded(dim: int) -> int:
    """The power of two that a head dimension is padded to inside; a dot needs 16 at least."""
    return 16 if dim <= 16 else 1 << (dim - 1).bit_length()


def delta_rows(value_dim: int) -> int:
    """Rows a program of the row-term kernel takes: about 8,192 elements."""
    return max(16, 8192 // padded(value_dim))


def pick_tile(kernel: str, q: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> Tile:
    """The tile of "forward", "dkdv" or "dq" for these heads on their device."""
    if interpreting():
        return INTERPRETED
    major = _capability_major(q.device.index or 0)
    return tile_for(kernel, major, max(q.shape[3], v.shape[3]), q.dtype, mask is not None)


@functools.cache
def _capability_major(index: int) -> int:
    return torch.cuda.get_device_capability(index)[0]


@functools.cache
def tile_for(kernel: str, major: int, dim: int, dtype: torch.dtype, masked: bool) -> Tile:
    """The tile by compute capability (its major number), larger head dim and dtype.

    masked: with a mask tensor, whose tiles take registers and shared memory of their own.
    """
    if dtype == torch.float32:
        table = FLOAT32
    else:
        table = HOPPER if major in (9, 10) and not masked else AMPERE
    by_dim = table[kernel]
    return by_dim[min(each for each in by_dim if each >= dim)]
