"""What only a GPU shows: programs that wait for one another, graphs, streams, devices, memory."""

from __future__ import annotations

import time

import pytest
import torch
from softmax_truth import assert_as_good_as_torch, gradient64, softmax64

from trainscope_kernels.softmax import softmax

pytestmark = pytest.mark.gpu

LONG = [
    (40, 16384),
    (40, 16385),
    (40, 32768),
    (40, 32769),
    (40, 50257),
    (300, 131072),
    (300, 131071),
    (40, 262144),
    (7, 262145),
    (1, 3_000_000),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", LONG)
def test_long_rows_are_as_near_to_float64_as_torch_is(shape, dtype) -> None:
    x = torch.randn(shape, device="cuda").mul(3).to(dtype).requires_grad_()
    dy = torch.randn(shape, device="cuda").to(dtype)
    y, torchs = softmax(x, impl="triton"), torch.softmax(x, -1)
    assert_as_good_as_torch(y.detach(), torchs.detach(), softmax64(x.detach(), -1), dtype)
    (dx,) = torch.autograd.grad(y, x, dy)
    (torchs_dx,) = torch.autograd.grad(torchs, x, dy)
    assert_as_good_as_torch(dx, torchs_dx, gradient64(dy, x.detach(), -1), dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((70000, 3), 1), ((3, 70000), 0), ((64, 4096, 96), 1), ((8, 40000, 96), 1), ((9, 5000, 7), 1)],
)
def test_other_dims_and_many_rows_are_as_near_as_torch_is(shape, dim, dtype) -> None:
    x = torch.randn(shape, device="cuda").to(dtype).requires_grad_()
    dy = torch.randn(shape, device="cuda").to(dtype)
    y, torchs = softmax(x, dim, impl="triton"), torch.softmax(x, dim)
    assert_as_good_as_torch(y.detach(), torchs.detach(), softmax64(x.detach(), dim), dtype)
    (dx,) = torch.autograd.grad(y, x, dy)
    (torchs_dx,) = torch.autograd.grad(torchs, x, dy)
    assert_as_good_as_torch(dx, torchs_dx, gradient64(dy, x.detach(), dim), dtype)


@pytest.mark.parametrize("place", [0, 70_000, 131_071])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_special_values_reach_every_share_of_a_row(value, place) -> None:
    x = torch.randn(6, 131072, device="cuda")
    x[0, place] = value
    x[1] = float("-inf")
    x[2] = float("-inf")
    x[2, place] = 1.0
    x[3, :65536] = float("-inf")
    torch.testing.assert_close(
        softmax(x, impl="triton"), torch.softmax(x, -1), equal_nan=True, rtol=2e-5, atol=1e-12
    )


def test_waiting_programs_give_the_same_bits_every_time_and_always_end() -> None:
    x = torch.randn(200, 131072, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn_like(x)
    streams = [torch.cuda.Stream() for _ in range(4)]
    y = softmax(x)
    dx = torch.ops.trainscope_kernels.softmax_backward(dy, y, 1, x.dtype, "triton")
    torch.cuda.synchronize()
    same = []
    for turn in range(200):
        # four at once: programs of several launches wait on one GPU
        with torch.cuda.stream(streams[turn % 4]):
            again = softmax(x)
            same.append((again == y).all())
            gradient = torch.ops.trainscope_kernels.softmax_backward(dy, y, 1, x.dtype, "triton")
            same.append((gradient == dx).all())
    torch.cuda.synchronize()
    assert torch.stack(same).all()


def test_more_launches_at_once_than_fit_on_the_gpu_all_end() -> None:
    x = torch.randn(1, 131072, device="cuda", dtype=torch.bfloat16)
    wanted = softmax(x)
    # two priorities, and with 16 programs each more than any GPU runs at the same time
    streams = [torch.cuda.Stream(priority=each) for each in (0, -1) for _ in range(32)]
    torch.cuda._sleep(100_000_000)
    begin, end = torch.cuda.Event(), torch.cuda.Event()
    begin.record()
    results = []
    for stream in streams:
        stream.wait_event(begin)
        with torch.cuda.stream(stream):
            results.append(softmax(x))
        torch.cuda.current_stream().wait_stream(stream)
    end.record()
    give_up = time.monotonic() + 30
    while not end.query():
        if time.monotonic() > give_up:  # whatever asks the GPU next would wait for ever
            pytest.exit("programs of softmax wait for others that never start", returncode=1)
        time.sleep(0.01)
    assert all(torch.equal(each, wanted) for each in results)


@pytest.mark.parametrize("columns", [1000, 131072])
def test_a_captured_graph_computes_new_data(columns) -> None:
    x = torch.randn(16, columns, device="cuda")
    softmax(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = softmax(x)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y, torch.softmax(x, -1), rtol=2e-5, atol=1e-9)


def test_memory_left_full_of_nan_changes_nothing() -> None:
    x = torch.randn(64, 65536, device="cuda")
    wanted = torch.softmax(x, -1)
    for _ in range(5):
        poison = [torch.full((64, 65536), float("nan"), device="cuda") for _ in range(3)]
        small = [torch.full((4097,), -1, dtype=torch.int64, device="cuda") for _ in range(3)]
        del poison, small
        torch.testing.assert_close(softmax(x), wanted, rtol=2e-5, atol=1e-9)


def test_only_the_result_is_allocated_for_a_strided_view() -> None:
    x = torch.randn(4096, 4096, device="cuda").t()
    for dim in (0, 1):
        softmax(x, dim)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        y = softmax(x, dim)
        # beside the result, words for the shares of a row: under 1 % of it
        assert torch.cuda.max_memory_allocated() - before <= y.nbytes * 1.01
        del y


def test_the_current_stream_is_used() -> None:
    x = torch.zeros(64, 8192, device="cuda")
    stream = torch.cuda.Stream()
    softmax(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.copy_(torch.arange(8192.0, device="cuda").div(1000))
        y = softmax(x)
    stream.synchronize()
    torch.testing.assert_close(y, torch.softmax(x, -1))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("columns", [1000, 131072])
def test_a_tensor_of_another_device_is_computed_there(columns) -> None:
    x = torch.randn(8, columns, device="cuda:1", requires_grad=True)
    y = softmax(x)
    assert (y.device, torch.cuda.current_device()) == (x.device, 0)
    torchs = torch.softmax(x, -1)
    torch.testing.assert_close(y, torchs, rtol=2e-5, atol=1e-9)
    dy = torch.randn_like(y)
    wanted = torch.autograd.grad(torchs, x, dy)
    torch.testing.assert_close(torch.autograd.grad(y, x, dy), wanted, rtol=1e-4, atol=1e-8)


def test_more_than_2_to_the_31_values_and_strides() -> None:
    if torch.cuda.get_device_properties(0).total_memory < 60 * 2**30:
        pytest.skip("needs 20 GB of GPU memory")
    x = torch.randn(65536 + 3, 32768 + 8, device="cuda", dtype=torch.bfloat16)
    y = softmax(x)
    for rows in (slice(0, 3), slice(-3, None)):
        torch.testing.assert_close(y[rows], torch.softmax(x[rows], -1))
    del y
    far = x.as_strided((2, 64), (2**31, 1))
    torch.testing.assert_close(softmax(far), torch.softmax(far, -1))
    tall = x.as_strided((2, 64), (1, 2**25))
    torch.testing.assert_close(softmax(tall), torch.softmax(tall, -1))
    one = x.view(-1)[: 2**31 + 5].unsqueeze(1)
    assert (softmax(one) == 1).all()


def test_auto_is_triton_here() -> None:
    x = torch.randn(64, 1000, device="cuda")
    assert torch.equal(softmax(x), softmax(x, impl="triton"))
    assert torch.equal(softmax(x.double()), softmax(x.double(), impl="reference"))


def test_inductor_compiles_in_one_graph() -> None:
    compiled = torch.compile(lambda each: softmax(each * 2, 1).sin(), fullgraph=True)
    x = torch.randn(8, 300, 5, device="cuda", requires_grad=True)
    y, torchs = compiled(x), torch.softmax(x * 2, 1).sin()
    torch.testing.assert_close(y, torchs)
    dy = torch.randn_like(y)
    wanted = torch.autograd.grad(torchs, x, dy)
    torch.testing.assert_close(torch.autograd.grad(y, x, dy), wanted, rtol=1e-4, atol=1e-6)
