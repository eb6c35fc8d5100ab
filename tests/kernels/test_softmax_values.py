"""What softmax computes, against float64 and against torch in the same dtype."""

from __future__ import annotations

import pytest
import torch
from softmax_truth import DTYPES, IMPLS, assert_as_good_as_torch, softmax64

from trainscope_kernels.softmax import softmax

SHAPES = [
    ((5,), 0),
    ((1, 1), 1),
    ((7, 1), 1),
    ((3, 2), 1),
    ((6, 31), 1),
    ((6, 32), 1),
    ((6, 33), 1),
    ((2, 192), 1),
    ((3, 760), 1),
    ((2, 1128), 1),
    ((1, 4097), 1),
    ((33, 6), 0),
    ((2, 17, 5), 1),
    ((2, 3, 4, 9), -1),
    ((2, 3, 16, 16), 1),
]
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_is_as_near_to_float64_as_torch_is(shape, dim, dtype, impl, device) -> None:
    x = (torch.randn(shape, device=device) * 4).to(dtype)
    before = x.clone()
    y = softmax(x, dim, impl=impl)
    torchs = torch.softmax(x, dim)
    assert (y.dtype, y.stride()) == (dtype, torchs.stride())
    assert_as_good_as_torch(y, torchs, softmax64(x, dim), dtype)
    assert torch.equal(x, before)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [4, 5, 40])
def test_infinities_and_nan_come_out_as_in_torch(columns, dtype, impl, device) -> None:
    x = torch.randn(8, columns, device=device).to(dtype)
    x[0] = -INF
    x[1, 1:] = -INF
    x[2, 0] = INF
    x[3, -1] = NAN
    x[4] = NAN
    x[5, :2] = torch.tensor([INF, -INF])
    x[6] = INF
    y, torchs = softmax(x, impl=impl), torch.softmax(x, -1)
    assert torch.equal(y.isnan(), torchs.isnan())
    assert y.isnan().all(-1).tolist() == [True, False, True, True, True, True, True, False]
    assert y[1].tolist() == [1.0] + [0.0] * (columns - 1)


@pytest.mark.parametrize("impl", IMPLS)
def test_a_row_near_the_end_of_float32_does_not_overflow(impl, device) -> None:
    largest = torch.finfo(torch.float32).max
    x = torch.tensor([[largest, largest], [-largest, -largest], [largest, -largest]])
    y = softmax(x.to(device), impl=impl)
    assert y.tolist() == [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]]


@pytest.mark.parametrize("impl", IMPLS)
def test_small_probabilities_keep_their_relative_error(impl, device) -> None:
    x = torch.linspace(-80.0, 0.0, 1001, device=device).unsqueeze(0)
    exact = softmax64(x, -1)
    relative = ((softmax(x, impl=impl).double() - exact) / exact).abs().max().item()
    # rounding the difference of two float32 of this size costs 4e-6 by itself
    assert relative < 8e-6


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_shift_of_the_row_changes_nothing_and_rows_sum_to_one(dtype, impl, device) -> None:
    # whole numbers: adding 100 to them is exact
    x = torch.randint(-50, 50, (5, 77), device=device).to(dtype)
    y = softmax(x, impl=impl)
    assert torch.equal(softmax(x + 100, impl=impl), y)
    torch.testing.assert_close(y.sum(-1), torch.ones(5, dtype=dtype, device=device))


@pytest.mark.parametrize("impl", IMPLS)
def test_result_dtype_can_be_wider_or_narrower_than_the_input(impl, device) -> None:
    x = torch.randn(4, 50, device=device)
    half = x.half().requires_grad_()
    wide = softmax(half, dtype=torch.float32, impl=impl)
    torch.testing.assert_close(wide, torch.softmax(half, -1, dtype=torch.float32))
    (dx,) = torch.autograd.grad(wide, half, torch.ones_like(wide).cumsum(-1))
    assert dx.dtype == torch.float16
    narrow = softmax(x, dtype=torch.float16, impl=impl)
    torch.testing.assert_close(narrow, torch.softmax(x, -1).half(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize(
    ("shape", "dim"), [((0,), 0), ((0, 5), 1), ((5, 0), 1), ((5, 0), 0), ((2, 0, 3), 2)]
)
def test_empty_input_gives_empty_output_and_gradient(shape, dim, impl, device) -> None:
    x = torch.empty(shape, device=device, requires_grad=True)
    y = softmax(x, dim, impl=impl)
    assert (y.shape, y.stride()) == (x.shape, torch.softmax(x, dim).stride())
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dim", [0, -1])
def test_a_scalar_is_one_row_of_one_column(dim, impl, device) -> None:
    x = torch.tensor(3.0, device=device, requires_grad=True)
    y = softmax(x, dim, impl=impl)
    y.backward()
    assert (y.shape, y.item(), x.grad) == (torch.Size(), 1.0, torch.tensor(0.0, device=device))
