"""The Gluon kernels beside cuDNN: what several runs and missing contestants make of the table.

The timing itself needs a GPU.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def beside_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a script's own folder is: its neighbours are imported from there."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "kernels" / "bench"))


@pytest.fixture
def bench() -> Any:
    return importlib.import_module("gluon_vs_cudnn")


@pytest.fixture
def contestants() -> Any:
    return importlib.import_module("attention_contestants")


def row(ratio: float, **tflops: float) -> dict[str, Any]:
    return {
        "shape": "1x2x64x64",
        "length": 64,
        "causal": True,
        "pass": "forward",
        "tflops": tflops,
        "ratio": ratio,
        "ratio_min": ratio - 0.1,
        "ratio_max": ratio + 0.1,
        "relative_difference": 1e-3,
    }


def test_a_contestant_of_the_first_run_only_keeps_its_time(bench: Any) -> None:
    first = row(1.0, gluon=100.0, cudnn=100.0, fa2=50.0)
    rows = [first, row(1.2, gluon=120.0, cudnn=100.0), row(1.1, gluon=130.0, cudnn=101.0)]
    cell = bench.of_runs(rows)
    assert cell["tflops"] == {"gluon": 120.0, "cudnn": 100.0, "fa2": 50.0}
    assert cell["ratio"] == 1.1
    assert (cell["ratio_min"], cell["ratio_max"]) == (0.9, 1.3)
    assert cell["ratio_of_each_run"] == [1.0, 1.2, 1.1]


def test_who_was_not_timed_is_blank_in_the_table(bench: Any) -> None:
    printed = bench.line(row(1.0, gluon=100.0, cudnn=90.0, triton=70.0))
    assert printed == (
        "1x2x64x64       causal forward        100       90" + " " * 18 + "       70"
        "   1.000 [0.900 1.100]  differ 1.0e-03"
    )


def test_flex_is_compiled_at_one_length(bench: Any) -> None:
    timed = {shape.length: bench.names_for(shape, bench.NAMES) for shape in bench.SHAPES}
    assert {length for length, names in timed.items() if "flex" in names} == {bench.FLEX_LENGTH}
    assert all(set(names) | {"flex"} == set(bench.NAMES) for names in timed.values())


def test_what_cannot_be_compiled_is_left_out_and_said(
    contestants: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise RuntimeError("no such GPU")

    monkeypatch.setattr(contestants, "flex", lambda qkv, causal, grouped: refuse)
    calls = contestants.forwards(("cudnn", "flex"), [torch.zeros(1, 1, 8, 8)] * 3, False)
    assert list(calls) == ["cudnn"]
    assert capsys.readouterr().out == "left blank: RuntimeError: no such GPU\n"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("causal", [False, True])
def test_flex_is_asked_for_the_same_attention(
    contestants: Any, monkeypatch: pytest.MonkeyPatch, causal: bool
) -> None:
    made = contestants.create_block_mask
    monkeypatch.setattr(
        contestants, "create_block_mask", lambda *arguments: made(*arguments, device="cpu")
    )
    # uncompiled it computes the same, and slowly
    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    qkv = [torch.randn(1, heads, 256, 16) for heads in (4, 2, 2)]
    out = contestants.forward_of("flex", qkv, causal)()
    right = F.scaled_dot_product_attention(
        qkv[0], qkv[1], qkv[2], is_causal=causal, enable_gqa=True
    )
    assert torch.allclose(out, right, atol=1e-5)
