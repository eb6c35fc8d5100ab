"""Which installation fits the machine, and that asking does not start CUDA."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from trainscope.errors import SyncError
from trainscope.record.scope import Scope
from trainscope.sync import live, process
from trainscope.sync.cuda_present import cuda_present
from trainscope.sync.detector import SyncDetector
from trainscope.sync.guards import allow_sync, no_sync
from trainscope.trace.metrics import read_metrics


def test_asking_for_a_gpu_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    name, asked = "PYTORCH_NVML_BASED_CUDA_CHECK", []

    def available() -> bool:
        asked.append(os.environ[name])
        return True

    monkeypatch.setattr(torch.cuda, "is_available", available)
    monkeypatch.delenv(name, raising=False)
    assert cuda_present() is True
    assert name not in os.environ
    monkeypatch.setenv(name, "0")
    assert cuda_present() is True
    assert os.environ[name] == "0"
    assert asked == ["1", "1"]
    monkeypatch.undo()


@pytest.mark.parametrize(("present", "dry"), [(True, False), (False, True)])
def test_by_default_the_machine_decides(
    monkeypatch: pytest.MonkeyPatch, present: bool, dry: bool
) -> None:
    monkeypatch.setattr("trainscope.sync.detector.cuda_present", lambda: present)
    monkeypatch.setattr(process, "cuda_present", lambda: present)
    assert SyncDetector().dry_run is dry
    assert SyncDetector(dry_run=not dry).dry_run is not dry
    assert process.fitting() is (process.LIVE if present else process.DRY)


@pytest.mark.parametrize("present", [True, False])
def test_what_runs_already_is_used_where_it_sees_waits(
    monkeypatch: pytest.MonkeyPatch, present: bool
) -> None:
    monkeypatch.setattr(live, "cuda_present", lambda: present)
    monkeypatch.setattr(process, "cuda_present", lambda: present)
    with SyncDetector(dry_run=False):
        assert process.fitting() is (process.LIVE if present else process.DRY)
    assert process.LIVE.source is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="without a GPU a dry run decides")
def test_without_a_gpu_no_sync_sees_what_a_scope_beside_it_cannot(tmp_path: Path) -> None:
    device = "cpu".lower()
    with Scope(tmp_path / "run") as scope:
        for number in scope.steps(range(3)):
            with no_sync():
                x = torch.ones((), device=device)
                scope.log(number=number, x=x)
                with allow_sync("shown"):
                    x.item()
                with pytest.raises(SyncError, match="TS101"):
                    x.item()
            x.item()
    assert (process.LIVE.source, process.DRY.source) == (None, None)
    assert scope.report().steps.count == 3
    records = read_metrics(tmp_path / "run" / "rank0" / "metrics.jsonl")
    assert [each.values for each in records] == [{"number": n, "x": 1.0} for n in range(3)]
