"""Losses and gradient norms to wandb from a loop that never waits for the GPU to log.

Without an account:  WANDB_MODE=offline python examples/wandb_logging.py
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional as F

import trainscope as ts


def main() -> None:
    """Train a small autoencoder; log four values a step."""
    parser = argparse.ArgumentParser(description="An autoencoder that logs to wandb.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--project", default="trainscope-demo")
    parser.add_argument("--run-dir", default="runs/wandb_logging")
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 64)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    data = torch.randn(1024, 8, device=device) @ torch.randn(8, 64, device=device)

    sinks = [ts.sinks.Wandb(project=options.project), ts.sinks.Console()]
    with ts.Scope(options.run_dir, sinks=sinks, stop_on_nan=True) as scope:
        scope.wrap(model, optimizer)
        for _ in range(options.steps):
            with scope.step():
                loss = F.mse_loss(model(data), data)
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                scope.log(
                    loss=loss,  # a tensor on the GPU: copied there, read when it has arrived
                    grad_norm=norm,
                    share_large=(data.abs() > 3).float().mean(),
                    lr=scheduler.get_last_lr()[0],  # a number
                )
                scheduler.step()
    print(scope.report())


if __name__ == "__main__":
    main()
