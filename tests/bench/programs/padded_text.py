"""A text classifier that cuts each batch to its longest row and counts right answers."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, LENGTH, WIDTH, LAYERS, WORDS = (
    (32, 256, 256, 4, 8192) if DEVICE == "cuda" else (2, 8, 16, 1, 50)
)


class Parts:
    def __init__(self) -> None:
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True, norm_first=True)
        self.embed = nn.Embedding(WORDS, WIDTH).to(DEVICE)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).to(DEVICE)
        self.head = nn.Linear(WIDTH, 4).to(DEVICE)
        modules = nn.ModuleList([self.embed, self.encoder, self.head])
        self.optimizer = torch.optim.AdamW(modules.parameters(), lr=1e-4)
        self.tokens = torch.randint(1, WORDS, (64, BATCH, LENGTH), device=DEVICE)
        self.labels = torch.randint(4, (64, BATCH), device=DEVICE)
        lengths = torch.randint(LENGTH // 2, LENGTH + 1, (64, BATCH), device=DEVICE)
        lengths[:, 0] = LENGTH
        self.mask = torch.arange(LENGTH, device=DEVICE) < lengths[..., None]


def train(parts: Parts, steps: int, waits: bool = True) -> None:
    right, seen, total = 0, 0, 0.0
    for step in range(steps):
        tokens, mask, label = (each[step % 64] for each in (parts.tokens, parts.mask, parts.labels))
        most = mask.sum(1).max()
        longest = most.item() if waits else LENGTH
        tokens, mask = tokens[:, :longest], mask[:, :longest]
        hidden = parts.encoder(parts.embed(tokens), src_key_padding_mask=~mask)
        logits = parts.head((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        loss = F.cross_entropy(logits, label)
        parts.optimizer.zero_grad()
        loss.backward()
        parts.optimizer.step()
        matches = (logits.argmax(1) == label).sum()
        right += int(matches) if waits else 0
        seen += len(label)
        total += loss.item() if waits else 0.0
        print(f"\raccuracy {right / seen:.3f} loss {total / (step + 1):.3f}", end="")


if __name__ == "__main__":
    train(Parts(), int(sys.argv[1]))
