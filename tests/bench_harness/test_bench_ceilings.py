"""Ceilings: measured once, kept by device and versions, and never a reason to fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from trainscope.bench import ceilings
from trainscope.bench.ceiling_store import CeilingStore, cache_file
from trainscope.bench.ceilings import ceiling, copy_of
from trainscope.errors import ConfigError


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was measured; a copy always gives 5, a matmul 7."""
    calls: list[str] = []

    def taking(kind: str, value: float) -> object:
        return lambda *args: calls.append(kind) or value

    monkeypatch.setattr(ceilings, "_copy", taking("copy", 5.0))
    monkeypatch.setattr(ceilings, "_matmul", taking("matmul", 7.0))
    return calls


def test_a_ceiling_is_measured_once_for_this_and_the_next_process(
    tmp_path: Path, measured: list[str]
) -> None:
    file = tmp_path / "deep" / "ceilings.json"
    store = CeilingStore(file)
    assert [ceiling("copy", "cpu", store=store) for _ in range(2)] == [5.0, 5.0]
    assert ceiling("copy", "cpu", store=CeilingStore(file)) == 5.0
    assert measured == ["copy"]
    (key,) = json.loads(file.read_text())
    assert torch.__version__ in key
    assert "CPU of" in key


def test_each_dtype_and_each_precision_has_a_matmul_ceiling_of_its_own(
    tmp_path: Path, measured: list[str]
) -> None:
    store = CeilingStore(tmp_path / "c.json")
    before = torch.get_float32_matmul_precision()
    ceiling("matmul", "cpu", torch.float32, store=store)
    ceiling("matmul", "cpu", torch.bfloat16, store=store)
    try:
        torch.set_float32_matmul_precision("high" if before == "highest" else "highest")
        ceiling("matmul", "cpu", torch.float32, store=store)
    finally:
        torch.set_float32_matmul_precision(before)
    assert measured == ["matmul"] * 3


def test_remeasure_measures_again_and_replaces(tmp_path: Path, measured: list[str]) -> None:
    store = CeilingStore(tmp_path / "c.json")
    store.put("other", 1.0)
    ceiling("copy", "cpu", store=store)
    ceiling("copy", "cpu", store=store, remeasure=True)
    assert measured == ["copy", "copy"]
    assert sorted(json.loads((tmp_path / "c.json").read_text()).values()) == [1.0, 5.0]


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"copy": "fast", "b": -1}'])
def test_a_broken_file_costs_a_measurement_only(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.json"
    file.write_text(text)
    store = CeilingStore(file)
    assert store.get("copy") is None
    assert store.get("b") is None
    store.put("copy", 2.0)
    assert CeilingStore(file).get("copy") == 2.0


def test_a_place_that_cannot_be_written_keeps_the_number_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = CeilingStore(tmp_path / "file" / "below" / "c.json")
    store.put("copy", 2.0)
    assert store.get("copy") == 2.0


def test_the_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSCOPE_CACHE_DIR", "/elsewhere")
    assert cache_file() == Path("/elsewhere/ceilings.json")
    monkeypatch.delenv("TRAINSCOPE_CACHE_DIR")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_file() == Path("/caches/trainscope/ceilings.json")


@pytest.mark.parametrize("dtype", [None, torch.int8])
def test_a_matmul_ceiling_needs_a_floating_dtype(dtype: torch.dtype | None) -> None:
    with pytest.raises(ConfigError, match="pass a floating-point dtype"):
        ceiling("matmul", "cpu", dtype)


def test_the_copy_of_some_bytes_moves_that_many() -> None:
    target = copy_of(1000, torch.device("cpu")).call()
    assert 2 * target.numel() * target.element_size() == 1000


def test_a_ceiling_measured_here_is_of_the_order_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ceilings._COPY_BYTES, "cpu", 1 << 22)
    monkeypatch.setitem(ceilings._MATMUL_SIZE, "cpu", 128)
    store = CeilingStore(tmp_path / "c.json")
    assert 1e8 < ceiling("copy", "cpu", store=store) < 1e13
    assert 1e8 < ceiling("matmul", "cpu", torch.float32, store=store) < 1e14
