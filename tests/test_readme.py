"""What the README shows is what works: its lines are run as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

README = Path(__file__).parents[1] / "README.md"


def block(mark: str) -> str:
    """The code block that follows ``<!-- mark -->``."""
    found = re.search(
        rf"<!-- {re.escape(mark)} -->\n```\w*\n(.*?)```", README.read_text(), re.DOTALL
    )
    assert found, f"README has no block {mark}"
    return found.group(1)


def test_an_unmodified_loop_is_wrapped_with_the_readmes_three_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = block("example: wrap")
    added = [line for line in code.splitlines() if "# +" in line]
    assert len(added) == 3
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    names = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loader": [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(6)],
        "loss_fn": F.mse_loss,
        "device": "cpu",
    }
    exec(compile(code, "train.py", "exec"), names)
    names["scope"].close()
    report = names["scope"].report()
    assert report.steps.count == 6
    assert report.steps.optimizer_steps == 6
    assert {phase.name for phase in report.phases} >= {"data", "forward", "backward", "optimizer"}
    assert report.verdict in capsys.readouterr().out.replace("\n", " ")


def test_the_unwrapped_lines_of_the_readme_are_a_plain_loop() -> None:
    lines = block("example: wrap").splitlines()
    plain = [line for line in lines if "# +" not in line and "scope" not in line]
    assert not any("ts." in line for line in plain[1:])


def test_the_figures_are_those_of_the_result_files() -> None:
    sys.path.insert(0, str(README.parent / "tests" / "bench"))
    from readme_figures import with_figures

    assert README.read_text() == with_figures(README.read_text())


@pytest.mark.parametrize("mark", ["command: main", "command: test"])
def test_both_commands_are_one_line_and_need_only_pip(mark: str) -> None:
    command = block(mark).strip()
    assert "\n" not in command
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install")
