"""``torchrun … -m trainscope run script.py``: a folder for each rank, one report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from launched import on_two_ranks, write

import trainscope

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs torch.distributed with gloo",
)

DDP = """
    import sys, time
    import torch
    import torch.distributed as dist

    def main():
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
        weights = [torch.zeros(1, 4) for _ in range(2)]
        dist.all_gather(weights, model.module.weight.detach())
        if dist.get_rank() == 0:
            print("equal", torch.equal(*weights), "argv", sys.argv[1:])
        time.sleep(0.5)  # gloo's thread lets go of the tensors, else the destructors may deadlock
        dist.destroy_process_group()

    if __name__ == "__main__":
        main()
"""


def words_of(stdout: str) -> str:
    """What the program wrote: older gloo writes to standard output as well, in torn lines."""
    return "\n".join(line for line in stdout.splitlines() if "peer ranks" not in line)


def test_two_ranks_make_one_run(tmp_path: Path) -> None:
    write(tmp_path, "train.py", DDP)
    run = (sys.executable, "-m", "trainscope", "run", "--sync", "off", "--active", "0")
    done = on_two_ranks("--no-python", *run, "train.py", "--help", cwd=tmp_path)
    assert words_of(done.stdout) == "equal True argv ['--help']"
    assert done.stderr.count("6 steps, 6 optimizer steps") == 1
    assert done.stderr.count("the files are in") == 1
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["train"]
    trace = trainscope.load(tmp_path / "runs" / "train")
    assert trace.info.world_size == 2
    for rank in (0, 1):
        assert (tmp_path / "runs" / "train" / f"rank{rank}" / "ranges.i64").stat().st_size > 0
    assert trainscope.analyze(trace).steps.count == 6


def test_torchrun_starts_the_module_itself(tmp_path: Path) -> None:
    write(tmp_path, "train.py", DDP)
    run = ("-m", "trainscope", "run", "--sync", "off", "--active", "0", "train.py")
    done = on_two_ranks(*run, cwd=tmp_path)
    assert words_of(done.stdout) == "equal True argv []"
    assert done.stderr.count("6 steps, 6 optimizer steps") == 1
