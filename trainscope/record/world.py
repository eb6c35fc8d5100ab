"""Which process this is among those of one launch."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

import torch

__all__ = ["World", "this_process"]


@dataclass(frozen=True)
class World:
    """Rank, number of ranks, and a name that only the ranks of this launch share."""

    rank: int
    size: int
    launch_id: str


def this_process() -> World:
    """Ask torch.distributed where it runs, else torchrun's environment; else it is alone."""
    env = os.environ
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    else:
        rank, size = int(env.get("RANK", "0")), int(env.get("WORLD_SIZE", "1"))
    if size == 1:
        return World(0, 1, uuid.uuid4().hex)
    parts = [
        env.get("TORCHELASTIC_RUN_ID", "none"),
        env.get("TORCHELASTIC_RESTART_COUNT", "0"),
        env.get("MASTER_ADDR", ""),
        env.get("MASTER_PORT", ""),
    ]
    if env.get("LOCAL_WORLD_SIZE") == str(size):
        # the launcher is our parent on this one host: tells two launches on one port apart
        parts.append(str(os.getppid()))
    return World(rank, size, "-".join(parts))
