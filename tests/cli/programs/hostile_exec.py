"""The loop is in code that exec runs, whose source nobody can read.

steps: cannot tell
optimizer steps: 6
why: the place of an event in a loop without source is not known
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

exec(
    """
for i in range(6):
    model(torch.randn(4, 3)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)
