"""The attention kernels, compiled for Ampere and Hopper by the real ptxas without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CASES = [
    "forward:90:128:full",
    "forward:90:128:causal",
    "dkdv:90:128:causal",
    "dq:90:128:causal",
    "dkdv:80:128:causal",
]
ALLOWED_LOADS = {"dkdv:90:128:causal": 8}
"""This tile is the fastest in spite of them: see ``tile_sizes.HOPPER``."""
SHARED_MEMORY = {80: 99 * 1024, 90: 227 * 1024}
"""Ampere's by compute capability 8.6, which has the least; Hopper's own."""


@pytest.fixture(scope="module")
def compiled() -> dict[str, dict[str, Any]]:
    script = Path(__file__).parent / "compile_attention.py"
    env = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, str(script), *CASES], env=env, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_the_inner_loops_read_no_spilt_register_and_shared_memory_fits(
    compiled: dict[str, dict[str, Any]], case: str
) -> None:
    it = compiled[case]
    assert it["local_loads_in_inner_loops"] <= ALLOWED_LOADS.get(case, 0)
    assert 0 < it["shared"] <= SHARED_MEMORY[it["arch"]]


@pytest.mark.parametrize("case", [each for each in CASES if each.startswith("forward")])
def test_the_forward_spills_nothing(compiled: dict[str, dict[str, Any]], case: str) -> None:
    assert compiled[case]["spilt"] == 0


@pytest.mark.parametrize("case", CASES)
def test_ptxas_serialises_no_wgmma(compiled: dict[str, dict[str, Any]], case: str) -> None:
    assert compiled[case]["warnings"] == []


@pytest.mark.parametrize("case", CASES)
def test_products_run_on_tensor_cores_and_tiles_come_in_16_byte_copies(
    compiled: dict[str, dict[str, Any]], case: str
) -> None:
    it = compiled[case]
    assert it["wide_copies"] >= 16
    assert (it["wgmma"] > 0, it["mma"] > 0) == (it["arch"] == 90, it["arch"] == 80)
