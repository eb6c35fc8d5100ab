"""An exception ends the loop early, between backward and optimizer step.

steps: 5
optimizer steps: 4
why: the fifth turn raises after its backward; nothing of a sixth is seen
exit status: 1
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for i in range(100):
    loss = model(torch.randn(4, 3)).pow(2).mean()
    loss.backward()
    if i == 4:
        raise RuntimeError("the loss looks wrong")
    optimizer.step()
    optimizer.zero_grad()
