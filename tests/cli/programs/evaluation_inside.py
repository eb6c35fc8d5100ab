"""Evaluation and generation inside the loop, each a loop of its own.

steps: 18
optimizer steps: 18
why: 18 turns train; the 4 evaluations of 5 batches and the 3 generated texts run no backward
"""
import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        return self.head(self.embed(tokens))

    @torch.no_grad()
    def generate(self, token, length):
        for _ in range(length):
            token = self(token)[-1:].argmax(-1)
        return token


@torch.no_grad()
def evaluate(model):
    model.eval()
    total = 0.0
    for _ in range(5):
        tokens = torch.randint(0, 11, (6,))
        total += nn.functional.cross_entropy(model(tokens), tokens).item()
    model.train()
    return total / 5


def main():
    torch.manual_seed(0)
    model = Tiny()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(18):
        if step % 5 == 0:
            evaluate(model)
        tokens = torch.randint(0, 11, (16,))
        loss = nn.functional.cross_entropy(model(tokens), tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 6 == 5:
            model.generate(torch.tensor([3]), 7)


if __name__ == "__main__":
    main()
