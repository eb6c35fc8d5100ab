"""A loop with ten mistakes that make the CPU wait for the GPU, and no trainscope in it.

    trainscope run examples/slow_loop.py

names the ten lines, on a GPU with how long each waits, on a machine without one as a dry run.
A line marked MISTAKE waits in every step; a line marked FINE only looks as if it did.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def main() -> None:
    """Train a classifier of points in the plane, badly."""
    parser = argparse.ArgumentParser(description="A loop with ten mistakes.")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    points = torch.randn(options.steps, 512, 2)
    labels = (points[..., 0] > 0).long() + 2 * (points[..., 1] > 0).long()
    running, lines, hits, confident = 0.0, [], 0, 0

    for step in range(options.steps):
        x = points[step].to(device)  # MISTAKE h2d-pageable
        y = labels[step].to(device)  # MISTAKE h2d-pageable
        logits = model(x)
        losses = F.cross_entropy(logits, y, reduction="none")
        weight = torch.tensor(1.0 / (step + 1), device=device)  # MISTAKE h2d-scalar
        hard = losses.detach()[losses > losses.mean()]  # MISTAKE nonzero
        loss = losses.mean() * (1 + weight * hard.mean())
        if torch.isnan(loss):  # MISTAKE bool
            raise RuntimeError("the loss is not a number")
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # FINE
        optimizer.step()
        optimizer.zero_grad()
        running += loss.item()  # MISTAKE item
        lines.append(f"step {step}: loss {loss:.3f}")  # MISTAKE format
        if float(norm) > 100.0:  # MISTAKE float
            lines.append("the gradient was clipped hard")
        predicted = logits.argmax(dim=1)
        hits += (predicted.cpu() == labels[step]).sum()  # MISTAKE cpu
        classes = torch.unique(predicted)  # MISTAKE size-readback
        confident = confident + (logits.softmax(dim=1) > 0.9).sum()  # FINE
        logits.detach()[logits > 50.0] = 0.0  # FINE
        if classes is not None:  # FINE
            lines.append(f"{len(classes)} classes of shape {tuple(logits.shape)}")  # FINE

    print(f"mean loss {running / options.steps:.3f}, {int(hits)} hits, {len(lines)} lines")


if __name__ == "__main__":
    main()
