"""The loop is a comprehension.

steps: 10
optimizer steps: 10
why: a comprehension is a loop; each of its 10 turns trains
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train_step(x):
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


losses = [train_step(torch.randn(4, 3)) for _ in range(10)]
