"""An image classifier: a DataLoader, a loss that must be finite, top-1 and top-5 for a meter."""

from __future__ import annotations

import itertools
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, SIDE, WIDTH = (128, 64, 64) if DEVICE == "cuda" else (8, 8, 4)


def conv(into: int, out: int, stride: int) -> nn.Sequential:
    layer = nn.Conv2d(into, out, 3, stride, 1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(out), nn.ReLU())


class Parts:
    def __init__(self) -> None:
        widths = [3, WIDTH, WIDTH, 2 * WIDTH, 2 * WIDTH, 4 * WIDTH, 4 * WIDTH]
        layers = [conv(a, b, 1 + i % 2) for i, (a, b) in enumerate(itertools.pairwise(widths))]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * WIDTH, 100)]
        self.model = nn.Sequential(*layers, *head).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        images = torch.randn(20 * BATCH, 3, SIDE, SIDE)
        data = TensorDataset(images, torch.randint(100, (len(images),)))
        self.loader = DataLoader(data, BATCH, shuffle=True, pin_memory=DEVICE == "cuda")


class Meter:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float, n: int = 1) -> None:
        self.total += value * n
        self.count += n


def accuracy(output: torch.Tensor, target: torch.Tensor, topk: tuple[int, ...]) -> list:
    _, found = output.topk(max(topk), 1)
    right = found.t().eq(target)
    return [right[:k].flatten().float().sum(0) * (100.0 / len(target)) for k in topk]


def train(parts: Parts, steps: int, waits: bool = True) -> None:
    meters = {name: Meter() for name in ("loss", "acc1", "acc5")}
    step = 0
    while step < steps:
        for image, target in parts.loader:
            image = image.to(DEVICE, non_blocking=True)
            target = target.to(DEVICE, non_blocking=True)
            output = parts.model(image)
            loss = F.cross_entropy(output, target, label_smoothing=0.1)
            if not math.isfinite(loss.item() if waits else 0.0):
                sys.exit("loss is not finite")
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            acc1, acc5 = accuracy(output, target, topk=(1, 5))
            meters["loss"].update(loss.item() if waits else 0.0)
            meters["acc1"].update(acc1.item() if waits else 0.0, len(image))
            meters["acc5"].update(acc5.item() if waits else 0.0, len(image))
            step += 1
            if step == steps:
                break


if __name__ == "__main__":
    train(Parts(), int(sys.argv[1]))
