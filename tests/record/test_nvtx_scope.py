"""Plain ``nsys profile python train.py`` shows a wrapped loop: nested, named, in our domain."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from nsys_tool import export_sqlite, nsys, profile, ranges_of_domain  # noqa: F401

pytestmark = pytest.mark.nsys

PROGRAM = """
import sys
import torch
import trainscope as ts

loader = [torch.ones(2, 4) for _ in range(3)]
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scope = ts.Scope(sys.argv[1], schedule=ts.Schedule(wait=1, active=1))
model = scope.wrap(model, optimizer)
for batch in scope.steps(loader):
    with scope.range("tokenize"):
        batch = batch + 1
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
scope.close()
"""


def test_steps_and_phases_of_a_wrapped_loop(nsys: str, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("nvtx")
    (tmp_path / "train.py").write_text(PROGRAM)
    done = profile(nsys, tmp_path / "report", str(tmp_path / "train.py"), str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    ranges = ranges_of_domain(export_sqlite(nsys, tmp_path / "report.nsys-rep"), "trainscope")
    steps = [r for r in ranges if r[0].startswith("step ")]
    assert [name for name, _, _ in steps[:3]] == ["step 0", "step 1", "step 2"]
    for _, start, end in steps[:3]:
        phases = [r for r in ranges if start < r[1] and r[2] < end]
        assert [name for name, _, _ in phases] == [
            *("data", "tokenize", "forward", "backward", "optimizer"),
        ]
        for (_, _, ends), (_, begins, _) in itertools.pairwise(phases):
            assert ends <= begins
