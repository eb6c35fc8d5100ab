"""Which process this is among those of one launch."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import torch

__all__ = ["World", "this_process"]


@dataclass(frozen=True)
class World:
    """Rank, number of ranks, and a name that only the ranks of this launch share."""

    rank: int
    size: int
    launch_id: str
    note: str | None = None
    """What was wrong with the environment, for the report."""


_MOST_RANKS = 1_000_000


def this_process() -> World:
    """Ask torch.distributed where it runs, else torchrun's environment; else it is alone."""
    env = os.environ
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        note = None
    else:
        rank, size, note = _of_launcher(env)
    if size == 1:
        return World(0, 1, uuid.uuid4().hex, note)
    parts = [
        env.get("TORCHELASTIC_RUN_ID", "none"),
        env.get("TORCHELASTIC_RESTART_COUNT", "0"),
        env.get("MASTER_ADDR", ""),
        env.get("MASTER_PORT", ""),
        str(size),  # a launch of two, then one of four: ranks 2 and 3 are not of the first's run
    ]
    if env.get("LOCAL_WORLD_SIZE") == str(size):
        # the launcher is our parent on this one host: tells two launches on one port apart
        parts.append(str(os.getppid()))
    return World(rank, size, "-".join(parts))


def _of_launcher(env: Mapping[str, str]) -> tuple[int, int, str | None]:
    """Rank, number of ranks and a note; alone where the variables are not a launcher's."""
    rank, size = env.get("RANK", "0"), env.get("WORLD_SIZE", "1")
    try:
        number, count = int(rank), int(size)
    except ValueError:
        number, count = -1, -1
    if count == 1:  # some other program's RANK
        return 0, 1, None
    if 0 <= number < count <= _MOST_RANKS:
        return number, count, None
    note = f"RANK={rank!r} and WORLD_SIZE={size!r} name no rank of a launch: taken for one process"
    return 0, 1, note
