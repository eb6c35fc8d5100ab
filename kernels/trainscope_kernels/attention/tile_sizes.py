"""Tile sizes of the attention kernels, by GPU and head dimension, with the reason for each."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from trainscope_kernels.impls import interpreting

__all__ = ["Tile", "delta_rows", "dkdv_tile", "dq_tile", "forward_tile", "padded"]


class Tile(NamedTuple):
    """Queries and keys of one step of a kernel, and how many warps and stages work on it."""

    queries: int
    keys: int
    warps: int
    stages: int


INTERPRETED = Tile(32, 16, 4, 1)
"""Unequal and small, so that small tests have many boundaries of both kinds."""


def padded(dim: int) -> int:
    """The power of two that a head dimension is padded to inside; a dot needs 16 at least."""
    return 16 if dim <= 16 else 1 << (dim - 1).bit_length()


def forward_tile(q: torch.Tensor, v: torch.Tensor) -> Tile:
    """The forward's tile for these heads on their device."""
    return _pick("forward", _generation(q.device), padded(max(q.shape[3], v.shape[3])), q.itemsize)


def dkdv_tile(q: torch.Tensor, v: torch.Tensor) -> Tile:
    """The tile of the kernel that makes the gradients of keys and values."""
    return _pick("dkdv", _generation(q.device), padded(max(q.shape[3], v.shape[3])), q.itemsize)


def dq_tile(q: torch.Tensor, v: torch.Tensor) -> Tile:
    """The tile of the kernel that makes the gradient of the queries."""
    return _pick("dq", _generation(q.device), padded(max(q.shape[3], v.shape[3])), q.itemsize)


def delta_rows(value_dim: int) -> int:
    """Rows a program of the row-term kernel takes: about 8,192 elements."""
    return max(16, 8192 // padded(value_dim))


def _generation(device: torch.device) -> str:
    if interpreting():
        return "interpreter"
    return "hopper" if _capability(device.index or 0)[0] >= 9 else "ampere"


@functools.cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


TABLE: dict[tuple[str, str, int], dict[int, Tile]] = {
    ("hopper", "forward", 2): {
        64: Tile(128, 128, 8, 3),
        128: Tile(128, 64, 8, 3),
        256: Tile(128, 64, 8, 2),
    },
}


@functools.cache
def _pick(kernel: str, generation: str, dim: int, itemsize: int) -> Tile:
    if generation == "interpreter":
        return INTERPRETED
    by_dim = TABLE[generation, kernel, itemsize]
    return by_dim[min(each for each in by_dim if each >= dim)]
