"""On a GPU a window holds kernels and CUDA's own sync events, and our waits are not the user's."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from trainscope.record.capture import Capture
from trainscope.record.schedule import Schedule

pytestmark = pytest.mark.gpu


def test_a_window_holds_kernels_copies_and_syncs(tmp_path: Path) -> None:
    capture = Capture(Schedule(wait=1, warmup=1, active=2), tmp_path, environ={})
    x = torch.randn(256, 256, device="cuda")
    for step in range(5):
        capture.begin_step(step)
        y = x @ x
        if capture.in_window:
            y.sum().item()
        capture.end_step(step)
    capture.close()
    state = capture.state()
    assert (state.complete, state.missing, state.note) == (True, (), "")
    trace = json.loads(gzip.decompress((tmp_path / "trace-000.json.gz").read_bytes()))
    kinds = Counter(event.get("cat") for event in trace["traceEvents"])
    assert kinds["kernel"] >= 4
    assert kinds["gpu_memcpy"] == 2
    assert kinds["cuda_sync"] >= 2


def test_a_window_without_gpu_work_says_so(tmp_path: Path) -> None:
    capture = Capture(Schedule(active=1), tmp_path, environ={})
    torch.cuda.init()
    capture.begin_step(0)
    torch.ones(3).add(1)
    capture.end_step(0)
    assert capture.state().missing == (
        "GPU activity: torch.profiler recorded none; is another tool attached?",
    )
