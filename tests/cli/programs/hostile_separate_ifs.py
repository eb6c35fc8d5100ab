"""Two conditions that are not one another's else: a turn may run either, both or none.

steps: cannot tell
optimizer steps: 12
why: a turn that runs the first and a turn that runs the second look like one turn that runs both
"""
import torch

torch.manual_seed(0)
one, two = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
opt_one = torch.optim.SGD(one.parameters(), lr=0.05)
opt_two = torch.optim.SGD(two.parameters(), lr=0.05)

for i in range(12):
    if i % 2 == 0:
        one(torch.randn(4, 3)).pow(2).mean().backward()
        opt_one.step()
    if i % 2 == 1:
        two(torch.randn(4, 3)).pow(2).mean().backward()
        opt_two.step()
