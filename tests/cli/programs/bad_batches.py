"""A bad batch now and then is left out, by ``continue`` and by an exception that is caught.

steps: 26
optimizer steps: 26
why: 2 of the loop's 28 turns, fewer than every fourth, run a forward and no backward
"""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(batch: torch.Tensor) -> None:
    loss = model(batch).pow(2).mean()
    if not torch.isfinite(loss):
        raise ValueError("a bad batch")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for epoch in range(2):
    for i in range(14):
        batch = torch.randn(4, 3)
        if i == 9:
            batch = batch * float("nan") if epoch else batch[:, :2]
        try:
            train(batch)
        except (ValueError, RuntimeError):
            continue
