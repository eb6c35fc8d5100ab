"""Two training loops, one after the other, and a single backward before them.

steps: 11
optimizer steps: 11
why: 4 turns of the first loop and 7 of the second; the backward before them is in no loop
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def step():
    loss = model(torch.randn(4, 3)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


model(torch.randn(4, 3)).sum().backward()
optimizer.zero_grad()
for _ in range(4):
    step()
left = 7
while left:
    step()
    left -= 1
