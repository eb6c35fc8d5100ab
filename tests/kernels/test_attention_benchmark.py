"""The benchmark of attention: its impls agree, and its figures are the shape's."""

from __future__ import annotations

import torch

from trainscope_kernels.benchmarks.attention import benchmarks


def test_every_impl_agrees_with_the_reference() -> None:
    cases = benchmarks()
    assert {each.backward for each in cases} == {False, True}
    for case in cases:
        inputs = [x.requires_grad_(case.backward) for x in case.make_inputs()]
        results = {}
        for name, impl in case.impls.items():
            out = impl(*inputs)
            results[name] = (
                torch.autograd.grad(out.square().sum(), inputs) if case.backward else (out,)
            )
        for got in results.values():
            for a, b in zip(got, results[case.reference], strict=True):
                torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def test_operations_and_bytes_are_the_shapes() -> None:
    by_name = {each.name: each for each in benchmarks() if "1x2x128x64" in each.name}
    full, causal = (by_name[f"attention forward 1x2x128x64 {each}"] for each in ("full", "causal"))
    assert full.flops == 4 * 2 * 128 * 128 * 64
    assert causal.flops == full.flops // 2
    assert full.bytes_moved == 4 * 2 * 128 * 64 * 4
    back = by_name["attention backward 1x2x128x64 full"]
    assert (back.flops, back.bytes_moved) == (full.flops * 5 // 2, 2 * full.bytes_moved)
