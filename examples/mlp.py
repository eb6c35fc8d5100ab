"""A plain MLP loop wrapped by trainscope; the added lines are marked with +.

python examples/mlp.py                                # then read the printed report
nsys profile -t cuda,nvtx python examples/mlp.py      # the same ranges on a timeline
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F

import trainscope as ts  # +
import trainscope_kernels


def batches(count: int, size: int, features: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield inputs (size, features) and the targets of a fixed random function of them."""
    generator = torch.Generator().manual_seed(1)
    teacher = torch.randn(features, 1, generator=generator)
    pin = torch.cuda.is_available()
    for _ in range(count):
        x = torch.randn(size, features, generator=generator)
        y = torch.tanh(x @ teacher)
        yield (x.pin_memory(), y.pin_memory()) if pin else (x, y)


def mlp(features: int, width: int, layers: int) -> nn.Sequential:
    """Return an MLP from (batch, features) to (batch, 1)."""
    widths = [features] + [width] * layers
    hidden: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        hidden += [nn.Linear(fan_in, fan_out), nn.GELU()]
    return nn.Sequential(*hidden, nn.Linear(width, 1))


def main() -> None:
    """Train, then print where the time went."""
    parser = argparse.ArgumentParser(description="An MLP on synthetic data.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--kernels", action="store_true", help="use trainscope_kernels' GELU")
    parser.add_argument("--run-dir", default="runs/mlp")
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = mlp(64, options.width, options.layers).to(device)
    if options.kernels:
        print(trainscope_kernels.swap(model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    schedule = ts.Schedule(wait=20, warmup=3, active=4)
    with ts.Scope(options.run_dir, schedule=schedule) as scope:  # +
        scope.wrap(model, optimizer)  # +
        for x, y in scope.steps(batches(options.steps, 256, 64)):  # +
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scope.log(loss=loss)  # + stays on the GPU; the loop does not wait for it

    print(scope.report())
    print(f"last loss: {scope.latest('loss'):.4f}")


if __name__ == "__main__":
    main()
