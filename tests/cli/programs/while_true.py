"""``while True`` left by ``break`` in the middle of a turn.

steps: 9
optimizer steps: 9
why: 9 turns train; the tenth leaves after its forward, so it runs no backward
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
while True:
    loss = model(torch.randn(4, 2)).pow(2).mean()
    if step == 9:
        break
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
