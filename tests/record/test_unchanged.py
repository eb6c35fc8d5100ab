"""Watching changes nothing: the weights after fifty steps are the same to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import trainscope as ts

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


class TinyGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # a matrix product: the gradient of nn.Embedding adds in no fixed order on a GPU
        self.embed = nn.Linear(32, 16, bias=False)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(F.one_hot(tokens, 32).float())))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(32, 1)
    )


def train(kind: str, device: str, compiled: bool, scope: ts.Scope | None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = (mlp() if kind == "mlp" else TinyGPT()).to(device)
    if compiled:
        model.compile(backend="aot_eager" if device == "cpu" else "inductor")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.randn(50, 8, 16) if kind == "mlp" else torch.randint(32, (50, 8, 12))
    if scope is not None:
        scope.wrap(model, optimizer, module_depth=1)
    for batch in data if scope is None else scope.steps(data):
        batch = batch.to(device)
        if kind == "mlp":
            loss = model(batch).square().mean()
        else:
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if scope is not None:
            scope.log(loss=loss)
    return [parameter.detach().cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", ["mlp", "transformer"])
@pytest.mark.parametrize("device", DEVICES)
def test_weights_are_bit_equal(tmp_path: Path, device: str, kind: str, compiled: bool) -> None:
    alone = train(kind, device, compiled, None)
    schedule = ts.Schedule(wait=5, warmup=1, active=2)
    with ts.Scope(tmp_path / "run", schedule=schedule) as scope:
        watched = train(kind, device, compiled, scope)
        assert scope.report().steps.count == 50
    for before, after in zip(alone, watched, strict=True):
        assert torch.equal(before, after)


def test_weights_are_bit_equal_in_a_dry_run(tmp_path: Path) -> None:
    alone = train("mlp", "cpu", False, None)
    with ts.Scope(tmp_path / "run", dry_run=True) as scope:
        watched = train("mlp", "cpu", False, scope)
    for before, after in zip(alone, watched, strict=True):
        assert torch.equal(before, after)
