"""A student beside a frozen teacher: three losses into a dict of floats, an average of weights."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, WIDTH, DEPTH = (4096, 2048, 8) if DEVICE == "cuda" else (8, 8, 2)


def mlp(depth: int) -> nn.Sequential:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(depth)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1000)).to(DEVICE)


class Parts:
    def __init__(self) -> None:
        self.teacher, self.student, self.average = mlp(2 * DEPTH).eval(), mlp(DEPTH), mlp(DEPTH)
        self.average.load_state_dict(self.student.state_dict())
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=1e-2, momentum=0.9)
        self.x = torch.randn(BATCH, WIDTH, device=DEVICE)
        self.y = torch.randint(1000, (BATCH,), device=DEVICE)


def train(parts: Parts, steps: int, waits: bool = True) -> None:
    log: dict[str, list[float]] = {"hard": [], "soft": [], "total": []}
    averages, weights = [*parts.average.parameters()], [*parts.student.parameters()]
    for _ in range(steps):
        with torch.autocast(DEVICE, torch.bfloat16):
            with torch.no_grad():
                wanted = parts.teacher(parts.x)
            logits = parts.student(parts.x)
        hard = F.cross_entropy(logits.float(), parts.y)
        soft = F.kl_div(
            F.log_softmax(logits.float() / 2, -1),
            F.softmax(wanted.float() / 2, -1),
            reduction="batchmean",
        )
        total = 0.3 * hard + 0.7 * soft
        for name, value in (("hard", hard), ("soft", soft), ("total", total)):
            log[name].append(value.detach().cpu().item() if waits else 0.0)
        parts.optimizer.zero_grad()
        total.backward()
        parts.optimizer.step()
        with torch.no_grad():
            for mean, weight in zip(averages, weights, strict=True):
                mean.lerp_(weight, 0.001)


if __name__ == "__main__":
    train(Parts(), int(sys.argv[1]))
