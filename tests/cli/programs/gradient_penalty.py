"""A gradient penalty: torch.autograd.grad before each backward.

steps: 7
optimizer steps: 7
why: 7 turns each run one training backward; autograd.grad is part of the loss
"""
import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(critic.parameters())


def penalty(x):
    x = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return (gradient.norm(dim=1) - 1).pow(2).mean()


for _ in range(7):
    x = torch.randn(10, 3)
    loss = critic(x).mean() + 10 * penalty(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
