"""A linear probe trained in full inside every second step.

steps: 6
optimizer steps: 36
"""
import torch

torch.manual_seed(0)
encoder, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)


def train_probe(features):
    probe = torch.nn.Linear(4, 2)
    probe_optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
    for _ in range(10):
        probe_optimizer.zero_grad()
        probe(features).square().mean().backward()
        probe_optimizer.step()


for step in range(6):
    x = torch.randn(5, 3)
    optimizer.zero_grad()
    head(encoder(x)).square().mean().backward()
    optimizer.step()
    if step % 2 == 0:
        train_probe(encoder(x).detach())
