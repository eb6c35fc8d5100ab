"""The public names, and what importing them loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import full_trace, write_run

import trainscope

HEAVY = ("torch", "nvtx", "wandb", "triton", "tensorboard", "pandas")
OPTIONAL = ("nvtx", "wandb", "triton", "tensorboard", "lightning", "transformers")


def without(*packages: str) -> str:
    """The beginning of a program on a machine that has none of these packages."""
    return f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Blocked())
"""


BLOCK = without(*HEAVY)
LOOP = """
import torch
import trainscope as ts

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with ts.Scope(sys.argv[1], schedule=ts.Schedule(wait=1, active=1)) as scope:
    scope.wrap(model, optimizer)
    for batch in scope.steps([torch.ones(2, 4)] * 3):
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        scope.log(loss=loss)
report = scope.report()
print(report.steps.count, sorted(phase.name for phase in report.phases))
print(scope.latest("loss") == loss.item())
"""
LOADED = f"""
print("loaded:", [name for name in {HEAVY} if name in sys.modules])
"""


def python(program: str, *args: str) -> str:
    """Standard output of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", program, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_is_sorted_and_each_name_has_one_home() -> None:
    assert trainscope.__all__ == sorted(trainscope.__all__)
    assert set(trainscope.__all__) == set(trainscope._HOME)


@pytest.mark.parametrize("name", trainscope.__all__)
def test_every_public_name_resolves_and_is_listed(name: str) -> None:
    value = getattr(trainscope, name)
    assert value is getattr(trainscope, name)
    assert name in dir(trainscope)
    home = sys.modules[trainscope._HOME[name]]
    assert value is home or value is getattr(home, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'trainscope' has no attribute 'Scop'"):
        _ = trainscope.Scop


def test_importing_loads_nothing_heavy() -> None:
    program = "import sys, trainscope\ndir(trainscope)\ntrainscope.load; trainscope.Report" + LOADED
    assert python(program) == "loaded: []\n"


@pytest.mark.parametrize("name", ["Report", "Schedule", "Trace", "analyze", "errors", "load"])
def test_what_needs_no_torch_works_where_none_is_installed(name: str) -> None:
    assert python(BLOCK + f"import trainscope; print(trainscope.{name}.__name__)") != ""


def test_a_report_is_made_where_no_torch_is_installed(tmp_path: Path) -> None:
    path = write_run(tmp_path / "mlp", full_trace()).path
    program = (
        BLOCK + "import trainscope as ts\nprint(ts.analyze(ts.load(sys.argv[1])).verdict)" + LOADED
    )
    verdict, loaded = python(program, str(path)).splitlines()
    assert verdict.startswith("train.py:42 made the CPU wait 10.7 ms of every 20.4 ms step")
    assert loaded == "loaded: []"


def test_a_loop_is_recorded_where_nothing_optional_is_installed(tmp_path: Path) -> None:
    """Nor is there a GPU: the phases, the window and the values are all there."""
    program = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''" + without(*OPTIONAL) + LOOP
    steps, logged = python(program, str(tmp_path / "run")).splitlines()
    assert steps == "3 ['backward', 'data', 'forward', 'optimizer']"
    assert logged == "True"
    assert (tmp_path / "run" / "rank0" / "trace-000.json.gz").exists()


@pytest.mark.parametrize(
    "args",
    [["--help"], ["report", "--help"], ["report", "RUN"], ["bench", "--help"], ["bench"]],
)
def test_help_and_report_start_without_torch(tmp_path: Path, args: list[str]) -> None:
    path = write_run(tmp_path / "mlp", full_trace()).path
    args = [str(path) if arg == "RUN" else arg for arg in args]
    program = (
        "import sys\nsys.argv = ['trainscope', *sys.argv[1:]]\n"
        "from trainscope.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
    )
    assert python(program + LOADED, *args).splitlines()[-1] == "loaded: []"


def test_a_path_given_to_analyze_is_told_to_be_loaded_first() -> None:
    with pytest.raises(
        trainscope.errors.ConfigError, match=r"'runs/mlp' is no Trace.*load\(path\)"
    ):
        trainscope.analyze("runs/mlp")  # type: ignore[arg-type]
