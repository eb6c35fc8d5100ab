"""A small GPT that learns to write the source code of trainscope itself, letter by letter."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import trainscope as ts
import trainscope_kernels


class Block(nn.Module):
    """Causal self-attention and an MLP, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, sequence, width) to the same shape."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, sequence, head_dim)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Byte-level language model: (batch, sequence) bytes to (batch, sequence, 256) logits."""

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each next byte."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position(positions))))


def batches(text: bytes, count: int, size: int, context: int) -> Iterator[torch.Tensor]:
    """Yield random windows of the text, (size, context + 1) int64, pinned where a GPU waits."""
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    for _ in range(count):
        starts = torch.randint(len(data) - context - 1, (size, 1))
        batch = data[starts + torch.arange(context + 1)].long()
        yield batch.pin_memory() if torch.cuda.is_available() else batch


def main() -> None:
    """Train, then print where the time went."""
    parser = argparse.ArgumentParser(description="A small GPT on source code.")
    parser.add_argument("--run-dir", default="runs/transformer")
    sizes = {"steps": 60, "width": 128, "layers": 2, "head-dim": 32, "context": 128}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("bf16", "compile", "kernels"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text = b"\n".join(p.read_bytes() for p in sorted(Path(ts.__file__).parent.rglob("*.py")))
    width, context = options.width, options.context
    model = GPT(width, options.layers, width // options.head_dim, context).to(device)
    if options.kernels:
        print(trainscope_kernels.swap(model))
    if options.compile:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with ts.Scope(options.run_dir, schedule=ts.Schedule(wait=20, warmup=3, active=4)) as scope:
        scope.wrap(model, optimizer)
        for batch in scope.steps(batches(text, options.steps, 16, options.context)):
            batch = batch.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
                logits = model(batch[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scope.log(loss=loss)
    print(scope.report())
    print(f"last loss: {scope.latest('loss'):.3f} nats a byte")


if __name__ == "__main__":
    main()
