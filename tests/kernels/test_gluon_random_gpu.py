"""500 random calls of Gluon attention on a Hopper GPU, forward and backward, against float64."""

from __future__ import annotations

from typing import Any

import gluon_random_checks
import pytest
from gluon_process import found_by
from gluon_random_checks import KINDS, calls, drawn

CALLS = 25
"""Of each process, in which a kernel is compiled once."""


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [256, 192, 128, 96, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_random_calls_are_as_near_to_float64_as_their_roundings(kind: str, dim: int) -> None:
    arguments = {"kind": kind, "dim": dim, "seeds": list(range(CALLS))}
    assert found_by("gluon_random_checks.py", "calls", arguments) == []


def smallest(kind: str, number: int) -> list[int]:
    """Seeds whose calls take the CPU the least time."""

    def scores(seed: int) -> int:
        batch, heads, _, queries, keys = drawn(kind, 64, seed).sizes
        return batch * heads * queries * keys

    return sorted(range(CALLS), key=scores)[:number]


@pytest.mark.parametrize("kind", KINDS)
def test_the_check_finds_the_reference_right(kind: str) -> None:
    assert calls(kind, 64, smallest(kind, 8), device="cpu", impl="reference") == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_check_finds_one_row_of_v_left_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = gluon_random_checks.flash_attention

    def without_a_row(q: Any, k: Any, v: Any, **how: Any) -> Any:
        v = v.clone()
        v[:, :, 0] = 0
        return right(q, k, v, **how)

    monkeypatch.setattr(gluon_random_checks, "flash_attention", without_a_row)
    seeds = smallest(kind, 8)
    found = calls(kind, 64, seeds, device="cpu", impl="reference")
    assert len(found) == len(seeds)
    assert all(words[0].startswith(("out", "lse")) for _, words in found)
