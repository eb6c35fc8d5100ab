"""The benchmark's cases compute the same thing, so that their times may be compared."""

from __future__ import annotations

import pytest
import torch

from trainscope_kernels.benchmarks.gelu import benchmarks
from trainscope_kernels.benchmarks.gelu_baselines import manual_gelu, naive_cuda_gelu
from trainscope_kernels.errors import ArgumentError


def test_every_impl_of_a_case_agrees_with_its_reference() -> None:
    cases = benchmarks()
    assert [case.name for case in cases][:2] == [
        "gelu tanh forward fp32 250,000",
        "gelu tanh backward fp32 250,000",
    ]
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        torch.manual_seed(0)
        inputs = [each[:9_000] for each in case.make_inputs()]
        wanted = case.impls[case.reference](*inputs)
        for impl in case.impls.values():
            torch.testing.assert_close(impl(*inputs), wanted, rtol=2e-2, atol=2e-2)


def test_a_forward_moves_each_element_twice_and_a_backward_three_times() -> None:
    moved = {case.name: case.bytes_moved for case in benchmarks()}
    assert moved["gelu tanh forward bf16 250,000"] == 2 * 2 * 250_000
    assert moved["gelu none backward fp32 250,000"] == 3 * 4 * 250_000


def test_the_manual_formula_is_torchs_tanh_form() -> None:
    x = torch.linspace(-6, 6, 5001, dtype=torch.float64)
    torch.testing.assert_close(manual_gelu(x), torch.nn.functional.gelu(x, approximate="tanh"))


def test_the_naive_kernel_refuses_what_it_would_read_wrongly() -> None:
    halves, gaps, elsewhere = torch.ones(4).bfloat16(), torch.ones(4, 4)[:, ::2], torch.ones(4)
    for x in (halves, gaps, elsewhere):
        with pytest.raises(ArgumentError, match="pass plain float32"):
            naive_cuda_gelu(x)


@pytest.mark.gpu
def test_the_naive_kernel_is_right() -> None:
    x = torch.randn(100_003, device="cuda") * 4.0
    wanted = torch.nn.functional.gelu(x, approximate="tanh")
    torch.testing.assert_close(naive_cuda_gelu(x), wanted, rtol=1e-5, atol=1e-6)
