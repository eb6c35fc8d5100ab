"""Which installation fits the machine, and that asking does not start CUDA."""

from __future__ import annotations

import os

import pytest
import torch

from trainscope.sync import process
from trainscope.sync.cuda_present import cuda_present
from trainscope.sync.detector import SyncDetector


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


def test_what_runs_already_is_used() -> None:
    with SyncDetector(dry_run=False):
        assert process.fitting() is process.LIVE
    assert process.LIVE.source is None
