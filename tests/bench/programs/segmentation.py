"""Segmentation with ignored pixels: a boolean index in the loss, a confusion matrix on the CPU."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, SIDE, WIDTH, CLASSES, IGNORED = (
    (16, 128, 48, 21, 255) if DEVICE == "cuda" else (2, 8, 4, 3, 255)
)


class Parts:
    def __init__(self) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, WIDTH, 3, padding=1)]
        for dilation in (1, 2, 4, 8, 4, 2, 1):
            layers += [nn.Conv2d(WIDTH, WIDTH, 3, padding=dilation, dilation=dilation)]
            layers += [nn.BatchNorm2d(WIDTH), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Conv2d(WIDTH, CLASSES, 1)).to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.images = torch.randn(BATCH, 3, SIDE, SIDE, device=DEVICE)
        labels = torch.randint(CLASSES, (BATCH, SIDE, SIDE), device=DEVICE)
        self.labels = torch.where(torch.rand(labels.shape, device=DEVICE) < 0.1, IGNORED, labels)
        self.size = int((self.labels != IGNORED).sum())


def matrix_of(labels: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    places = torch.where(labels == IGNORED, CLASSES * CLASSES, labels * CLASSES + found)
    return torch.zeros(CLASSES * CLASSES + 1, device=DEVICE).scatter_add_(
        0, places.flatten(), torch.ones_like(places.flatten(), dtype=torch.float)
    )


def train(parts: Parts, steps: int, waits: bool = True) -> None:
    matrix = torch.zeros(CLASSES * CLASSES + 1)
    on_device = matrix.to(DEVICE)
    for _ in range(steps):
        logits = parts.model(parts.images)
        kept = parts.labels != IGNORED
        if waits:
            loss = F.cross_entropy(logits.movedim(1, -1)[kept], parts.labels[kept])
        else:  # the same work, at a size that is known: each index looks for its places
            places = [torch.nonzero_static(kept, size=parts.size).unbind(1) for _ in range(2)]
            loss = F.cross_entropy(logits.movedim(1, -1)[places[0]], parts.labels[places[1]])
        parts.optimizer.zero_grad()
        loss.backward()
        parts.optimizer.step()
        counts = matrix_of(parts.labels, logits.detach().argmax(1))
        if waits:
            matrix += counts.cpu()
        else:
            on_device += counts


if __name__ == "__main__":
    train(Parts(), int(sys.argv[1]))
