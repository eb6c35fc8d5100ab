"""What ptxas makes of the softmax kernels for Ampere and Hopper; needs no GPU."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def launches(compiled_for_gpus: dict[str, Any]) -> list[dict[str, Any]]:
    return compiled_for_gpus["softmax"]


def test_no_register_spills(launches) -> None:
    assert {each["capability"] for each in launches} == {80, 90}
    assert [each for each in launches if each["spilled"]] == []


def test_every_load_and_store_moves_16_bytes(launches) -> None:
    whole = [each for each in launches if each["stage"] == "whole"]
    assert all(each["loads"] == each["wide_loads"] > 0 for each in whole)
    assert all(each["stores"] == each["wide_stores"] > 0 for each in whole)


def test_each_value_is_read_once_by_a_launch_and_written_once(launches) -> None:
    streams = {"forward": 1, "backward": 2}
    for each in launches:
        rows, columns = each["tile"]
        size = 4 if each["dtype"] == "fp32" else 2
        vectors = rows * columns * size // (16 * 32 * each["num_warps"])
        assert each["wide_loads"] == streams[each["what"]] * vectors
        assert each["wide_stores"] == (0 if each["stage"] == "publish" else vectors)
    long = [each["stage"] for each in launches if each["shape"][1] == 131072]
    assert set(long) == {"publish", "finish"}


@pytest.mark.usefixtures("measured_triton")
def test_two_programs_fit_on_a_multiprocessor(launches) -> None:
    # a whole row of 32,768 columns is the exception: it fills one by itself
    for each in launches:
        if each["tile"][1] < 32768:
            assert 2 * each["registers"] * 32 * each["num_warps"] <= 65536
            assert each["shared"] <= 8192
