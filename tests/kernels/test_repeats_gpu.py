"""Calls done again the short way, on a GPU: the same bits, on the stream and device of the call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainscope_kernels import bias_gelu, flash_attention, gelu, softmax

pytestmark = pytest.mark.gpu


def ones(*shape: int, device: str = "cuda") -> torch.Tensor:
    return torch.randn(*shape, device=device, dtype=torch.bfloat16)


CALLS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "gelu": (lambda x: gelu(x, impl="triton"), [(33, 64)]),
    "gelu tanh": (lambda x: gelu(x, "tanh", impl="triton"), [(33, 64)]),
    "gelu cuda": (lambda x: gelu(x, impl="cuda"), [(33, 64)]),
    "bias_gelu": (lambda x, b: bias_gelu(x, b, impl="triton"), [(33, 64), (64,)]),
    "bias_gelu cuda": (lambda x, b: bias_gelu(x, b, impl="cuda"), [(33, 64), (64,)]),
    "softmax": (lambda x: softmax(x, impl="triton"), [(33, 1000)]),
    "softmax dim 0": (lambda x: softmax(x, 0, impl="triton"), [(33, 64)]),
    "attention": (lambda *a: flash_attention(*a, impl="triton"), [(2, 4, 48, 64)] * 3),
    "attention with its LSE": (
        lambda *a: flash_attention(*a, causal=True, impl="triton", return_lse=True)[1],
        [(2, 4, 48, 64)] * 3,
    ),
}
each_call = pytest.mark.parametrize(("call", "shapes"), CALLS.values(), ids=CALLS)


def long_way(call: Callable[..., Any], tensors: list[torch.Tensor]) -> torch.Tensor:
    with torch.device("cuda"):  # a mode, which is shown the op
        return call(*tensors)


@pytest.fixture
def triton_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, a launch through Triton's Python fails."""
    from triton.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    def from_now_on() -> None:
        for where, name in ((JITFunction, "run"), (CompiledKernel, "__getitem__")):
            monkeypatch.setattr(where, name, lambda *_, **__: pytest.fail("Triton was asked"))

    return from_now_on


@each_call
def test_the_same_bits_and_nothing_asked(call, shapes, triton_is_not_asked) -> None:
    tensors = [ones(*shape) for shape in shapes]
    call(*tensors)
    others = [torch.randn_like(each) for each in tensors]
    wanted = long_way(call, others)
    triton_is_not_asked()
    for _ in range(3):
        assert torch.equal(call(*others), wanted)


@each_call
def test_views_at_odd_addresses(call, shapes) -> None:
    tensors = [ones(*shape) for shape in shapes]
    call(*tensors)
    odd = [torch.empty(x.numel() + 1, device="cuda", dtype=x.dtype)[1:].view_as(x) for x in tensors]
    for view, x in zip(odd, tensors, strict=True):
        view.copy_(x)
    torch.testing.assert_close(call(*odd), call(*tensors))


@each_call
def test_it_runs_on_the_current_stream(call, shapes) -> None:
    tensors = [ones(*shape) for shape in shapes]
    call(*tensors)
    wanted = long_way(call, [each * 2 for each in tensors])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        for each in tensors:
            each.mul_(2)
        got = call(*tensors)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(got, wanted)


@each_call
def test_it_is_captured_in_a_graph(call, shapes) -> None:
    tensors = [ones(*shape) for shape in shapes]
    call(*tensors)
    call(*tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = call(*tensors)
    for each in tensors:
        each.mul_(2)
    graph.replay()
    assert torch.equal(got, long_way(call, tensors))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@each_call
def test_tensors_of_another_device_than_the_current(call, shapes) -> None:
    for index in (0, 1, 1, 0):
        tensors = [ones(*shape, device=f"cuda:{index}") for shape in shapes]
        got = call(*tensors)
        assert got.device.index == index
        assert torch.equal(got, long_way(call, tensors))
        with torch.cuda.device(index):
            assert torch.equal(call(*tensors), got)
        assert torch.cuda.current_device() == 0


@each_call
def test_many_threads_at_once(call, shapes) -> None:
    inputs = [[ones(*shape) for shape in shapes] for _ in range(8)]
    wanted = [long_way(call, each) for each in inputs]
    torch.cuda.synchronize()
    wrong: list[int] = []
    begin = threading.Barrier(8)

    def work(place: int) -> None:
        begin.wait()
        for _ in range(50):
            if not torch.equal(call(*inputs[place]), wanted[place]):
                wrong.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_tritons_hooks_are_told() -> None:
    from triton import knobs

    x = ones(8, 64)
    gelu(x, impl="triton")
    gelu(x, impl="triton")
    seen: list[Any] = []
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        gelu(x, impl="triton")
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
    gelu(x, impl="triton")
    assert [each.get()["name"] for each in seen] == ["forward_kernel"]


def test_no_memory_for_an_lse_that_nobody_wants() -> None:
    q, k, v = (ones(1, 1, 256, 16) for _ in range(3))
    with_lse = lambda: flash_attention(q, k, v, impl="triton", return_lse=True)  # noqa: E731
    without = lambda: flash_attention(q, k, v, impl="triton")  # noqa: E731
    asked = []
    for call in (with_lse, without):
        call()
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        call()
        asked.append(torch.cuda.memory_stats()["allocation.all.allocated"] - before)
    assert asked == [2, 1]
