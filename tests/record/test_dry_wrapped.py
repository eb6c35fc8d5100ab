"""A dry run of a wrapped model: the hooks' frames around backward are no reason to misjudge it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import trainscope

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="dry runs are for CPUs")


class Packed(nn.Module):
    """Its backward makes zeros and copies gradients into them, in C++."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(x), torch.tensor([6, 4, 2]), batch_first=True)
        return packed.data.square().sum()


def test_what_backward_makes_for_itself_is_where_its_gradients_are(tmp_path: Path) -> None:
    model = Packed().to("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainscope.Scope(tmp_path / "run", dry_run=True) as scope:
        scope.wrap(model, optimizer)
        for _ in range(3):
            with scope.step():
                loss = model(torch.ones(3, 6, dtype=torch.long))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                loss.item()
    found = {(sync.kind, sync.count) for sync in scope.report().syncs}
    assert found == {("item", 3)}
