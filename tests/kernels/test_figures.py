"""The script of the figures: which cases, in which order, and what is kept when time runs out."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from trainscope.bench import compare
from trainscope_kernels.benchmarks import attention
from trainscope_kernels.benchmarks.case import Case

SCRIPT = Path(__file__).parents[2] / "kernels" / "bench" / "figures.py"


@pytest.fixture
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def case_of(name: str, **impls: Any) -> Case:
    def make_inputs() -> tuple[torch.Tensor]:
        return (torch.randn(8, device="cpu"),)

    return Case(name, impls, make_inputs, "exp", None, None, "backward" in name)


def test_attention_has_twelve_cases_forward_first(
    figures: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_flex", lambda length, causal: torch.exp)
    found = figures.cases("attention", "")
    shapes = ("4x32x4096x128", "2x32x8192x128", "1x32x16384x128")
    wanted = itertools.product(("forward", "backward"), shapes, ("full", "causal"))
    assert [each.name for each in found] == [f"attention {' '.join(each)}" for each in wanted]
    timed = {"sdpa", "sdpa fa2", "sdpa cudnn", "flex", "triton", "gluon"}
    assert {frozenset(each.impls) for each in found} == {frozenset(timed)}
    assert len(figures.cases("attention", "forward 4x32")) == 2


def test_each_case_is_kept_and_one_that_fails_costs_no_other(
    figures: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cases = [case_of(name, exp=torch.exp) for name in ("first", "broken", "second", "late")]
    kept: list[list[str]] = []
    clock = iter(range(0, 1000, 10))

    def run_case(case: Case, place: torch.device, **options: Any) -> Any:
        path = tmp_path / "gelu.json"
        before = json.loads(path.read_text()) if path.exists() else []
        kept.append([each["name"] for each in before])
        if case.name == "broken":
            raise RuntimeError("out of memory")
        return compare(case.impls, case.make_inputs(), reference="exp", name=case.name, trials=2)

    monkeypatch.setattr(figures, "run_case", run_case)
    monkeypatch.setattr(figures, "cases", lambda name, part: cases)
    monkeypatch.setattr(figures.time, "perf_counter", lambda: next(clock))
    words = ["figures.py", "gelu", "--out", str(tmp_path), "--until", "55"]
    monkeypatch.setattr(sys, "argv", words)
    figures.main()
    assert kept == [[], ["first"], ["first"]]
    done = json.loads((tmp_path / "gelu.json").read_text())
    assert [each["name"] for each in done] == ["first", "second"]


def test_compilers_run_side_by_side_and_one_that_raises_stops_none(
    figures: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "DEVICE", torch.device("cpu"))
    met = threading.Barrier(2)
    called: list[tuple[str, bool]] = []

    def a(x: torch.Tensor) -> torch.Tensor:
        met.wait(10)
        called.append(("a", x.requires_grad))
        return x.exp()

    def b(x: torch.Tensor) -> torch.Tensor:
        met.wait(10)
        called.append(("b", x.requires_grad))
        raise ValueError("not here")

    cases = [case_of(f"gelu {way}", a=a, b=b, exp=torch.exp) for way in ("forward", "backward")]
    figures.compile_ahead(cases, ("a", "b", "missing"))
    assert sorted(called) == [("a", False), ("a", True), ("b", False), ("b", True)]
    assert capsys.readouterr().out.count("ValueError: not here") == 2
    figures.compile_ahead(cases, ())
    assert len(called) == 4
