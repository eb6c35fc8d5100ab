"""What Triton's GELU becomes on Ampere and Hopper, compiled for real, with no GPU needed."""

from __future__ import annotations

from typing import Any

import pytest

INSTRUCTIONS_AN_ELEMENT = {"bf16": 27, "fp32": 55}
"""What an H200 issues while its memory moves an element there and back (132 SMs, 1.75 GHz)."""


@pytest.fixture
def compiled(compiled_for_gpus: dict[str, Any]) -> list[dict]:
    return compiled_for_gpus["gelu"]


def test_nothing_spills(compiled: list[dict]) -> None:
    assert len(compiled) == 7
    assert [each for each in compiled if each["stack"] != 0] == []


@pytest.mark.usefixtures("measured_triton")
def test_a_multiprocessor_has_registers_for_half_its_threads(compiled: list[dict]) -> None:
    assert max(each["registers"] for each in compiled) <= 64


def test_every_access_of_a_full_block_is_128_bits_wide(compiled: list[dict]) -> None:
    inputs = {"forward": 1, "backward": 2, "bias_forward": 1, "bias_backward": 2}
    for each in compiled:
        vectors = each["elements_a_thread"] * (2 if each["dtype"] == "bf16" else 4) // 16
        assert each["loads_128"] >= inputs[each["kernel"]] * vectors, each
        assert each["stores_128"] >= vectors, each


def test_the_forward_issues_less_than_memory_leaves_time_for(compiled: list[dict]) -> None:
    on_hopper = {each["kernel"] for each in compiled if each["capability"] == 90}
    assert {"forward", "bias_forward"} <= on_hopper
    for each in compiled:
        if each["kernel"] == "bias_forward" and each["capability"] == 90:
            budget = INSTRUCTIONS_AN_ELEMENT[each["dtype"]] * each["elements_a_thread"]
            assert each["instructions"] < budget, each
        if each["kernel"] == "forward" and each["capability"] == 90:
            # a full block and the last, masked one are two copies of the code
            budget = INSTRUCTIONS_AN_ELEMENT[each["dtype"]] * each["elements_a_thread"]
            assert each["instructions"] < 2 * budget, each
