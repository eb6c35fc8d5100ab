"""Trains a small model with our kernels under DDP or FSDP2 and compares it with one process.

``python parallel_model.py ddp|fsdp|compiled IMPL`` starts two ranks, each of which prints one line.
"""

from __future__ import annotations

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from trainscope_kernels import GELU, Attention, Softmax

RANKS = 2
BATCH, LENGTH, FEATURES, HEADS, STEPS = 8, 12, 32, 2, 3


class Block(torch.nn.Module):
    """Attention and an MLP whose features are weighed by a softmax."""

    def __init__(self, impl: str) -> None:
        super().__init__()
        # the CUDA kernels are GELU's; the others have theirs in Triton
        others = "triton" if impl == "cuda" else impl
        self.qkv = torch.nn.Linear(FEATURES, 3 * FEATURES)
        self.attention = Attention(causal="top-left", impl=others)
        self.gate = Softmax(-1, impl=others)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 4 * FEATURES),
            GELU("tanh", impl=impl),
            torch.nn.Linear(4 * FEATURES, FEATURES),
            GELU(impl=impl),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = self.attention(*heads).transpose(1, 2).reshape(batch, length, FEATURES)
        return self.mlp(x + mixed) * self.gate(mixed)


def model(impl: str, device: torch.device) -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(*[Block(impl) for _ in range(2)]).to(device)


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
    whole = [torch.randn(BATCH, LENGTH, FEATURES).to(device) for _ in range(STEPS)]
    alone = train(model(impl, device), whole)
    parallel = model(impl, device)
    if way == "ddp":
        parallel = DistributedDataParallel(parallel)
    else:
        for block in parallel:
            fully_shard(block)
        fully_shard(parallel)
    if way == "compiled":
        parallel.compile(backend="aot_eager")
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
