"""What only a GPU shows: long rows, clusters, graphs, streams, devices, memory."""

from __future__ import annotations

import pytest
import torch
from softmax_truth import assert_as_good_as_torch, gradient64, softmax64

from trainscope_kernels.errors import ImplUnavailableError
from trainscope_kernels.softmax import cuda_impl, softmax

pytestmark = pytest.mark.gpu
CLUSTERS = cuda_impl.cuda_reason(torch.device("cuda" if torch.cuda.is_available() else "cpu", 0))
needs_clusters = pytest.mark.skipif(CLUSTERS is not None, reason=f"no clusters: {CLUSTERS}")

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


def held(columns: int, dtype: torch.dtype) -> bool:
    """Whether a cluster holds a row."""
    return cuda_impl.plan_of("forward", columns, dtype.itemsize) is not None


@needs_clusters
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(300, 5), (40, 1000), (3, 7, 4099), *LONG])
def test_clusters_are_as_near_to_float64_as_torch_is(shape, dtype) -> None:
    if not held(shape[-1], dtype):
        pytest.skip("longer than a cluster holds")
    compared_with_torch(torch.randn(shape, device="cuda").mul(3).to(dtype), "cuda")


@needs_clusters
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("columns", [40000, 40001])
def test_clusters_read_strided_rows(columns, dtype) -> None:
    wide = torch.randn(6, 5, 40016, device="cuda").to(dtype)
    narrow = wide[..., :columns]
    for x in (narrow, wide[..., 1 : columns + 1], narrow[::2], narrow[:, ::2], narrow[:1]):
        assert torch.equal(softmax(x, impl="cuda"), softmax(x.contiguous(), impl="cuda"))
    x = narrow[0, :1].expand(6, columns)
    assert torch.equal(softmax(x, impl="cuda"), softmax(x.contiguous(), impl="cuda"))
    y = softmax(narrow, impl="cuda")
    one = torch.ones(1, 1, 1, device="cuda", dtype=dtype)
    for dy in (one.expand_as(y), wide.flip(0)[..., :columns]):
        expected = backward_by_clusters(dy.contiguous(), y)
        assert torch.equal(backward_by_clusters(dy, y), expected)


@needs_clusters
def test_clusters_write_nothing_beside_their_rows() -> None:
    for columns in (16385, 50257):
        y = softmax(torch.randn(9, columns, device="cuda", dtype=torch.bfloat16), impl="cuda")
        sums = y.double().sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=2e-3, atol=0)


def backward_by_clusters(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return backward_by("cuda", dy, y)


def backward_by(impl: str, dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ops.trainscope_kernels.softmax_backward(dy, y, y.dim() - 1, y.dtype, impl)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", LONG)
def test_long_rows_are_as_near_to_float64_as_torch_is(shape, dtype) -> None:
    compared_with_torch(torch.randn(shape, device="cuda").mul(3).to(dtype), "triton")


def compared_with_torch(x: torch.Tensor, impl: str) -> None:
    x.requires_grad_()
    dy = torch.randn_like(x)
    y, torchs = softmax(x, impl=impl), torch.softmax(x, -1)
    assert_as_good_as_torch(y.detach(), torchs.detach(), softmax64(x.detach(), -1), x.dtype)
    (dx,) = torch.autograd.grad(y, x, dy)
    (torchs_dx,) = torch.autograd.grad(torchs, x, dy)
    assert_as_good_as_torch(dx, torchs_dx, gradient64(dy, x.detach(), -1), x.dtype)


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


@pytest.mark.parametrize("impl", ["triton", pytest.param("cuda", marks=needs_clusters)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("place", [0, 70_000, 131_068])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_special_values_reach_every_share_of_a_row(value, place, dtype, impl) -> None:
    # an odd number, and what a cluster still holds of float32
    x = torch.randn(6, 131_069, device="cuda").to(dtype)
    x[0, place] = value
    x[1] = float("-inf")
    x[2] = float("-inf")
    x[2, place] = 1.0
    x[3, :65536] = float("-inf")
    torch.testing.assert_close(
        softmax(x, impl=impl),
        torch.softmax(x, -1),
        equal_nan=True,
        rtol=2e-5 if dtype == torch.float32 else 8e-3,
        atol=1e-12,
    )


@pytest.mark.parametrize("impl", ["triton", pytest.param("cuda", marks=needs_clusters)])
@pytest.mark.parametrize("columns", [1000, 131072])  # with Triton the longer rows are split
def test_the_same_bits_come_out_every_time_whatever_else_runs(columns: int, impl: str) -> None:
    x = torch.randn(200, columns, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn_like(x)
    streams = [torch.cuda.Stream() for _ in range(4)]
    y = softmax(x, impl=impl)
    dx = backward_by(impl, dy, y)
    torch.cuda.synchronize()
    same = []
    for turn in range(200):
        with torch.cuda.stream(streams[turn % 4]):
            same.append((softmax(x, impl=impl) == y).all())
            same.append((backward_by(impl, dy, y) == dx).all())
    torch.cuda.synchronize()
    assert torch.stack(same).all()


@needs_clusters
@pytest.mark.parametrize("columns", [16385, 131072])
def test_large_values_overflow_nothing(columns) -> None:
    for scale in (100.0, 1e4):
        x = torch.randn(8, columns, device="cuda").mul(scale).half()
        torch.testing.assert_close(
            softmax(x, impl="cuda"), torch.softmax(x, -1), rtol=2e-3, atol=1e-7
        )


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
        # beside the result, numbers for the shares of a row: under 1 % of it
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


def test_auto_is_triton_for_short_rows_and_clusters_for_long_ones() -> None:
    short, long = (torch.randn(64, columns, device="cuda") for columns in (1000, 50257))
    assert torch.equal(softmax(short), softmax(short, impl="triton"))
    wanted = "cuda" if CLUSTERS is None else "triton"
    assert torch.equal(softmax(long), softmax(long, impl=wanted))
    # what clusters do not take
    for x, dim, dtype in ((long, 0, None), (long.half(), 1, torch.float32)):
        assert torch.equal(
            softmax(x, dim, dtype=dtype), softmax(x, dim, dtype=dtype, impl="triton")
        )
    assert torch.equal(softmax(short.double()), softmax(short.double(), impl="reference"))


@needs_clusters
def test_what_clusters_do_not_take_is_refused() -> None:
    x = torch.ones(4, 6, device="cuda")
    for call in (
        lambda: softmax(x, 0, impl="cuda"),
        lambda: softmax(x, dtype=torch.float64, impl="cuda"),
        lambda: softmax(x.double(), impl="cuda"),
        lambda: softmax(torch.ones(1, 300_000, device="cuda"), impl="cuda"),
    ):
        with pytest.raises(ImplUnavailableError, match="impl='cuda' cannot run"):
            call()


def test_inductor_compiles_in_one_graph() -> None:
    compiled = torch.compile(lambda each: softmax(each * 2, 1).sin(), fullgraph=True)
    x = torch.randn(8, 300, 5, device="cuda", requires_grad=True)
    y, torchs = compiled(x), torch.softmax(x * 2, 1).sin()
    torch.testing.assert_close(y, torchs)
    dy = torch.randn_like(y)
    wanted = torch.autograd.grad(torchs, x, dy)
    torch.testing.assert_close(torch.autograd.grad(y, x, dy), wanted, rtol=1e-4, atol=1e-6)
