"""The Gluon forward on a Hopper GPU: any lengths, head dims, windows, softcap, packed sequences."""

from __future__ import annotations

from typing import Any

import pytest
from gluon_process import ROUNDING, found_by

DIMS = [64, 96, 128, 192, 256]

pytestmark = pytest.mark.gpu


def check(name: str, **arguments: Any) -> Any:
    return found_by("gluon_forward_checks.py", name, arguments)


def assert_right(found: list[dict[str, Any]], dtype: str) -> None:
    """An error at most twice torch's own; where torch has none, the dtype's rounding."""
    assert found
    for each in found:
        assert each["seen_alike"], each
        assert each["unseen"] == 0, each
        if "out" in each:
            limit = max(2 * each["torchs"], ROUNDING[dtype] / 4) if "torchs" in each else None
            assert each["out"] <= (ROUNDING[dtype] if limit is None else limit), each
            assert each["lse"] < 1e-4, each


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", ["rectangles", "windows", "caps", "packed"])
def test_it_is_as_near_to_float64_as_torch_is(name: str, dim: int, dtype: str) -> None:
    assert_right(check(name, dim=dim, dtype=dtype), dtype)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(
    ("causal", "window"), [(False, None), (True, None), (False, (300, 100))], ids=str
)
def test_two_hundred_runs_give_the_same_bits(
    dim: int, causal: bool, window: tuple[int, int] | None
) -> None:
    assert check("same_bits", dim=dim, causal=causal, window=window) == 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 256])
def test_a_graph_of_a_call_without_gradient_computes_new_data(dim: int, causal: bool) -> None:
    assert check("replayed", dim=dim, causal=causal)
