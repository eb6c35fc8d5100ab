"""A critic trained in an inner loop, a generator in the loop around it.

steps: 3
optimizer steps: 12
why: each turn of the outer loop runs a backward of its own behind those of the critic
"""
import torch

torch.manual_seed(0)
critic, generator = torch.nn.Linear(3, 1), torch.nn.Linear(3, 3)
opt_c = torch.optim.SGD(critic.parameters(), lr=0.05)
opt_g = torch.optim.SGD(generator.parameters(), lr=0.05)

for i in range(3):
    for _ in range(3):
        opt_c.zero_grad()
        critic(generator(torch.randn(4, 3)).detach()).mean().backward()
        opt_c.step()
    opt_g.zero_grad()
    critic(generator(torch.randn(4, 3))).mean().backward()
    opt_g.step()
