"""The Gluon attention kernels on a Hopper GPU: right, the same each time, in graphs, on views."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gluon_process import ROUNDING, found_by

from trainscope_kernels.attention import flash_attention
from trainscope_kernels.errors import ImplUnavailableError

LENGTHS = [1, 127, 128, 129, 1000, 2048]

pytestmark = pytest.mark.gpu


def check(name: str, **arguments: Any) -> Any:
    return found_by("gluon_checks.py", name, arguments)


def assert_right(found: list[dict[str, Any]], dtype: str) -> None:
    """Each error at most twice torch's own, or a quarter of the dtype's rounding."""
    floor = ROUNDING[dtype] / 4
    for each in found:
        assert each["lse"] < 1e-4, each
        for name in ("out", "dq", "dk", "dv"):
            ours, torchs = each[name]
            assert ours <= max(2 * torchs, floor), (name, each)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128])
def test_values_and_gradients_are_as_near_to_float64_as_torchs(dim, causal, dtype) -> None:
    found = check("values", dtype=dtype, dim=dim, causal=causal, lengths=LENGTHS)
    assert [each["length"] for each in found] == LENGTHS
    assert_right(found, dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128])
def test_large_scores_overflow_nothing(dim, causal) -> None:
    found = check(
        "values", dtype="bfloat16", dim=dim, causal=causal, lengths=[128, 200, 1024], times=8.0
    )
    assert_right(found, "bfloat16")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128])
def test_query_heads_share_a_key_head(dim, causal) -> None:
    found = check("values", dtype="bfloat16", dim=dim, causal=causal, lengths=LENGTHS, key_heads=1)
    assert_right(found, "bfloat16")


def assert_near(found: list[dict[str, Any]]) -> None:
    """Errors are those of the roundings that no kernel gets around, see attention_rounded.

    The output's P is rounded relative to another maximum than there, so only about as far. What is
    added is of sums in float32.
    """
    for each in found:
        for name, more in (("out", 2.0), ("dq", 1.25), ("dk", 1.25), ("dv", 1.25)):
            ours, least = each[name]
            assert ours <= more * least + 2**-16, (name, each)


RECTANGLES = [(2, 300), (300, 2), (64, 129), (113, 203), (203, 113), (256, 384), (384, 256)]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
@pytest.mark.parametrize("dim", [64, 96, 128, 192, 256])
def test_gradients_of_other_numbers_of_keys_and_grouped_heads(dim, causal, deterministic) -> None:
    dtype = "float16" if dim in (96, 256) else "bfloat16"
    how: dict[str, Any] = {"causal": causal, "deterministic": deterministic}
    assert_near(check("gradients", dtype=dtype, dim=dim, lengths=RECTANGLES, **how))


@pytest.mark.parametrize("window", [(5, 0), (100, 3), (64, -1), (-1, 7)])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_gradients_in_a_window(dim, window) -> None:
    for heads in ((2, 2), (3, 1)):
        found = check(
            "gradients", dtype="bfloat16", dim=dim, lengths=RECTANGLES, heads=heads, window=window
        )
        assert_near(found)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_gradients_under_a_softcap(dim, deterministic) -> None:
    how: dict[str, Any] = {"softcap": 1.5, "deterministic": deterministic}
    for causal in (None, "top-left"):
        found = check(
            "gradients", dtype="bfloat16", dim=dim, lengths=RECTANGLES, causal=causal, **how
        )
        assert_near(found)


@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
@pytest.mark.parametrize("dim", [64, 96, 128, 192, 256])
def test_gradients_of_packed_sequences(dim, causal) -> None:
    for lengths in (
        [[100, 128, 0, 129, 64, 1], [100, 128, 5, 129, 64, 1]],
        [[33, 70, 200], [260, 64, 201]],
        [list(range(2, 40)), list(range(2, 40))],
    ):
        found = check("packed_gradients", dim=dim, lengths=lengths, causal=causal)
        assert found["leaked"] == 0
        assert_near([found])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_two_hundred_deterministic_runs_give_the_same_bits(dim, causal) -> None:
    found = check(
        "repeated", dtype="bfloat16", dim=dim, causal=causal, deterministic=True, runs=200
    )
    assert found == {"out": 0, "lse": 0, "dk": 0, "dv": 0, "dq_moved": 0}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128])
def test_fifty_runs_give_the_same_bits(dim, causal) -> None:
    found = check("repeated", dtype="bfloat16", dim=dim, causal=causal)
    moved = found.pop("dq_moved")
    assert found == {"out": 0, "lse": 0, "dk": 0, "dv": 0}
    # float32 sums in another order, rounded once
    assert moved < 2**-7


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128])
def test_a_captured_graph_computes_new_data(dim, causal) -> None:
    found = check("captured", dim=dim, causal=causal)
    assert (found["out"], found["dk"], found["dv"]) == (0, 0, 0)
    assert found["dq"] < 1e-3


def test_a_new_causal_shape_in_a_capture_says_what_to_do() -> None:
    said = check("new_shape_in_capture", impl="gluon")
    assert said.startswith("KernelError: flash_attention meets a causal call of a new shape")


def test_auto_leaves_a_new_causal_shape_in_a_capture_to_triton() -> None:
    assert check("new_shape_in_capture", impl="auto") == "captured triton"


@pytest.mark.parametrize("causal", [False, True])
def test_views_give_what_their_copies_give(causal) -> None:
    found = check("layouts", causal=causal)
    assert (found["out"], found["dk"], found["dv"], found["odd address"]) == (0, 0, 0, 0)
    assert found["dq"] < 1e-3
    assert found["expanded gradient"] < 1e-3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128])
def test_the_lse_has_a_gradient(dim, causal) -> None:
    assert max(check("lse_gradient", dim=dim, causal=causal)) < 4e-3


@pytest.mark.parametrize("dim", [64, 128])
def test_memory_left_full_of_nan_reaches_nothing(dim) -> None:
    assert check("poisoned", dim=dim) is False


def test_tensors_of_a_device_that_is_not_current() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    found = check("other_device")
    assert (found["out"], found["dk"], found["dv"]) == (0, 0, 0)
    assert found["dq"] < 1e-3


@pytest.mark.parametrize("causal", [False, True])
def test_torch_compile_makes_one_graph_of_it(causal) -> None:
    found = check("compiled", causal=causal)
    assert found["out"] < 4e-3
    assert found["grads"] < 8e-3


def test_what_it_does_not_take_is_refused_and_auto_computes_it() -> None:
    q = torch.randn(1, 2, 600, 80, device="cuda", dtype=torch.bfloat16)
    with pytest.raises(ImplUnavailableError, match="it takes head_dim and value dim 64, 96, 128"):
        flash_attention(q, q, q, impl="gluon")
    torch.testing.assert_close(
        flash_attention(q, q, q), flash_attention(q, q, q, impl="triton"), rtol=0, atol=0
    )
