"""The benchmark of softmax: its cases state what they move, and all their impls agree."""

from __future__ import annotations

import torch

from trainscope_kernels.benchmarks.simple_softmax import simple_softmax
from trainscope_kernels.benchmarks.softmax import benchmarks


def test_every_impl_of_every_case_agrees_with_its_reference() -> None:
    cases = benchmarks()
    assert {case.backward for case in cases} == {False, True}
    for case in cases:
        inputs = case.make_inputs()
        wanted = case.impls[case.reference](*inputs)
        for impl in case.impls.values():
            torch.testing.assert_close(impl(*inputs), wanted)


def test_a_forward_moves_two_streams_and_a_backward_three() -> None:
    cases = list(benchmarks())
    assert {case.backward for case in cases} == {False, True}
    for case in cases:
        (x,) = case.make_inputs()
        assert case.bytes_moved == x.nbytes * (3 if case.backward else 2)


def test_the_kernel_that_one_writes_first_is_right(device) -> None:
    x = torch.randn(3, 70, device=device)
    torch.testing.assert_close(simple_softmax(x), torch.softmax(x, -1))
