"""Five turns of a critic and one of its generator for each batch, each trained by a function.

steps: 8
optimizer steps: 48
"""
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
critic, generator = torch.nn.Linear(3, 1), torch.nn.Linear(3, 3)
opt_c = torch.optim.RMSprop(critic.parameters(), lr=0.01)
opt_g = torch.optim.RMSprop(generator.parameters(), lr=0.01)


def train_critic(real):
    fake = generator(torch.randn(4, 3)).detach()
    loss = critic(fake).mean() - critic(real).mean()
    opt_c.zero_grad()
    loss.backward()
    opt_c.step()


def train_generator():
    loss = -critic(generator(torch.randn(4, 3))).mean()
    opt_g.zero_grad()
    loss.backward()
    opt_g.step()


loader = DataLoader(TensorDataset(torch.randn(16, 3)), batch_size=4)
for _epoch in range(2):
    for (real,) in loader:
        for _ in range(5):
            train_critic(real)
        train_generator()
    with torch.no_grad():
        generator(torch.randn(4, 3))
