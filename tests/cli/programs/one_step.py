"""One step and no loop, then an evaluation that has one.

steps: 1
optimizer steps: 1
why: the program runs one training backward
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loss = model(torch.randn(4, 3)).pow(2).mean()
loss.backward()
optimizer.step()
model.eval()
with torch.no_grad():
    for _ in range(4):
        model(torch.randn(4, 3))
