"""Some turns skip their backward.

steps: cannot tell
optimizer steps: 8
why: 2 of the loop's 10 turns run a forward and no backward, and no loop is around it
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for i in range(10):
    loss = model(torch.randn(4, 3)).pow(2).mean()
    if i in (3, 6):
        continue
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
