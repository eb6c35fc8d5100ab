"""The examples run as they stand, and the planted mistakes are found: all ten, and no other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
HAS_GPU = torch.cuda.is_available()


def run(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text().splitlines()) < 100


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_a_wrapped_example_reports_its_steps_and_learns(name: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run(EXAMPLES / f"{name}.py", "--steps", 40, "--run-dir", run_dir, cwd=tmp_path)
    report = json.loads(
        run("-m", "trainscope", "report", run_dir, "--format", "json", cwd=tmp_path).stdout
    )
    assert report["steps"]["count"] == report["steps"]["optimizer_steps"] == 40
    names = {phase["name"] for phase in report["phases"]}
    assert names >= {"data", "forward", "backward", "optimizer"}
    assert report["capture"]["windows"] == 1
    assert report["syncs"] == []
    losses = [
        json.loads(line)["loss"]
        for line in (run_dir / "rank0" / "metrics.jsonl").read_text().splitlines()
    ]
    assert len(losses) == 40
    assert sum(losses[-5:]) < sum(losses[:5])


def test_the_ten_mistakes_are_found_and_none_is_invented(tmp_path: Path) -> None:
    script = EXAMPLES / "slow_loop.py"
    marks = {
        (number, kind)
        for number, line in enumerate(script.read_text().splitlines(), 1)
        for kind in re.findall(r"# MISTAKE (\S+)", line)
    }
    assert len(marks) == 10
    run_dir = tmp_path / "run"
    run("-m", "trainscope", "run", "--run-dir", run_dir, script, "--steps", 12, cwd=tmp_path)
    report = json.loads(
        run("-m", "trainscope", "report", run_dir, "--format", "json", cwd=tmp_path).stdout
    )
    assert report["run"]["dry_run"] is not HAS_GPU
    assert report["steps"]["count"] == report["steps"]["optimizer_steps"] == 12
    in_steps = [site for site in report["syncs"] if site["during"] == "training"]
    # each once in every turn, in the first one too
    counted = {(site["line"], site["kind"]): site["count"] for site in in_steps}
    assert counted == dict.fromkeys(marks, 12)
    assert len(in_steps) == 10
    assert {site["per_step"] for site in in_steps} == {1.0}
    assert all(site["advice"] for site in in_steps)
    (before,) = [site for site in report["syncs"] if site["during"] == "setup"]
    assert before["source"].endswith(".to(device)")
    assert before["source"].startswith("model = ")


def test_the_wandb_example_logs_every_step_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run(
        EXAMPLES / "wandb_logging.py",
        *("--steps", 20, "--run-dir", tmp_path / "run"),
        cwd=tmp_path,
        WANDB_MODE="offline",
    )
    lines = (tmp_path / "run" / "rank0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(20))
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
