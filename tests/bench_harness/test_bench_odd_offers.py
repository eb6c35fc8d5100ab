"""Entry points that fail or return rubbish, unwritable files: one line and status 2 for each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
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
    name: Any = "exp"
    impls: Any = field(default_factory=lambda: {"exp": torch.exp, "again": lambda x: x.exp()})
    make_inputs: Any = lambda: (torch.linspace(-2, 2, 256),)
    reference: Any = "exp"
    bytes_moved: Any = None
    flops: Any = None
    backward: bool = False


class Moody:
    name, impls, reference = "moody", {"exp": torch.exp}, "exp"
    bytes_moved = flops = None
    backward = False

    @property
    def make_inputs(self) -> Any:
        raise RuntimeError("not today\nnor tomorrow")


def nothing() -> None:
    return None


def text() -> str:
    return "exp"


def table() -> dict[str, object]:
    return {"exp": Case()}


def empty() -> list[Case]:
    return []


def moody() -> list[object]:
    return [Moody()]


def generator() -> Iterator[Case]:
    yield Case()
    raise RuntimeError("a late \x1b[2J thought")


def exits() -> list[Case]:
    raise SystemExit("no GPU here")


def two() -> list[Case]:
    wrong = Case(name="wrong", make_inputs=lambda: torch.ones(3))
    return [wrong, replace(wrong, name="stops", make_inputs=lambda: exits()), Case(name="right")]


def no_gradient() -> list[Case]:
    whole = {"plus": lambda x: x + 1}
    made = Case("whole", whole, lambda: (torch.arange(4),), "plus", backward=True)
    return [made, Case(name="right")]


listed = [Case(name="listed")]
CHANGED: dict[str, dict[str, Any]] = {
    "name is 3": {"name": 3},
    "name is 'a\\nb'": {"name": "a\nb"},
    "impls is of type list": {"impls": [torch.exp]},
    "impls is empty": {"impls": {}},
    "impls['exp'] is of type str": {"impls": {"exp": "exp"}},
    "make_inputs is of type tuple; pass a function": {"make_inputs": (1,)},
    "reference='log' is none of its impls": {"reference": "log"},
    "bytes_moved=1.5 is not allowed": {"bytes_moved": 1.5},
    "flops='many' is not allowed": {"flops": "many"},
}
asked: list[str] = []


def changed() -> list[Case]:
    return [Case(), replace(Case(), **CHANGED[asked[-1]])]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("nothing", "text", "table", "empty", "moody", "generator", "exits", "two", "listed")
    names += ("changed", "no_gradient", "missing")
    points = [EntryPoint(name, f"{__name__}:{name}", entry_points.GROUP) for name in names]
    points.append(EntryPoint("nowhere", "no_such_module_at_all:f", entry_points.GROUP))
    points += [EntryPoint("twice", f"{__name__}:{name}", entry_points.GROUP) for name in names[:2]]
    points += [EntryPoint("same", f"{__name__}:listed", entry_points.GROUP)] * 2
    monkeypatch.setattr(entry_points, "entry_points", lambda group: points)
    monkeypatch.setattr(ceilings, "_copy", lambda device: 1e15)
    monkeypatch.setenv("TRAINSCOPE_CACHE_DIR", str(tmp_path / "cache"))


def run(*args: str, status: int = 0) -> tuple[str, list[str]]:
    """Standard output, and the lines of standard error."""
    done = CliRunner().invoke(app, ["bench", *args, "--seconds", "0.001", "--device", "cpu"])
    assert done.exit_code == status, (done.output, done.exception)
    lines = done.stderr.splitlines()
    assert all(line.startswith("trainscope bench: ") and line.isprintable() for line in lines)
    return done.stdout, lines


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "gave None; it has to be a function that returns a list of cases"),
        ("text", "gave str; it has to be a function"),
        ("table", "gave dict; it has to be a function"),
        ("empty", "no case of 'empty' has '' in its name; there are: none"),
        ("moody", "raised RuntimeError: not today"),
        ("generator", "raised RuntimeError: a late ?[2J thought"),
        ("exits", "raised SystemExit: no GPU here"),
        ("missing", "raised AttributeError: "),
        ("nowhere", "raised ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("twice", "is offered twice, by "),
    ],
)
def test_what_is_offered_and_is_no_benchmark(name: str, said: str) -> None:
    out, (line,) = run(name, status=2)
    assert out == ""
    assert said in line


@pytest.mark.parametrize("said", CHANGED)
def test_a_case_that_is_none_is_told_by_its_name(said: str) -> None:
    asked.append(said)
    out, (line,) = run("changed", status=2)
    assert out == ""
    assert said in line
    assert ", case " in line


def test_a_list_is_as_good_as_a_function_and_one_package_may_be_found_twice() -> None:
    for name in ("listed", "same"):
        out, lines = run(name)
        assert "listed" in out
        assert lines == []


def test_one_case_that_fails_does_not_end_the_others() -> None:
    out, lines = run("two", status=1)
    assert "right" in out
    assert "trainscope bench: wrong: inputs is of type Tensor; pass a tuple" in lines[0]
    assert "make_inputs of case 'stops' raised SystemExit: no GPU here" in lines[1]
    out, lines = run("no_gradient", status=1)
    assert "right" in out
    assert "inputs of 'plus' hold no floating-point tensor" in lines[0]


def test_a_baseline_that_one_case_has_fails_only_the_others() -> None:
    _, (line,) = run("two", "--baseline", "none", status=2)
    assert "--baseline 'none' is none of the functions: exp, again" in line


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_a_time_that_is_none(seconds: str) -> None:
    done = CliRunner().invoke(app, ["bench", "listed", "--seconds", seconds])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"seconds={float(seconds)!r} is not allowed" in done.stderr


def test_places_where_no_result_can_be_written(tmp_path: Path) -> None:
    pipe, held = tmp_path / "pipe", tmp_path / "held.json"
    os.mkfifo(pipe)
    held.write_text("older results")
    for place, said in (
        (pipe, "is a pipe; name a file"),
        (tmp_path, "cannot be written: Is a directory"),
        (held / "x.json", "cannot be written: Not a directory"),
        (tmp_path / ("x" * 300), "cannot be written: File name too long"),
        (tmp_path / "a\nb" / "c", "a b/c cannot be written: No such file"),
        ("", "cannot be written: Is a directory"),
    ):
        out, (line,) = run("listed", "--json", str(place), status=2)
        assert out == ""
        assert said in line
    run("two", "--filter", "wrong", "--json", str(held), status=1)
    assert json.loads(held.read_text())["results"] == []


def test_older_results_stay_until_there_are_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainscope.bench import cases

    held = tmp_path / "held.json"
    held.write_text("older results")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cases, "run_case", interrupted)
    CliRunner().invoke(app, ["bench", "listed", "--json", str(held)])
    assert held.read_text() == "older results"


def test_a_number_that_json_has_not_is_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainscope.bench import cases

    result = cases.run_case(Case(), torch.device("cpu"), seconds=0.001)
    odd = result.rows[0].model_copy(update={"cpu_us": float("nan"), "first_call_us": float("inf")})
    monkeypatch.setattr(
        cases, "run_case", lambda *_, **__: result.model_copy(update={"rows": (odd,)})
    )
    file = tmp_path / "r.json"
    run("listed", "--json", str(file))
    (row,) = json.loads(file.read_text())["results"][0]["rows"]
    assert (row["cpu_us"], row["first_call_us"]) == (None, None)
