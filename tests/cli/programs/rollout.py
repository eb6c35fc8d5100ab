"""Reinforcement learning: a rollout of forwards, then update epochs over what it gathered.

steps: 24
optimizer steps: 24
why: 3 iterations of 4 update epochs over 2 minibatches; the 10 forwards of a rollout train nothing
"""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)


def rollout(length):
    states, actions, rewards = [], [], []
    state = torch.randn(4)
    for _ in range(length):
        action = Categorical(logits=policy(state)).sample()
        states.append(state)
        actions.append(action)
        rewards.append(float(action.item() == 1))
        state = torch.randn(4)
    return torch.stack(states), torch.stack(actions), torch.tensor(rewards)


def update(states, actions, rewards):
    for epoch in range(4):
        for part in torch.randperm(len(states)).chunk(2):
            log_prob = Categorical(logits=policy(states[part])).log_prob(actions[part])
            loss = -(log_prob * rewards[part]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


for iteration in range(3):
    update(*rollout(10))
