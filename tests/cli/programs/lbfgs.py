"""LBFGS: each optimizer step calls its closure, and so backward, several times.

steps: 6
optimizer steps: 6
why: 6 turns of the loop, each one step of the optimizer; the closure's backwards belong to it
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
x, y = torch.randn(20, 3), torch.randn(20, 1)

for epoch in range(6):

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
