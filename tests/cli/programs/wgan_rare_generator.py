"""A critic trained in an inner loop, its generator in every third turn around it.

steps: cannot tell
optimizer steps: 22
why: most turns of the outer loop run no backward of their own
"""
import torch

torch.manual_seed(0)
critic, generator = torch.nn.Linear(3, 1), torch.nn.Linear(3, 3)
opt_c = torch.optim.SGD(critic.parameters(), lr=0.05)
opt_g = torch.optim.SGD(generator.parameters(), lr=0.05)

for i in range(4):
    for _ in range(5):
        opt_c.zero_grad()
        critic(generator(torch.randn(4, 3)).detach()).mean().backward()
        opt_c.step()
    if i % 3 == 0:
        opt_g.zero_grad()
        critic(generator(torch.randn(4, 3))).mean().backward()
        opt_g.step()
