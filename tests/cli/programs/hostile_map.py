"""The loop is in C: ``list(map(...))`` calls the step function, twice over.

steps: 10
steps before Python 3.11: cannot tell
optimizer steps: 10
why: two turns of the outer loop, in each of which list() calls train_step 5 times; before 3.11 a frame
    says only its line, and which of the calls on it is being made stays open
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train_step(x):
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for epoch in range(2):
    losses = list(map(train_step, torch.randn(5, 4, 3)))
