"""A DCGAN: two models, two optimizers, five values read in each step for a log line."""

from __future__ import annotations

import sys

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, WIDTH, NOISE = (256, 64, 100) if DEVICE == "cuda" else (4, 4, 8)


def up(into: int, out: int) -> list[nn.Module]:
    layer = nn.ConvTranspose2d(into, out, 4, 2, 1, bias=False)
    return [layer, nn.BatchNorm2d(out), nn.ReLU(True)]


def down(into: int, out: int) -> list[nn.Module]:
    layer = nn.Conv2d(into, out, 4, 2, 1, bias=False)
    return [layer, nn.BatchNorm2d(out), nn.LeakyReLU(0.2, True)]


class Parts:
    def __init__(self) -> None:
        first = nn.ConvTranspose2d(NOISE, 4 * WIDTH, 4, bias=False)
        last = nn.ConvTranspose2d(WIDTH, 3, 4, 2, 1)
        middle = [*up(4 * WIDTH, 2 * WIDTH), *up(2 * WIDTH, WIDTH)]
        self.maker = nn.Sequential(first, *middle, last, nn.Tanh()).to(DEVICE)
        middle = [*down(3, WIDTH), *down(WIDTH, 2 * WIDTH), *down(2 * WIDTH, 4 * WIDTH)]
        self.judge = nn.Sequential(*middle, nn.Conv2d(4 * WIDTH, 1, 4), nn.Flatten(0)).to(DEVICE)
        adam = torch.optim.Adam
        self.of_maker = adam(self.maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.of_judge = adam(self.judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.real = torch.randn(BATCH, 3, 32, 32, device=DEVICE).tanh()


def train(parts: Parts, steps: int, waits: bool = True) -> None:
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, device=DEVICE), torch.zeros(BATCH, device=DEVICE)
    history = []
    for _ in range(steps):
        parts.judge.zero_grad()
        output = parts.judge(parts.real)
        real_loss = criterion(output, ones)
        real_loss.backward()
        d_x = output.sigmoid().mean()
        d_x = d_x.item() if waits else 0.0
        fake = parts.maker(torch.randn(BATCH, NOISE, 1, 1, device=DEVICE))
        output = parts.judge(fake.detach())
        fake_loss = criterion(output, zeros)
        fake_loss.backward()
        d_g_z1 = output.sigmoid().mean()
        d_g_z1 = d_g_z1.item() if waits else 0.0
        parts.of_judge.step()
        parts.maker.zero_grad()
        output = parts.judge(fake)
        maker_loss = criterion(output, ones)
        maker_loss.backward()
        d_g_z2 = output.sigmoid().mean()
        d_g_z2 = d_g_z2.item() if waits else 0.0
        parts.of_maker.step()
        judge_loss = real_loss + fake_loss
        losses = (judge_loss.item(), maker_loss.item()) if waits else (0.0, 0.0)
        history.append((*losses, d_x, d_g_z1, d_g_z2))


if __name__ == "__main__":
    train(Parts(), int(sys.argv[1]))
