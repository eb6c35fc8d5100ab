"""Logging is no wait, in a dry run either, for there its rows stand for rows on the GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import trainscope as ts

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="dry runs are for CPUs")


@pytest.mark.parametrize("dry_run", [False, True])
def test_log_is_no_wait_under_a_dry_run_nor_under_no_sync(tmp_path: Path, dry_run: bool) -> None:
    model = nn.Linear(4, 1)
    with ts.Scope(tmp_path / "run", dry_run=dry_run) as scope:
        scope.wrap(model)
        for x in scope.steps(torch.ones(3, 2, 4)):
            with ts.no_sync():
                loss = model(x).sum()
                loss.backward()
                scope.log(one=loss)
                scope.log(two=loss, more=loss * 2)
                scope.log(half=loss.half(), whole=loss.long(), number=1.5)
                scope.log(vector=loss.reshape(1), unsigned=loss.long().view(torch.uint64))
            if dry_run:
                loss.item()
    report = scope.report()
    assert [(site.kind, site.count) for site in report.syncs] == [("item", 3)] * dry_run
    lines = (tmp_path / "run/rank0/metrics.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 3 * 4
