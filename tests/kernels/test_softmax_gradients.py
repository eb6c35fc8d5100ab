"""The gradient of softmax: against float64, by finite differences, and what it must not touch."""

from __future__ import annotations

import pytest
import torch
from softmax_truth import DTYPES, IMPLS, assert_as_good_as_torch, gradient64

from trainscope_kernels.softmax import softmax


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), [((6, 33), 1), ((3, 760), 1), ((3, 20, 7), 1)])
def test_is_as_near_to_float64_as_torch_is(shape, dim, dtype, impl, device) -> None:
    x = (torch.randn(shape, device=device) * 3).to(dtype).requires_grad_()
    dy = torch.randn(shape, device=device).to(dtype)
    y = softmax(x, dim, impl=impl)
    kept = y.detach().clone()
    (dx,) = torch.autograd.grad(y, x, dy, retain_graph=True)
    (torchs,) = torch.autograd.grad(torch.softmax(x, dim), x, dy)
    assert_as_good_as_torch(dx, torchs, gradient64(dy, x.detach(), dim), dtype)
    # what was saved is as it was: a second pass over the graph gives the same bits
    assert torch.equal(y, kept)
    assert torch.equal(torch.autograd.grad(y, x, dy)[0], dx)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize(("dim", "order"), [(1, (0, 1, 2)), (2, (0, 1, 2)), (0, (2, 0, 1))])
def test_finite_differences_agree_in_float64(dim, order, impl, device) -> None:
    x = torch.randn(2, 3, 2, dtype=torch.float64, device=device)
    x = x.permute(order).requires_grad_()
    # along random directions, each of which every entry has a part in
    assert torch.autograd.gradcheck(lambda each: softmax(each, dim, impl=impl), x, fast_mode=True)


@pytest.mark.parametrize("impl", IMPLS)
def test_the_gradient_of_each_row_sums_to_zero(impl, device) -> None:
    x = torch.randn(8, 300, device=device, requires_grad=True)
    (dx,) = torch.autograd.grad(softmax(x, impl=impl), x, torch.randn(8, 300, device=device))
    assert dx.sum(-1).abs().max().item() < 1e-6


@pytest.mark.parametrize("impl", IMPLS)
def test_a_nan_row_gives_nan_gradients_to_itself_alone(impl, device) -> None:
    x = torch.randn(3, 9, device=device)
    x[1] = float("-inf")
    x.requires_grad_()
    softmax(x, impl=impl).cumsum(-1).sum().backward()
    assert x.grad is not None
    assert x.grad.isnan().all(-1).tolist() == [False, True, False]
    assert x.grad[0::2].isfinite().all()


@pytest.mark.parametrize("impl", IMPLS)
def test_differentiating_the_gradient_raises_and_names_the_way_out(impl, device) -> None:
    x = torch.randn(3, 4, device=device, requires_grad=True)
    (dx,) = torch.autograd.grad(softmax(x, impl=impl).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"Use torch's own softmax"):
        dx.sum().backward()


@pytest.mark.parametrize("impl", IMPLS)
def test_nothing_is_recorded_where_no_gradient_is_asked_for(impl, device) -> None:
    x = torch.randn(3, 4, device=device)
    assert softmax(x, impl=impl).grad_fn is None
    x.requires_grad_()
    with torch.no_grad():
        assert softmax(x, impl=impl).grad_fn is None
    with torch.inference_mode():
        assert softmax(x, impl=impl).is_inference()
