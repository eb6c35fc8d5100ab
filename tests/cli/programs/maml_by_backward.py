"""Meta-learning whose adaptation to each task is a loop of backwards and optimizer steps.

steps: 4
optimizer steps: 28
"""
import copy

import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
meta_optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def adapted(x, y):
    learner = copy.deepcopy(model)
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        (learner(x) - y).square().mean().backward()
        optimizer.step()
    return learner


for _meta_step in range(4):
    losses = []
    for _task in range(2):
        x, y = torch.randn(5, 3), torch.randn(5, 1)
        learner = adapted(x, y)
        losses.append((learner(x).detach() - model(x)).square().mean())
    meta_optimizer.zero_grad()
    torch.stack(losses).sum().backward()
    meta_optimizer.step()
