"""The loop is in a generator that stops between backward and optimizer step; its reader evaluates.

steps: 11
optimizer steps: 11
why: 11 turns of the generator's loop each run a backward
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def training(steps):
    for _ in range(steps):
        loss = model(torch.randn(4, 3)).pow(2).mean()
        loss.backward()
        yield loss.item()
        optimizer.step()
        optimizer.zero_grad()


for at, loss in enumerate(training(11)):
    if at % 4 == 0:
        with torch.no_grad():
            model(torch.randn(4, 3))
