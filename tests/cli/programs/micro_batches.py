"""Gradients accumulated by an inner loop over micro batches.

steps: 20
optimizer steps: 5
why: the innermost loop whose turns each run a backward goes over 4 micro batches, 5 times
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(5, 1)
optimizer = torch.optim.AdamW(model.parameters())


def train(updates, micro):
    for update in range(updates):
        optimizer.zero_grad()
        batch = torch.randn(16, 5)
        for part in batch.chunk(micro):
            loss = model(part).pow(2).mean() / micro
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


train(5, 4)
