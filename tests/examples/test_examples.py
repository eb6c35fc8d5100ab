"""The examples run as they stand, and the planted mistakes are found: all ten, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from warm import TRAINSCOPE, Running, warm, warm_script

EXAMPLES = Path(__file__).parents[2] / "examples"
HAS_GPU = torch.cuda.is_available()


def ended_well(program: Running) -> str:
    """What the program printed."""
    ended = program.end()
    assert ended.status == 0, ended.out + ended.err
    return ended.out


def example(place: Path, name: str, *words: object) -> None:
    """Run an example, as it stands, in the folder of the fixture ``place``."""
    text = (EXAMPLES / f"{name}.py").read_text()
    ended_well(warm_script(place, text, *map(str, words), "--run-dir", "run"))


def report_of(place: Path) -> Any:
    """What ``trainscope report run --format json`` prints."""
    return json.loads(ended_well(warm(TRAINSCOPE, "report", "run", "--format", "json", cwd=place)))


def losses_of(run: Path) -> list[float]:
    """The logged losses, a step each."""
    lines = (run / "rank0" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 100


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_a_wrapped_example_reports_its_steps_and_learns(name: str, place: Path) -> None:
    example(place, name, "--steps", 40, "--width", 64)
    report = report_of(place)
    assert report["steps"]["count"] == report["steps"]["optimizer_steps"] == 40
    names = {phase["name"] for phase in report["phases"]}
    assert names >= {"data", "forward", "backward", "optimizer"}
    assert report["capture"]["windows"] == 1
    assert report["syncs"] == []
    losses = losses_of(place / "run")
    assert len(losses) == 40
    assert sum(losses[-5:]) < sum(losses[:5])
    # with the custom kernels it learns the same: their sums are made in another order, no more
    example(place, name, "--steps", 40, "--width", 64, "--kernels")
    assert losses_of(place / "run-2") == pytest.approx(losses, rel=0.02)


def test_the_ten_mistakes_are_found_and_none_is_invented(place: Path) -> None:
    script = EXAMPLES / "slow_loop.py"
    marks = {
        (number, kind)
        for number, line in enumerate(script.read_text().splitlines(), 1)
        for kind in re.findall(r"# MISTAKE (\S+)", line)
    }
    assert len(marks) == 10
    words = ("run", "--run-dir", "run", str(script), "--steps", "12")
    ended_well(warm(TRAINSCOPE, *words, cwd=place))
    report = report_of(place)
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


def test_the_wandb_example_logs_every_step_offline(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    example(place, "wandb_logging", "--steps", 20)
    lines = (place / "run" / "rank0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(20))
    assert list(place.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.gpu
def test_the_claims_are_held_against_this_gpu(place: Path) -> None:
    out = ended_well(warm_script(place, (EXAMPLES / "chapter10.py").read_text()))
    table = out.splitlines()[1:]
    assert len(table) == 27
    assert all(re.search(r"\d( ms| MB|$)", line) for line in table)
    assert "refused" not in out


@pytest.mark.skipif(HAS_GPU, reason="a GPU is there")
def test_without_a_gpu_there_is_nothing_to_hold_claims_against(place: Path) -> None:
    ended = warm_script(place, (EXAMPLES / "chapter10.py").read_text()).end()
    assert ended.status == 1
    assert ended.err.strip() == "this holds claims against a GPU, and torch sees none here"
