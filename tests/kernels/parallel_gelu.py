"""Trains a small model with our GELU under DDP or FSDP2 and compares it with one process.

``python parallel_gelu.py ddp|fsdp IMPL`` starts two ranks, each of which prints one line.
"""

from __future__ import annotations

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from trainscope_kernels import GELU

RANKS = 2
BATCH, FEATURES, STEPS = 8, 16, 3


def model(impl: str, device: torch.device) -> torch.nn.Sequential:
    torch.manual_seed(1)
    layers = [
        torch.nn.Linear(FEATURES, 4 * FEATURES),
        GELU("tanh", impl=impl),
        torch.nn.Linear(4 * FEATURES, FEATURES),
        GELU(impl=impl),
    ]
    return torch.nn.Sequential(*layers).to(device)


def train(trained: torch.nn.Module, batches: list[torch.Tensor]) -> list[float]:
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    losses = []
    for batch in batches:
        loss = trained(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [each.item() for each in losses]


def work(rank: int, meeting: str, way: str, impl: str) -> None:
    cuda = torch.cuda.is_available()
    torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if cuda else "gloo", init_method=meeting, rank=rank, world_size=RANKS
    )
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(2)
    whole = [torch.randn(BATCH, FEATURES).to(device) for _ in range(STEPS)]
    alone = train(model(impl, device), whole)
    parallel = model(impl, device)
    if way == "ddp":
        parallel = DistributedDataParallel(parallel)
    else:
        fully_shard(parallel)
    share = [batch.chunk(RANKS)[rank] for batch in whole]
    losses = torch.tensor(train(parallel, share), device=device)
    dist.all_reduce(losses)
    torch.testing.assert_close((losses / RANKS).cpu(), torch.tensor(alone), rtol=1e-4, atol=1e-6)
    print("the same losses")
    del parallel
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    way, impl = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        meeting = f"file://{directory}/meeting"
        torch.multiprocessing.spawn(work, (meeting, way, impl), nprocs=RANKS)


if __name__ == "__main__":
    main()
