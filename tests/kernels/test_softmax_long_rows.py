"""Rows that no single program holds, split into shares; and what such launches are planned with."""

from __future__ import annotations

import pytest
import torch
from softmax_truth import IMPLS, assert_as_good_as_torch, gradient64, softmax64

from trainscope_kernels.softmax import launch as launches
from trainscope_kernels.softmax import softmax
from trainscope_kernels.softmax.plan import Plan, forward_plan

INF, NAN = float("inf"), float("nan")


def split(columns: int, rows: int = 1):
    """A plan whose shares are this small, whatever the tensor."""
    return lambda _rows, _itemsize: Plan(rows, columns, 4)


def forward(x, dim, plan) -> torch.Tensor:
    from trainscope_kernels.softmax.triton_forward import softmax_forward_kernel

    y = torch.full(x.shape, NAN, dtype=x.dtype, device=x.device)
    launch = launches.launch_of(tuple(x.shape), x.stride(), dim, x.itemsize, plan)
    assert launch is not None
    launches.run_on(x.device, softmax_forward_kernel, launch, (x, y))
    return y


def backward(dy, y, dim, plan) -> torch.Tensor:
    from trainscope_kernels.softmax.triton_backward import softmax_backward_kernel

    dx = torch.full(y.shape, NAN, dtype=y.dtype, device=y.device)
    launch = launches.launch_of(tuple(dy.shape), dy.stride(), dim, y.itemsize, plan)
    assert launch is not None
    launches.run_on(y.device, softmax_backward_kernel, launch, (dy, y, dx))
    return dx


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        (32769, torch.float32),
        (131072, torch.float16),
        (262144, torch.bfloat16),
        (9000, torch.float64),
    ],
)
def test_long_rows_are_as_near_to_float64_as_torch_is(columns, dtype, impl, device) -> None:
    x = torch.randn(1, columns, device=device).mul(3).to(dtype).requires_grad_()
    dy = torch.randn(1, columns, device=device).to(dtype)
    y, torchs = softmax(x, impl=impl), torch.softmax(x, -1)
    assert_as_good_as_torch(y.detach(), torchs.detach(), softmax64(x.detach(), -1), dtype)
    (dx,) = torch.autograd.grad(y, x, dy)
    (torchs_dx,) = torch.autograd.grad(torchs, x, dy)
    assert_as_good_as_torch(dx, torchs_dx, gradient64(dy, x.detach(), -1), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("shape", "dim"), [((3, 150), 1), ((2, 150, 3), 1)])
def test_split_rows_equal_whole_ones_at_the_switch(shape, dim, dtype, device) -> None:
    x, dy = (torch.randn(shape, dtype=dtype, device=device) for _ in range(2))
    whole = forward(x, dim, split(256, rows=4))
    parts = forward(x, dim, split(64, rows=4))
    torch.testing.assert_close(parts, whole, rtol=8 * torch.finfo(dtype).eps, atol=0.0)
    whole_dx = backward(dy, whole, dim, split(256, rows=4))
    parts_dx = backward(dy, whole, dim, split(64, rows=4))
    torch.testing.assert_close(parts_dx, whole_dx, rtol=1e-5, atol=float(torch.finfo(dtype).eps))


@pytest.mark.parametrize("place", [0, 70, 149])
@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_a_special_value_in_one_share_reaches_all_of_them_as_in_torch(value, place, device) -> None:
    x = torch.randn(4, 150, device=device)
    x[0, place] = value
    x[1] = -INF
    x[1, place] = value
    x[2, :128] = -INF
    x[2, place] = value
    y, torchs = forward(x, 1, split(64, rows=2)), torch.softmax(x, -1)
    torch.testing.assert_close(y, torchs, equal_nan=True, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("shape", "strides", "wide"),
    [
        ((2**15, 2**15), (2**15, 1), False),
        ((2**16, 2**15), (2**15, 1), True),
        ((2, 64), (2**31, 1), True),
        ((2, 64), (1, 2**26), True),
        ((2**31, 1), (1, 1), True),
        ((2**31, 1), (0, 0), True),
    ],
)
def test_offsets_are_64_bits_wide_where_they_pass_32(shape, strides, wide) -> None:
    launch = launches.launch_of(shape, strides, 1, 2, forward_plan)
    assert launch is not None
    assert launch.stages[0]["WIDE"] == wide


class Handle:
    """Stands for what a launch of Triton's returns, to be started again."""

    def __init__(self, grid, start) -> None:
        self.grid, self.start = grid, start

    def __getitem__(self, grid):
        assert grid == self.grid
        return self.start


class Compiled:
    """Stands for a kernel of Triton's: what it is started with, and how it was found."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __getitem__(self, grid):
        def look_up(*arguments, **constants):
            self.found.append("by Triton")
            positional = (*arguments, *(constants[name] for name in launches.CONSTANTS))

            def ready(*again) -> None:
                self.found.append("ready" if again[3:] == positional[3:] else "wrong")

            return Handle(grid, ready)

        return look_up


def test_a_second_launch_takes_the_compiled_kernel_only_where_it_fits() -> None:
    kernel, plan = Compiled(), split(64, rows=2)
    for dtype, offset, ways in (
        (torch.float32, 0, ["by Triton", "ready"]),
        (torch.float32, 1, ["by Triton", "ready"]),
        (torch.float16, 0, ["by Triton", "ready"]),
        (torch.float32, 0, ["ready", "ready"]),
    ):
        x = torch.zeros(1 + 4 * 64, dtype=dtype)[offset : offset + 256].view(4, 64)
        launch = launches.launch_of((4, 64), (64, 1), 1, 4, plan)
        assert launch is not None
        for _ in range(2):
            launches.run_on(x.device, kernel, launch, (x, torch.empty_like(x)))
        assert kernel.found[-2:] == ways


def test_a_launch_for_another_device_happens_on_it_and_leaves_the_current_one(monkeypatch) -> None:
    current = [0]
    kernel = Compiled()
    launch = launches.launch_of((4, 64), (64, 1), 1, 4, split(64))
    assert launch is not None

    class On:
        def __init__(self, device) -> None:
            self.device = device

        def __enter__(self) -> None:
            self.before, current[0] = current[0], self.device.index

        def __exit__(self, *_raised) -> None:
            current[0] = self.before

    monkeypatch.setattr(torch.cuda, "device", On)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    seen = []
    look_up = Compiled.__getitem__
    monkeypatch.setattr(
        Compiled, "__getitem__", lambda self, grid: seen.append(current[0]) or look_up(self, grid)
    )
    x = torch.zeros(4, 64)
    for index in (1, 0):
        launches.run_on(torch.device("cuda", index), kernel, launch, (x, torch.empty_like(x)))
    assert (seen, current, list(kernel.found)) == ([1, 0], [0], ["by Triton", "by Triton"])
