"""No loop at all: the function calls itself.

steps: cannot tell
optimizer steps: 6
why: six backwards run, and none of them in a loop
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(steps_left):
    if steps_left == 0:
        return
    model(torch.randn(4, 3)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    train(steps_left - 1)


train(6)
