"""Several epochs over one batch, as when a model is made to overfit it.

steps: 8
optimizer steps: 8
why: the loader holds one batch; its loop turns once in each of 8 epochs, each turn a backward
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
dataset = torch.utils.data.TensorDataset(torch.randn(6, 3), torch.randn(6, 1))
loader = torch.utils.data.DataLoader(dataset, batch_size=6)


def train_epoch():
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


for epoch in range(8):
    train_epoch()
