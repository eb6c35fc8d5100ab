"""The loop runs in a thread of its own.

steps: cannot tell
optimizer steps: 0
why: only what the main thread does is recorded
"""
import threading

import torch


def train():
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        model(torch.randn(4, 3)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


threading.Thread(target=train).start()
