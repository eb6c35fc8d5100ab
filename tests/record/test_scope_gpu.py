"""A wrapped loop on a GPU: it logs every step and never waits; graphs and streams do no harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import trainscope as ts
from trainscope.errors import SyncError

pytestmark = pytest.mark.gpu


def made(width: int = 64) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, optimizer, torch.randn(32, width, device="cuda")


def values(run_dir: Path, name: str) -> list[float]:
    lines = (run_dir / "rank0" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)[name] for line in lines]


def test_logging_every_step_makes_no_sync_with_the_detector_in_error_mode(tmp_path: Path) -> None:
    model, optimizer, x = made()
    with ts.Scope(tmp_path / "run", sync="error") as scope:
        scope.wrap(model, optimizer)
        for step in scope.steps(range(300)):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scope.log(loss=loss, half=loss.bfloat16(), count=torch.full((), step, device="cuda"))
        state = scope._session.detector.state()
    assert values(scope.run_dir, "count") == list(range(300))
    assert state.armed_steps == 300
    assert state.disarmed == ()


def test_error_mode_raises_at_the_line_that_waits(tmp_path: Path) -> None:
    model, optimizer, x = made()
    seen = 0
    with pytest.raises(SyncError, match=r"test_scope_gpu\.py"):  # noqa: SIM117
        with ts.Scope(tmp_path / "run", sync="error") as scope:
            scope.wrap(model, optimizer)
            for _ in scope.steps(range(5)):
                loss = model(x).square().mean()
                seen += 1
                loss.item()
    assert seen == 1


def test_the_phases_of_a_gpu_loop_include_the_copies_of_the_batch(tmp_path: Path) -> None:
    model, optimizer, _ = made()
    batches = [torch.randn(32, 64) for _ in range(6)]
    with ts.Scope(tmp_path / "run") as scope:
        scope.wrap(model, optimizer)
        for batch in scope.steps(batches):
            model(batch.to("cuda")).square().mean().backward()
            optimizer.step()
        report = scope.report()
    assert {phase.name for phase in report.phases} == {
        *("data", "h2d", "forward", "backward", "optimizer")
    }
    (site,) = [site for site in report.syncs if not site.explicit]
    assert (site.kind, site.count, site.per_step) == ("h2d-pageable", 6, 1.0)
    assert site.blocked_ms_total is not None


def test_a_replayed_graph_logs_the_value_of_each_replay(tmp_path: Path) -> None:
    x = torch.zeros((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    x.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        x.add_(1)
    with ts.Scope(tmp_path / "run") as scope:
        for _ in scope.steps(range(50)):
            graph.replay()
            scope.log(x=x)
    assert values(scope.run_dir, "x") == [float(value) for value in range(2, 52)]
