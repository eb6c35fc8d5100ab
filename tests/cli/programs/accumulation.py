"""Gradients accumulated over turns of the loop: the optimizer steps in every fourth.

steps: 16
optimizer steps: 4
why: 16 turns each run a backward; turns 4, 8, 12 and 16 step the optimizer
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
dataset = torch.utils.data.TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(dataset, batch_size=4)

for i, (x, y) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(x), y) / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
