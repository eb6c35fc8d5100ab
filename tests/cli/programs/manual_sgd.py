"""No optimizer: the parameters are updated by hand.

steps: 12
optimizer steps: 0
why: one backward in each of the loop's 12 turns; no optimizer exists
"""
import torch

torch.manual_seed(0)
w = torch.zeros(3, requires_grad=True)
x = torch.randn(32, 3)
y = x @ torch.tensor([1.0, -2.0, 0.5])
for i in range(12):
    loss = ((x @ w - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
