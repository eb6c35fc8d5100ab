"""The library function named beside a line is the one that worked for it, never plumbing."""

from __future__ import annotations

import runpy
import textwrap
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._compile import _disable_dynamo
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.device_mesh import init_device_mesh

from trainscope.sync.detector import SyncDetector
from trainscope.sync.dry.mode import FollowMode

PROGRAM = """
import copy, numpy, torch
from torch.distributions import Normal
x = torch.ones(4, device="cuda")
p = torch.nn.Parameter(torch.ones(2, device="cuda")); p.grad = torch.ones_like(p)
torch.nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)  # torch.nn.utils.clip_grad
torch.unique(x)                                                    # None
x.unique()                                                         # None
1.0 in x                                                           # torch._tensor
numpy.asarray(x)                                                   # torch._tensor
Normal(x, x, validate_args=True)                                  # torch.distributions
opt = torch.optim.SGD([p], lr=torch.ones((), device="cuda"), foreach=False)
opt.step()                                                         # torch.optim.sgd
torch.nn.Linear(2, 2).to("cuda")                                   # torch.nn.modules.module
with torch.device("cuda"): x[x > 0]                                # None
torch.ops.aten.nonzero(x)                                          # None
torch.autocast("cpu")(lambda: x.nonzero())()                       # None
x[x > 0]                                                           # None
"""


def expected() -> dict[int, str]:
    lines = PROGRAM.lstrip("\n").splitlines()
    return {at: line.split("# ")[1] for at, line in enumerate(lines, 1) if "# " in line}


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "wrapped by the compiler"])
def test_via_is_the_function_that_worked(
    wrapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wrapped:  # as older torch does with every dispatch mode
        ours = FollowMode.__torch_dispatch__
        monkeypatch.setattr(FollowMode, "__torch_dispatch__", _disable_dynamo(ours))
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM).lstrip("\n"))
    with SyncDetector(dry_run=True) as detector:
        runpy.run_path(str(path))
    found: dict[int, set[str]] = {}
    for site in detector.sites():
        module = str(site.via).split(":")[0]
        found.setdefault(site.line, set()).add(module)
    assert {line: {name} for line, name in expected().items()} == {
        line: {next((n for n in expected().values() if m.startswith(n)), m) for m in modules}
        for line, modules in found.items()
        if line in expected()
    }


def test_what_a_library_reads_on_a_cpu_alone_is_no_wait_of_a_gpu(tmp_path: Path) -> None:
    """As torchmetrics, which on a GPU chooses by torch.where whether to take the sigmoid."""
    source = textwrap.dedent(
        """
        import torch
        def normalize_logits_if_needed(x):
            if x.device == torch.device("cpu"):
                return x if torch.all(x <= 1) else x.sigmoid()
            return torch.where((x > 1).any(), x.sigmoid(), x)
        def other(x):
            return bool(x.all())
        normalize_logits_if_needed(torch.ones(2, device="cuda"))
        other(torch.ones(2, device="cuda"))
        """
    ).lstrip()
    path = tmp_path / "program.py"
    path.write_text(source)
    with SyncDetector(dry_run=True) as detector:
        runpy.run_path(str(path), run_name="torchmetrics.utilities.compute")
    assert [(site.kind, site.function) for site in detector.sites()] == [("bool", "other")]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_ranks_do_on_the_host_is_no_wait_of_a_gpu(tmp_path: Path) -> None:
    """Gloo's own copies, in whose place NCCL makes none, a mesh's ranks, a save's objects."""
    meeting = f"file://{tmp_path / 'ranks'}"
    dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    try:
        with SyncDetector(dry_run=True) as detector:
            gradient, part = torch.ones(4, device="cuda"), torch.empty(4, device="cuda")
            dist.reduce_scatter_tensor(part, gradient)
            dist.all_gather_into_tensor(gradient, part)
            dist.all_reduce(part)
            init_device_mesh("cpu", (1,))
            saved = async_save({"part": part}, checkpoint_id=tmp_path / "saved")
            assert isinstance(saved, Future)
            saved.result()
            part.tolist()
    finally:
        dist.destroy_process_group()
    assert [site.kind for site in detector.sites()] == ["d2h", "tolist"], "staged, and read"
