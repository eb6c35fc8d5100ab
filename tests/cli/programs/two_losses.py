"""A step function called from a loop in another function, with two losses in turns.

steps: 14
optimizer steps: 14
why: 14 calls of train_step, each with one of the two backwards
"""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(i, x):
    if i % 2 == 0:
        loss = model(x).pow(2).mean()
        loss.backward()
    else:
        loss = model(x).abs().mean()
        loss.backward(retain_graph=False)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def fit(steps):
    history = []
    for i in range(steps):
        history.append(train_step(i, torch.randn(5, 6)).detach())
    return history


if __name__ == "__main__":
    fit(14)
