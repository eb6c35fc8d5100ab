"""Attention on a GPU: odd memory, streams, captured training steps, and one very long row."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from trainscope_kernels import flash_attention

pytestmark = pytest.mark.gpu

Tensors = list[torch.Tensor]


def made(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensors:
    torch.manual_seed(0)
    return [torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_() for _ in range(3)]


def results(qkv: Tensors, grad: torch.Tensor, **how: Any) -> Tensors:
    out = flash_attention(*qkv, **how)
    return [out, *torch.autograd.grad(out, qkv, grad)]


def odd_address(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.numel() + 1, device="cuda", dtype=x.dtype)[1:].view_as(x).copy_(x)


def rows_of_130_bytes(x: torch.Tensor) -> torch.Tensor:
    wide = torch.empty(*x.shape[:3], 65, device="cuda", dtype=x.dtype)
    return wide[..., :64].copy_(x)


def inner_stride(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(*x.shape[:3], 128, device="cuda", dtype=x.dtype)[..., ::2].copy_(x)


def columns_first(x: torch.Tensor) -> torch.Tensor:
    return x.mT.contiguous().mT


@pytest.mark.parametrize("impl", ["auto", "triton"])
@pytest.mark.parametrize("view", [odd_address, rows_of_130_bytes, inner_stride, columns_first])
def test_memory_that_wide_loads_cannot_read(view: Any, impl: str) -> None:
    plain = made(2, 3, 640, 64)
    grad = torch.randn(2, 3, 640, 64, device="cuda", dtype=torch.bfloat16)
    views = [view(x.detach()).requires_grad_() for x in plain]
    ours = results(views, view(grad), causal=True, impl=impl)
    right = results(plain, grad, causal=True, impl="triton")
    for a, b in zip(ours, right, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def test_the_first_calls_of_many_threads() -> None:
    # a head dim and value dim that no other test has, so that nothing is compiled yet
    qkv = [x[..., :dim].detach() for x, dim in zip(made(1, 2, 70, 64), (44, 44, 36), strict=True)]
    grad = torch.randn(1, 2, 70, 36, device="cuda", dtype=torch.bfloat16)
    found: list[Tensors] = []

    def work() -> None:
        leaves = [x.clone().requires_grad_() for x in qkv]
        found.extend(results(leaves, grad, impl="triton", causal=True) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    torch.cuda.synchronize()
    right = results([x.requires_grad_() for x in qkv], grad, impl="reference", causal=True)
    assert len(found) == 160
    for ours, first, expected in zip(zip(*found, strict=True), found[0], right, strict=True):
        torch.testing.assert_close(first, expected, rtol=2e-2, atol=2e-2)
        assert all(torch.equal(each, first) for each in ours)


def test_a_training_step_runs_on_the_current_stream() -> None:
    qkv = made(1, 2, 200, 64)
    grad = torch.randn(1, 2, 200, 64, device="cuda", dtype=torch.bfloat16)
    doubled = [(x.detach() * 2).requires_grad_() for x in qkv]
    right = results(doubled, grad, impl="triton")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        later = [(x.detach() * 2).requires_grad_() for x in qkv]
        ours = results(later, grad, impl="triton")
    torch.cuda.current_stream().wait_stream(stream)
    assert all(torch.equal(a, b) for a, b in zip(ours, right, strict=True))


def test_a_captured_training_step_replays_on_new_data() -> None:
    qkv = made(1, 2, 256, 64)
    grad = torch.randn(1, 2, 256, 64, device="cuda", dtype=torch.bfloat16)
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        results(qkv, grad, causal=True, impl="triton")
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = results(qkv, grad, causal=True, impl="triton")
    with torch.no_grad():
        for x in (*qkv, grad):
            x.copy_(torch.randn_like(x))
    graph.replay()
    fresh = results(qkv, grad, causal=True, impl="triton")
    assert all(torch.equal(a, b) for a, b in zip(captured, fresh, strict=True))


@pytest.mark.parametrize("factor", [3.0, 5.0])
@pytest.mark.parametrize("n", [1, 2, 5, 17, 192])
def test_large_inputs_overflow_nowhere(n: int, factor: float) -> None:
    qkv = [(x.detach() * factor).requires_grad_() for x in made(2, 4, n, 64)]
    grad = torch.randn(2, 4, n, 64, device="cuda", dtype=torch.bfloat16)
    exact = [x.detach().double().requires_grad_() for x in qkv]
    right = results(exact, grad.double(), causal=True, impl="reference")
    for ours, truth in zip(results(qkv, grad, causal=True, impl="triton"), right, strict=True):
        assert bool(torch.isfinite(ours).all())
        near = 5e-2 * float(truth.abs().max()) + 1e-2  # of one key q and k have gradient 0
        torch.testing.assert_close(ours.double(), truth, rtol=5e-2, atol=near)


@pytest.mark.parametrize("ratio", [3, 7, 16])
def test_many_query_heads_to_a_key_head(ratio: int) -> None:
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, 150, 64, device="cuda", dtype=torch.float16).requires_grad_()
        for heads in (2 * ratio, 2, 2)
    )
    grad = torch.randn_like(q)
    ours = results([q, k, v], grad, causal=True, impl="triton")
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    right = results(exact, grad.double(), causal=True, impl="reference")
    for a, b in zip(ours, right, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-2, atol=1e-2 * float(b.abs().max()))


@pytest.mark.parametrize("impl", ["auto", "triton"])
def test_the_lse_of_131072_keys_keeps_its_digits(impl: str) -> None:
    torch.manual_seed(0)
    n = 131_072
    q = torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(1, 1, n, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out, lse = flash_attention(q, k, v, impl=impl, return_lse=True)
    scores = q.double() @ k.double().mT / 8.0
    torch.testing.assert_close(lse.double(), torch.logsumexp(scores, -1), rtol=0, atol=2e-5)
    right = torch.softmax(scores, -1) @ v.double()
    torch.testing.assert_close(out.double(), right, rtol=0, atol=1e-2 * float(right.abs().max()))


def test_only_the_gradients_asked_for_are_made() -> None:
    qkv = made(1, 2, 200, 64)
    grad = torch.randn(1, 2, 200, 64, device="cuda", dtype=torch.bfloat16)
    _, *everything = results(qkv, grad, impl="triton")
    for place in range(3):
        leaves = [x.detach().requires_grad_(at == place) for at, x in enumerate(qkv)]
        out = flash_attention(*leaves, impl="triton")
        (one,) = torch.autograd.grad(out, [leaves[place]], grad)
        assert torch.equal(one, everything[place])
