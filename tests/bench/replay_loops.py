"""Training loops with planted syncs, for asking what really happens when a sync is taken out.

Each loop is a function of ``keep``, the names of the syncs it keeps, and returns its step. A line
that syncs ends in ``# SITE name``; without the name in ``keep`` the loop does not wait there, but
does all else: the value is worked out and not read, a copy goes through pinned memory, a size is
known, a metric is of the step before. So the gain is the wait's alone, as the replay means it. What
a program needs to be right (GradScaler's look at infinity, an action for an environment) is marked
``# NEEDED name`` and always stays.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["LOOPS", "Keep", "Step"]

Keep = frozenset[str]
Step = Callable[[], object]
DEVICE = "cuda"
CPU_WORK = float(os.environ.get("LOOPS_CPU_WORK", "1"))
DEPTH = float(os.environ.get("LOOPS_DEPTH", "1"))
"""Factors on the CPU work and the number of layers: other values are other loops."""


def words(count: int) -> int:
    """CPU work as a tokenizer does it: about 0.1 ms for a count of 100."""
    chance = random.Random(count)
    text = " ".join(str(chance.randrange(1000)) for _ in range(round(CPU_WORK * count)))
    table: dict[str, int] = {}
    for word in text.split():
        table.setdefault(word, len(table))
    return len(table)


def mlp(width: int, layers: int, out: int | None = None) -> nn.Sequential:
    parts: list[nn.Module] = []
    for _ in range(max(round(DEPTH * layers), 1)):
        parts += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*parts, nn.Linear(width, out or width)).to(DEVICE)


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    """A small language model."""

    def __init__(self, width: int, heads: int, blocks: int, vocabulary: int = 4096) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(
            *(Block(width, heads) for _ in range(max(round(DEPTH * blocks), 1)))
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embed(tokens)))


def launch_bound_item(keep: Keep) -> Step:
    """Many small kernels, the loss read for a print at the end of each step."""
    model = mlp(128, 24)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x = torch.randn(64, 128, device=DEVICE)

    def step() -> None:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if "loss" in keep:
            loss.item()  # SITE loss

    return step


def amp_scaler(keep: Keep) -> Step:
    """Half precision with a GradScaler, whose own look at infinity stays."""
    model = mlp(3072, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    scaler = torch.amp.GradScaler("cuda")
    x = torch.randn(4096, 3072, device=DEVICE)

    def step() -> None:
        words(600)
        with torch.autocast("cuda", torch.float16):
            loss = model(x).float().square().mean()
        if "loss" in keep:
            loss.item()  # SITE loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # NEEDED scaler
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return step


def accumulation(keep: Keep) -> Step:
    """Four micro-batches an optimizer step, the running loss read at each."""
    model = mlp(1024, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batches = [torch.randn(2048, 1024, device=DEVICE) for _ in range(4)]

    def step() -> None:
        for batch in batches:
            words(300)
            loss = model(batch).square().mean() / 4
            loss.backward()
            if "running" in keep:
                loss.item()  # SITE running
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def evaluating(keep: Keep) -> Step:
    """Each step ends in a small evaluation whose accuracy is read."""
    model = mlp(1024, 6, out=100)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x, y = torch.randn(4096, 1024, device=DEVICE), torch.randint(100, (4096,), device=DEVICE)

    def step() -> None:
        words(400)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        model.eval()
        with torch.no_grad():
            right = (model(x[:1024]).argmax(-1) == y[:1024]).float().mean()
            if "accuracy" in keep:
                float(right)  # SITE accuracy
        model.train()

    return step


def graph_replay(keep: Keep) -> Step:
    """A captured step, CPU work between replays, the loss read after each."""
    model = mlp(2048, 6)
    x = torch.randn(2048, 2048, device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def work() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = work()

    def step() -> None:
        words(1500)
        graph.replay()
        if "loss" in keep:
            loss.item()  # SITE loss

    return step


def prefetching(keep: Keep) -> Step:
    """The next batch is copied on a side stream; events order the two streams."""
    model = mlp(2048, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    host = torch.randn(4096, 2048).pin_memory()
    side = torch.cuda.Stream()
    waiting: list[torch.Tensor] = []

    def fetch() -> None:
        with torch.cuda.stream(side):
            waiting.append(host.to(DEVICE, non_blocking=True))

    fetch()

    def step() -> None:
        torch.cuda.current_stream().wait_stream(side)
        batch = waiting.pop()
        batch.record_stream(torch.cuda.current_stream())
        fetch()
        loss = model(batch).square().mean()
        broken = torch.isnan(loss)
        if "check" in keep and broken:  # SITE check
            raise ArithmeticError
        words(900)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class _Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.rows = torch.randn(1 << 16, 512)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


def loader_workers(keep: Keep) -> Step:
    """Two DataLoader workers with pinned memory; the copy blocks where it should not."""
    loader = torch.utils.data.DataLoader(
        _Rows(), batch_size=1024, num_workers=2, pin_memory=True, persistent_workers=True
    )
    model = mlp(512, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def batches() -> Iterator[torch.Tensor]:
        while True:
            yield from loader

    feed = batches()

    def step() -> None:
        batch = next(feed)
        if "copy" in keep:
            batch = batch.to(DEVICE)  # SITE copy
        else:
            batch = batch.to(DEVICE, non_blocking=True)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def clipped_norm(keep: Keep) -> Step:
    """The gradient's norm is read between backward and the optimizer."""
    model = Gpt(512, 8, 6).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(4096, (8, 512), device=DEVICE)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if "norm" in keep:
            norm.item()  # SITE norm
        words(1200)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def labels_and_predictions(keep: Keep) -> Step:
    """Labels come from a list, predictions go to NumPy for a metric: two sites."""
    model = mlp(1024, 8, out=1000)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(4096, 1024, device=DEVICE)
    labels = [i % 1000 for i in range(4096)]
    landing = torch.zeros(4096, dtype=torch.int64).pin_memory()
    seen = np.zeros(1000, dtype=np.int64)

    def step() -> None:
        if "labels" in keep:
            y = torch.tensor(labels, device=DEVICE)  # SITE labels
        else:
            y = torch.tensor(labels, pin_memory=True).to(DEVICE, non_blocking=True)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        best = logits.argmax(-1)
        if "predictions" in keep:
            found = best.cpu()  # SITE predictions
        else:
            found = landing.clamp(0, 999)  # those of a step before
            landing.copy_(best, non_blocking=True)
        seen[:] = np.bincount(found.numpy(), minlength=1000)

    return step


def timing_by_hand(keep: Keep) -> Step:
    """torch.cuda.synchronize() around the parts of a step, to time them."""
    model = mlp(1536, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    x = torch.randn(2048, 1536, device=DEVICE)

    def step() -> None:
        loss = model(x).square().mean()
        if "forward" in keep:
            torch.cuda.synchronize()  # SITE forward
        loss.backward()
        if "backward" in keep:
            torch.cuda.synchronize()  # SITE backward
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if "optimizer" in keep:
            torch.cuda.synchronize()  # SITE optimizer

    return step


def gpu_bound(keep: Keep) -> Step:
    """Large kernels; reading the loss costs close to nothing."""
    model = Gpt(1536, 12, 6).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    tokens = torch.randint(4096, (16, 1024), device=DEVICE)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if "loss" in keep:
            loss.item()  # SITE loss

    return step


def conv_three(keep: Keep) -> Step:
    """A small convolutional net, launch-bound, with three reads in different places."""
    parts: list[nn.Module] = []
    for i in range(10):
        parts += [nn.Conv2d(3 if i == 0 else 64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    model = model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x, y = torch.randn(64, 3, 32, 32, device=DEVICE), torch.randint(10, (64,), device=DEVICE)

    def step() -> None:
        logits = model(x)
        peak = logits.detach().max()
        if "peak" in keep:
            float(peak)  # SITE peak
        loss = F.cross_entropy(logits, y)
        finite = torch.isfinite(loss)
        if "finite" in keep and not finite:  # SITE finite
            raise ArithmeticError
        loss.backward()
        largest = model[0].weight.grad.abs().max()
        if "gradient" in keep:
            largest.item()  # SITE gradient
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def sampling(keep: Keep) -> Step:
    """A policy step: the action is needed on the CPU, the statistics are not."""
    policy = mlp(512, 6, out=64)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    state = torch.randn(256, 512, device=DEVICE)
    big = torch.randn(4096, 512, device=DEVICE)

    def step() -> None:
        with torch.no_grad():
            chances = policy(state).softmax(-1)
            action = torch.multinomial(chances, 1)
        action[0].item()  # NEEDED action
        words(500)
        loss = policy(big).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        entropy = (-(chances * chances.log()).sum(-1)).mean()
        if "entropy" in keep:
            entropy.item()  # SITE entropy

    return step


def compiled_step(keep: Keep) -> Step:
    """A compiled model: Triton kernels launched through the driver, the loss read for a bar."""
    model = torch.compile(Gpt(768, 12, 4).to(DEVICE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    tokens = torch.randint(4096, (8, 512), device=DEVICE)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        if "loss" in keep:
            loss.item()  # SITE loss
        words(800)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def padded_batch(keep: Keep) -> Step:
    """Lengths decide what is kept: a mask gives a size that the CPU must read."""
    model = mlp(1024, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    x = torch.randn(4096, 1024, device=DEVICE)
    mask = torch.arange(4096, device=DEVICE) % 4 != 0
    kept = 3072

    def step() -> None:
        words(500)
        out = model(x)
        if "mask" in keep:
            chosen = out[mask]  # SITE mask
        else:
            chosen = out[torch.nonzero_static(mask, size=kept).squeeze(1)]
        loss = chosen.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


LOOPS: dict[str, tuple[Callable[[Keep], Step], tuple[str, ...]]] = {
    "launch_bound_item": (launch_bound_item, ("loss",)),
    "amp_scaler": (amp_scaler, ("loss",)),
    "accumulation": (accumulation, ("running",)),
    "evaluating": (evaluating, ("accuracy",)),
    "graph_replay": (graph_replay, ("loss",)),
    "prefetching": (prefetching, ("check",)),
    "loader_workers": (loader_workers, ("copy",)),
    "clipped_norm": (clipped_norm, ("norm",)),
    "labels_and_predictions": (labels_and_predictions, ("labels", "predictions")),
    "timing_by_hand": (timing_by_hand, ("forward", "backward", "optimizer")),
    "gpu_bound": (gpu_bound, ("loss",)),
    "conv_three": (conv_three, ("peak", "finite", "gradient")),
    "sampling": (sampling, ("entropy",)),
    "compiled_step": (compiled_step, ("loss",)),
    "padded_batch": (padded_batch, ("mask",)),
}
"""Each loop and the names of its syncs."""
