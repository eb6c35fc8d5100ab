"""Which step a pause between epochs is charged to, as the README says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from launched import under_run, write

import trainscope

START = """
    import time
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.ones(2, 4) for _ in range(5)]

    def train(x):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
UNSEEN = """
    for epoch in range(3):
        for x in batches:
            train(x)
        time.sleep(0.3)
"""
SEEN_AT_A_LOADER = """
    loader = torch.utils.data.DataLoader(torch.ones(10, 4), batch_size=2)
    for epoch in range(3):
        for x in loader:
            train(x)
        time.sleep(0.3)
"""
SEEN_AT_A_MODEL = """
    for epoch in range(3):
        for x in batches:
            train(x)
        time.sleep(0.3)
        with torch.no_grad():
            model(batches[0])
"""
NAMED = """
    import trainscope as ts

    scope = ts.Scope("run")
    scope.wrap(model, optimizer)
    for epoch in range(3):
        for x in scope.steps(batches):
            train(x)
        time.sleep(0.3)
    scope.close()
"""


@pytest.mark.parametrize(
    ("loops", "long_steps"),
    [
        # after the last epoch the program ends, and that is seen
        (UNSEEN, [4, 9]),
        (SEEN_AT_A_LOADER, []),
        (SEEN_AT_A_MODEL, []),
        (NAMED, []),
    ],
    ids=["unseen", "loader", "model", "named"],
)
def test_a_pause_is_charged_to_a_step_only_where_nothing_is_seen_of_it(
    loops: str, long_steps: list[int], tmp_path: Path
) -> None:
    write(tmp_path, "train.py", START + loops)
    options = ["--run-dir", "run", "--active", "0", "--sync", "off"]
    done = under_run(*options, "train.py", cwd=tmp_path)
    assert done.status == 0, done.err
    trace = trainscope.load(tmp_path / "run")
    steps = trace.ranges.depth == 0
    assert trace.ranges.step[steps].tolist() == list(range(15))
    lasted_ns = (trace.ranges.end_ns - trace.ranges.start_ns)[steps]
    assert np.flatnonzero(lasted_ns > 250_000_000).tolist() == long_steps
