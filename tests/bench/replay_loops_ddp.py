"""Loops of several GPUs, one process each, with planted syncs; as in ``replay_loops``.

Only under torchrun: ``torchrun --nproc-per-node 2 tests/bench/replay_record.py OUT``.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from replay_loops import DEVICE, Keep, Step, mlp, words
from torch import nn

__all__ = ["DDP_LOOPS", "join"]


def join() -> int:
    """Join the other processes on this process's GPU; returns its rank."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return dist.get_rank()


def spread_over_gpus(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])


def ddp_item(keep: Keep) -> Step:
    """Gradients are summed over the GPUs; the loss is read at the end of each step."""
    model = spread_over_gpus(mlp(2048, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    x = torch.randn(2048, 2048, device=DEVICE)

    def step() -> None:
        words(500)
        loss = model(x).square().mean()
        loss.backward()
        if "loss" in keep:
            loss.item()  # SITE loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def ddp_mean_loss(keep: Keep) -> Step:
    """The mean loss over the GPUs is read between forward and backward."""
    model = spread_over_gpus(mlp(1024, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    x = torch.randn(4096, 1024, device=DEVICE)

    def step() -> None:
        words(300)
        loss = model(x).square().mean()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if "mean" in keep:
            mean.item()  # SITE mean
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


DDP_LOOPS = {"ddp_item": (ddp_item, ("loss",)), "ddp_mean_loss": (ddp_mean_loss, ("mean",))}
"""Each loop and the names of its syncs."""
