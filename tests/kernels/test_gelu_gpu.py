"""GELU on a GPU: graphs, streams, devices, threads, memory, determinism under load."""

from __future__ import annotations

import threading

import pytest
import torch
from gelu_truth import gelu64

from trainscope_kernels import bias_gelu, gelu
from trainscope_kernels.gelu.run import implementation

pytestmark = pytest.mark.gpu

IMPLS = ["triton", "cuda"]
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def test_auto_is_triton_on_a_gpu() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    assert implementation("auto", device) is implementation("triton", device)
    x = torch.randn(1000, device="cuda")
    assert torch.equal(gelu(x), gelu(x, impl="triton"))


@pytest.mark.parametrize("impl", IMPLS)
def test_a_graph_replays_on_new_data(impl: str) -> None:
    x = torch.randn(10_000, device="cuda", dtype=torch.bfloat16).requires_grad_()
    g = torch.randn_like(x)
    b = torch.randn(100, device="cuda", requires_grad=True)

    def step() -> tuple[torch.Tensor, ...]:
        y = gelu(x, impl=impl)
        z = bias_gelu(y.view(100, 100), b, impl=impl)
        return (y, *torch.autograd.grad(z, (x, b), g.view(100, 100)))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    for _ in range(3):
        with torch.no_grad():
            x.normal_()
        graph.replay()
        for ours, wanted in zip(outputs, step(), strict=True):
            assert torch.equal(ours, wanted)


@pytest.mark.parametrize("impl", IMPLS)
def test_it_runs_on_the_current_stream(impl: str) -> None:
    x = torch.zeros(1 << 20, device="cuda")
    gelu(x, impl=impl)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        x.fill_(3.0)  # on another stream, the kernel would read the zeros
        y = gelu(x, impl=impl)
    side.synchronize()
    assert (y > 2.9).all()


@needs_two
@pytest.mark.parametrize("impl", IMPLS)
def test_a_tensor_on_another_device_than_the_current(impl: str) -> None:
    torch.cuda.set_device(0)
    x = torch.randn(5000, device="cuda:1", requires_grad=True)
    b = torch.randn(50, device="cuda:1", requires_grad=True)
    y = bias_gelu(gelu(x, impl=impl).view(100, 50), b, impl=impl)
    y.sum().backward()
    plain = x.detach().cpu().requires_grad_()
    bias = b.detach().cpu().requires_grad_()
    bias_gelu(gelu(plain).view(100, 50), bias).sum().backward()
    assert torch.cuda.current_device() == 0
    torch.testing.assert_close(x.grad.cpu(), plain.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(b.grad.cpu(), bias.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("impl", IMPLS)
def test_the_first_calls_of_many_threads(impl: str) -> None:
    x = torch.randn(4096, device="cuda", dtype=torch.float16)
    wanted = gelu64(x, "tanh").to(torch.float16)
    results: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(50):
            results.append(gelu(x, "tanh", impl=impl))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    torch.cuda.synchronize()
    assert len(results) == 400
    for each in results:
        torch.testing.assert_close(each, wanted, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("impl", IMPLS)
def test_no_memory_beyond_the_result(impl: str) -> None:
    x = torch.randn(1 << 24, device="cuda", dtype=torch.bfloat16)
    for view in (x, x.view(4096, 4096).t(), x.view(4096, 4096)[:, ::2], x[1:]):
        gelu(view, impl=impl)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        y = gelu(view, impl=impl)
        size = y.numel() * y.element_size()
        assert torch.cuda.max_memory_allocated() - before <= size + 4096
        del y


@pytest.mark.parametrize("impl", IMPLS)
def test_a_thousand_runs_over_poisoned_memory_give_the_same_bits(impl: str) -> None:
    x = torch.randn(100_003, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(1003, device="cuda", dtype=torch.bfloat16)
    tall = x[:99_297].view(99, 1003).requires_grad_()
    b.requires_grad_()
    first = gelu(x, impl=impl)
    y = bias_gelu(tall, b, impl=impl)
    gradients = torch.autograd.grad(y, (tall, b), torch.ones_like(y), retain_graph=True)
    different = torch.zeros((), device="cuda", dtype=torch.int64)
    for _ in range(1000):
        torch.full((200_000,), float("nan"), device="cuda")
        again = torch.autograd.grad(y, (tall, b), torch.ones_like(y), retain_graph=True)
        pairs = [(first, gelu(x, impl=impl)), *zip(gradients, again, strict=True)]
        for old, new in pairs:
            different += (old.view(torch.int16) != new.view(torch.int16)).sum()
    assert different.item() == 0


@pytest.mark.parametrize("impl", IMPLS)
def test_a_model_compiled_by_inductor(impl: str) -> None:
    layer = torch.nn.Linear(64, 64, device="cuda")

    def step(x: torch.Tensor) -> torch.Tensor:
        return gelu(layer(x), "tanh", impl=impl).square().mean()

    x = torch.randn(32, 64, device="cuda")
    plain = torch.autograd.grad(step(x), layer.weight)[0]
    compiled = torch.autograd.grad(torch.compile(step, fullgraph=True)(x), layer.weight)[0]
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-5)
