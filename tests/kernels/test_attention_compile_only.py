"""The attention kernels, compiled for Ampere and Hopper by the real ptxas without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

ALLOWED_LOADS = {"dkdv:90:128:causal": 8}
"""This tile is the fastest in spite of them: see ``tile_sizes.HOPPER``."""
SHARED_MEMORY = {80: 99 * 1024, 90: 227 * 1024}
"""Ampere's by compute capability 8.6, which has the least; Hopper's own."""


@pytest.fixture
def compiled(compiled_attention: dict[str, Any]) -> list[dict[str, Any]]:
    assert len(compiled_attention["triton"]) == 5
    return compiled_attention["triton"]


def test_every_option_and_every_dtype_compiles(compiled_attention: dict[str, Any]) -> None:
    options = compiled_attention["options"]
    assert len(options) == 8
    assert {name: said for name, said in options.items() if said is not None} == {}


@pytest.mark.usefixtures("measured_triton")
def test_the_inner_loops_read_no_spilt_register_and_shared_memory_fits(
    compiled: list[dict[str, Any]],
) -> None:
    for each in compiled:
        allowed = ALLOWED_LOADS.get(each["case"], 0)
        assert each["local_loads_in_inner_loops"] <= allowed, each
        assert 0 < each["shared"] <= SHARED_MEMORY[each["arch"]], each


def test_the_forward_spills_nothing(compiled: list[dict[str, Any]]) -> None:
    spilt = [each["spilt"] for each in compiled if each["case"].startswith("forward")]
    assert spilt == [0, 0]


def test_ptxas_serialises_no_wgmma(compiled: list[dict[str, Any]]) -> None:
    assert [each for each in compiled if each["warnings"]] == []


def test_products_run_on_tensor_cores_and_tiles_come_in_16_byte_copies(
    compiled: list[dict[str, Any]],
) -> None:
    for each in compiled:
        assert each["wide_copies"] >= 16, each
        on = (each["wgmma"] > 0, each["mma"] > 0)
        assert on == (each["arch"] == 90, each["arch"] == 80), each
