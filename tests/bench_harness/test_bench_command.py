"""``trainscope bench``: what it lists, runs and writes, and how it fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from trainscope.bench import ceilings, entry_points
from trainscope.cli.main import app


@dataclass(frozen=True)
class Case:
    name: str
    impls: dict[str, Callable[..., Any]]
    make_inputs: Callable[[], tuple[Any, ...]]
    reference: str
    bytes_moved: int | None = None
    flops: int | None = None
    backward: bool = False


def made() -> tuple[torch.Tensor]:
    return (torch.linspace(-2, 2, 256),)


def good() -> list[Case]:
    impls = {"exp": torch.exp, "again": lambda x: x.exp()}
    return [
        Case("exp small", impls, made, "exp"),
        Case("exp backward", impls, made, "exp", backward=True),
    ]


def wrong() -> list[Case]:
    return [Case("wrong", {"exp": torch.exp, "zero": torch.zeros_like}, made, "exp")]


def elsewhere() -> list[Case]:
    def on_meta() -> tuple[torch.Tensor]:
        return (torch.ones(4, device="meta"),)

    return [Case("lost", {"exp": torch.exp}, on_meta, "exp"), good()[0]]


def raises() -> list[Case]:
    raise RuntimeError("no compiler")


def incomplete() -> list[object]:
    return [object()]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """These benchmarks and no others, and a store of ceilings of this test's own."""
    names = ("good", "wrong", "elsewhere", "raises", "incomplete")
    points = [EntryPoint(name, f"{__name__}:{name}", entry_points.GROUP) for name in names]
    monkeypatch.setattr(
        entry_points, "entry_points", lambda group: points if group == entry_points.GROUP else []
    )
    monkeypatch.setattr(ceilings, "_copy", lambda device: 1e15)
    monkeypatch.setenv("TRAINSCOPE_CACHE_DIR", str(tmp_path / "cache"))


def run(*args: str, status: int = 0) -> tuple[str, str]:
    done = CliRunner().invoke(app, ["bench", *args])
    assert done.exit_code == status, (done.output, done.exception)
    return done.stdout, done.stderr


def test_without_a_name_it_lists_what_is_installed_and_imports_none() -> None:
    out, _ = run()
    assert out.splitlines() == [
        f"{name}  {__name__}:{name}"
        for name in ("elsewhere", "good", "incomplete", "raises", "wrong")
    ]


def test_every_case_is_compared_and_written(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    out, _ = run("good", "--seconds", "0.01", "--device", "cpu", "--json", str(file))
    assert "exp small" in out
    document = json.loads(file.read_text())
    assert (document["schema_version"], document["benchmark"]) == (1, "good")
    assert [each["name"] for each in document["results"]] == ["exp small", "exp backward"]
    (first, second) = document["results"]
    assert [row["name"] for row in first["rows"]] == ["exp", "again"]
    assert first["environment"]["torch"] == torch.__version__
    assert first["environment"]["date"].endswith("+00:00")
    assert all(row["time"]["median_us"] > 0 for row in (*first["rows"], *second["rows"]))


def test_only_the_cases_that_are_asked_for_run() -> None:
    out, _ = run("good", "--filter", "back", "--seconds", "0.01", "--device", "cpu")
    assert "exp backward" in out
    assert "exp small" not in out


def test_the_baseline_may_be_chosen(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    args = ("--filter", "small", "--seconds", "0.01", "--device", "cpu", "--json", str(file))
    run("good", "--baseline", "again", *args)
    (found,) = json.loads(file.read_text())["results"]
    assert [row["ratio"]["to"] for row in found["rows"]] == ["again", "again"]
    assert found["rows"][1]["ratio"]["value"] == 1.0
    _, err = run("good", "--baseline", "nobody", *args, status=2)
    assert "--baseline 'nobody' is none of the functions: exp, again" in err


def test_a_refused_function_is_an_exit_status() -> None:
    out, _ = run("wrong", "--seconds", "0.01", "--device", "cpu", status=1)
    assert "zero: refused, output 0: largest error" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("goood",), "no benchmark is named 'goood'; there are: elsewhere, good, incomplete"),
        (("goood",), "did you mean 'good'?"),
        (("good", "--filter", "log"), "there are: exp small, exp backward"),
        (("good", "--device", "tpu"), "device 'tpu' is not supported; pass cpu, cuda or cuda:1"),
        (("good", "--seconds", "0"), "seconds=0.0 is not allowed; pass a positive number"),
        (("raises",), f"benchmark 'raises' ({__name__}:raises) raised RuntimeError: no compiler"),
        (("incomplete",), "returned an object of type object without name, impls"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_allowed(args: tuple[str, ...], said: str) -> None:
    out, err = run(*args, status=2)
    assert said in err
    assert out == ""


def test_a_case_that_fails_is_told_and_the_next_one_runs() -> None:
    out, err = run("elsewhere", "--seconds", "0.01", "--device", "cpu", status=1)
    assert "lost: make_inputs of case 'lost' made a tensor on meta, and cpu was asked for" in err
    assert "exp small" in out


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "r.json"
    out, err = run("good", "--seconds", "0.01", "--device", "cpu", "--json", str(missing), status=2)
    assert out == ""
    assert "cannot be written: No such file or directory" in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_told() -> None:
    _, err = run("good", "--device", "cuda:1", status=2)
    assert "this torch sees no GPU; pass cpu" in err
