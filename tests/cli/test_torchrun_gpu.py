"""Two ranks on two GPUs under NCCL: each rank's steps, syncs and values in one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from launched import on_two_ranks, write

import trainscope

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]

RUN = """
    import os
    import torch
    import torch.distributed as dist

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for step in range(40):
        loss = model(torch.randn(32, 64, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    dist.destroy_process_group()
"""

WRAPPED = """
    import os
    import torch
    import torch.distributed as dist
    import trainscope as ts

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = ts.Schedule(wait=5, warmup=1, active=2)
    with ts.Scope("runs/wrapped", schedule=schedule, sync="error") as scope:
        scope.wrap(model, optimizer)
        for step in scope.steps(range(30)):
            loss = model(torch.randn(32, 64, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            scope.log(loss=loss, rank=torch.full((), rank, device="cuda"))
    dist.destroy_process_group()
"""


def test_an_unedited_program_on_two_ranks(tmp_path: Path) -> None:
    write(tmp_path, "train.py", RUN)
    stderr = on_two_ranks("-m", "trainscope", "run", "train.py", cwd=tmp_path).stderr
    assert stderr.count("40 steps, 40 optimizer steps") == 1
    run = tmp_path / "runs" / "train"
    report = trainscope.analyze(trainscope.load(run))
    assert report.run.world_size == 2
    items = [site for site in report.syncs if site.kind == "item" and site.during == "training"]
    assert [site.line for site in items] == [18]
    for rank in (0, 1):
        assert list((run / f"rank{rank}").glob("trace-*.json.gz"))


def test_a_wrapped_program_on_two_ranks_never_waits(tmp_path: Path) -> None:
    write(tmp_path, "train.py", WRAPPED)
    on_two_ranks("train.py", cwd=tmp_path)
    for rank in (0, 1):
        lines = (tmp_path / f"runs/wrapped/rank{rank}/metrics.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        assert [record["step"] for record in records] == list(range(30))
        assert {record["rank"] for record in records} == {rank}
