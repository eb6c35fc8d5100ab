"""A GPT on random text: bf16 autocast, gradient clipping, loss and norm read for every log line."""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BIG = DEVICE == "cuda"
BATCH, LENGTH, WIDTH, LAYERS, WORDS = (16, 256, 384, 6, 8192) if BIG else (2, 16, 32, 1, 64)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, -1, 32)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Parts:
    def __init__(self) -> None:
        blocks = [Block() for _ in range(LAYERS)]
        layers = [nn.Embedding(WORDS, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)]
        self.model = nn.Sequential(*layers).to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.text = np.random.default_rng(0).integers(0, WORDS, 1_000_000)


def batch_of(text: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    starts = np.random.randint(0, len(text) - LENGTH - 1, BATCH)
    rows = torch.from_numpy(np.stack([text[start : start + LENGTH + 1] for start in starts]))
    if BIG:
        rows = rows.pin_memory().to(DEVICE, non_blocking=True)
    return rows[:, :-1], rows[:, 1:]


def train(parts: Parts, steps: int, waits: bool = True) -> None:
    losses, norms = [], []
    for step in range(steps):
        x, y = batch_of(parts.text)
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = parts.model(x)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), y.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parts.model.parameters(), 1.0)
        parts.optimizer.step()
        parts.optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item() if waits else 0.0)
        norms.append(norm.item() if waits else 0.0)
        if step % 50 == 0:
            print(f"step {step} loss {losses[-1]:.3f} norm {norms[-1]:.3f}")


if __name__ == "__main__":
    train(Parts(), int(sys.argv[1]))
