"""Waits of captured steps are noted one by one, and only those."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import trainscope as ts
from trainscope.sync.noted import MAX_NOTED, NotedWaits


def loop(directory: Path, schedule: ts.Schedule | None) -> Path:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scope = ts.Scope(directory, schedule=schedule, dry_run=True)
    scope.wrap(model, optimizer)
    for batch in scope.steps([torch.ones(2, 4)] * 6):
        loss = model(batch).sum()
        loss.backward()
        loss.item()
        optimizer.step()
        optimizer.zero_grad()
    scope.close()
    return directory


def test_one_for_each_wait_of_a_captured_step(tmp_path: Path) -> None:
    trace = ts.load(loop(tmp_path / "run", ts.Schedule(wait=2, active=3)))
    line = loop.__code__.co_firstlineno + 8
    assert [(w.line, w.kind, w.thread) for w in trace.noted_waits] == [(line, "item", "main")] * 3
    steps = (trace.ranges.depth == 0) & (trace.ranges.step >= 2) & (trace.ranges.step < 5)
    inside = zip(
        trace.ranges.start_ns[steps], trace.noted_waits, trace.ranges.end_ns[steps], strict=True
    )
    assert all(start < wait.end_ns < end for start, wait, end in inside)


def test_without_a_window_none_is_noted_and_no_file_is_written(tmp_path: Path) -> None:
    run = loop(tmp_path / "run", None)
    assert ts.load(run).noted_waits == ()
    assert not (run / "rank0" / "window_waits.json").exists()


def test_memory_is_bounded() -> None:
    noted = NotedWaits()
    frame = sys._getframe()
    for _ in range(MAX_NOTED + 5):
        noted.note("item", frame, "main", 5)
    assert len(noted) == len(noted.so_far()) == MAX_NOTED


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    run = loop(tmp_path / "run", ts.Schedule(wait=2, active=3))
    file = run / "rank0" / "window_waits.json"
    entries = json.loads(file.read_text())
    entries[1]["end_ns"] = "late"
    file.write_text(json.dumps(entries))
    with pytest.raises(ts.TrainscopeError, match=r"window_waits.json.*1\.end_ns"):
        ts.load(run)
