"""Double DQN with prioritized replay: batches from lists, priorities back to NumPy."""

from __future__ import annotations

import copy
import random
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STATE, ACTIONS, WIDTH, BATCH, KEPT = (
    (64, 12, 1024, 512, 8192) if DEVICE == "cuda" else (4, 2, 8, 8, 64)
)


class Parts:
    def __init__(self) -> None:
        layers = [nn.Linear(STATE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Linear(WIDTH, ACTIONS)).to(DEVICE)
        self.target = copy.deepcopy(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        chance = np.random.default_rng(0)
        self.states = chance.standard_normal((KEPT, STATE), dtype=np.float32)
        self.actions = chance.integers(0, ACTIONS, KEPT)
        self.rewards = chance.standard_normal(KEPT, dtype=np.float32)
        self.priorities = np.ones(KEPT)


def on_device(rows: np.ndarray, waits: bool) -> torch.Tensor:
    tensor = torch.from_numpy(rows)
    if waits or DEVICE == "cpu":
        return tensor.to(DEVICE)
    return tensor.pin_memory().to(DEVICE, non_blocking=True)


def train(parts: Parts, steps: int, waits: bool = True) -> None:
    losses = []
    for step in range(steps):
        chosen = np.array(
            random.choices(range(KEPT - 1), weights=parts.priorities[:-1].tolist(), k=BATCH)
        )
        state = on_device(parts.states[chosen], waits)
        following = on_device(parts.states[chosen + 1], waits)
        action = on_device(parts.actions[chosen], waits)
        reward = on_device(parts.rewards[chosen], waits)
        with torch.no_grad():
            best = parts.model(following).argmax(1, keepdim=True)
            goal = reward + 0.99 * parts.target(following).gather(1, best).squeeze(1)
        value = parts.model(state).gather(1, action[:, None]).squeeze(1)
        errors = (goal - value).detach().abs()
        loss = F.smooth_l1_loss(value, goal)
        parts.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(parts.model.parameters(), 100)
        parts.optimizer.step()
        seen = errors.cpu().numpy() if waits else np.ones(BATCH, np.float32)
        parts.priorities[chosen] = seen + 1e-5
        losses.append(loss.item() if waits else 0.0)
        if step % 100 == 0:
            parts.target.load_state_dict(parts.model.state_dict())


if __name__ == "__main__":
    train(Parts(), int(sys.argv[1]))
