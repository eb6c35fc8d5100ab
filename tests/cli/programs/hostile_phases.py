"""One loop serves training and validation, as in many tutorials.

steps: 12
optimizer steps: 12
why: 3 epochs of 4 training turns; the 3 times 2 turns under no_grad only evaluate
"""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
batches = {"train": torch.randn(4, 8, 3), "val": torch.randn(2, 8, 3)}

for epoch in range(3):
    for phase in ["train", "val"]:
        model.train(phase == "train")
        for x in batches[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                loss = model(x).pow(2).mean()
                if phase == "train":
                    loss.backward()
                    optimizer.step()
