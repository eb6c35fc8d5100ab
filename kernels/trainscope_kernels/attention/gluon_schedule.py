"""Which program of the Gluon forward works on which tiles of a causal call: a list for each.

Causal tiles take from 1 to n steps, and the order decides (forward, H200, 4x32x4096x128, TFLOP/s):
no grouping of heads 477, up and down in turns 484 (it resonates with 132 programs), longest first
in groups of heads that share the L2 cache 543, these lists 561 to 595. Without a mask all tiles are
equally long and every programs-th one is as good.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import torch

from trainscope_kernels.errors import KernelError

__all__ = ["Tiling", "balanced_lists", "heads_together", "is_ready", "schedule_on"]

L2_SHARE = 32 * 2**20
"""Bytes; about half of the L2 cache of an H100 or H200."""
TILE_COST = 2
"""Steps that a tile takes beside its own. Of seven causal shapes 2 was the faster in all beside 1,
by 0.1 to 0.7 %, and as fast as 3."""


class Tiling(NamedTuple):
    """How a forward is cut up.

    instances: heads of all batches. row_blocks: of each head. rows, keys: of a row block and of a
    step. high: the last key that query 0 sees. together: heads whose programs run at the same time.
    programs: on the whole device.
    """

    device: int
    instances: int
    row_blocks: int
    rows: int
    keys: int
    high: int
    together: int
    programs: int


def heads_together(bytes_a_head: int) -> int:
    """How many heads have what their programs read fit in the L2 cache at once."""
    return max(1, L2_SHARE // bytes_a_head)


def balanced_lists(
    instances: int, steps: list[int], together: int, programs: int
) -> tuple[list[int], list[int]]:
    """(table, lists): tiles of each program one after the other; then where each list stands.

    instances: heads of all batches. steps: what each row block of a head takes; tile number
    ``instance * len(steps) + row_block``. together: heads that run at the same time.
    lists: as many tiles of each program, then as many offsets into the table. A list ends with
    an entry that is fetched and not used.

    In each group of heads the longest tiles come first; each goes to the program free first.
    """
    free = [(0, program) for program in range(programs)]
    taken: list[list[int]] = [[] for _ in range(programs)]
    blocks = len(steps)
    for group in range(0, instances, together):
        for block in sorted(range(blocks), key=lambda each: -steps[each]):
            for instance in range(group, min(group + together, instances)):
                busy, program = free[0]
                taken[program].append(instance * blocks + block)
                # beside its steps there are its Q, its first mask and its output
                heapq.heapreplace(free, (busy + steps[block] + TILE_COST, program))
    table: list[int] = []
    offsets: list[int] = []
    for each in taken:
        offsets.append(len(table))
        table += [*each, 0]
    return table, [len(each) for each in taken] + offsets


_ready: dict[Tiling, tuple[torch.Tensor, torch.Tensor]] = {}


def is_ready(tiling: Tiling) -> bool:
    """Whether the lists of these causal calls are on their device."""
    return tiling in _ready


def schedule_on(tiling: Tiling) -> tuple[torch.Tensor, torch.Tensor]:
    """The lists of a causal call on its device: int32 tensors (table, lists), kept for good.

    Lengths that give as many row blocks share one. About 4 bytes a tile; never freed, since a
    stream that still reads them may be any.
    """
    found = _ready.get(tiling)
    if found is None:
        found = _ready[tiling] = _made(tiling)
    return found


def _made(tiling: Tiling) -> tuple[torch.Tensor, torch.Tensor]:
    if torch.cuda.is_current_stream_capturing():
        raise KernelError(
            "flash_attention meets a causal call of a new shape while a CUDA graph is captured, "
            "and would have to copy its schedule to the GPU: call it once before the capture"
        )
    device, instances, row_blocks, rows, keys, high, together, programs = tiling
    steps = [-(-((block + 1) * rows + high) // keys) for block in range(row_blocks)]
    both = [
        torch.tensor(each, dtype=torch.int32)
        for each in balanced_lists(instances, steps, together, programs)
    ]
    # Once a shape: the copy is waited for, because the next to read it may be another stream. On
    # a stream of its own it waits for the few kilobytes and not for what the GPU has queued.
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        table, lists = (each.pin_memory().to(f"cuda:{device}", non_blocking=True) for each in both)
    stream.synchronize()
    return table, lists
