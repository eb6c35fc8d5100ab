"""Two optimizers at different rates, as in a GAN: the generator learns in every third turn.

steps: 15
optimizer steps: 20
why: 15 turns train the discriminator; turns 0, 3, 6, 9 and 12 train the generator as well (15 + 5)
"""
import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
discriminator = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()


def main():
    for i in range(15):
        real = torch.randn(8, 2) + 2
        fake = generator(torch.randn(8, 4)).detach()
        loss_d = bce(discriminator(real), torch.ones(8, 1)) + bce(
            discriminator(fake), torch.zeros(8, 1)
        )
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        if i % 3 == 0:
            opt_g.zero_grad()
            loss_g = bce(discriminator(generator(torch.randn(8, 4))), torch.ones(8, 1))
            loss_g.backward()
            opt_g.step()


if __name__ == "__main__":
    main()
