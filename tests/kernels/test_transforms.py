"""The ops under torch.func: gradients, per-sample gradients, Jacobians, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jacrev, vjp, vmap

from trainscope_kernels import GELU, bias_gelu, flash_attention, gelu, softmax

IMPLS = ("reference", "triton")
Function = Callable[..., torch.Tensor]
WINDOW = torch.ones(6, 6, dtype=torch.bool).tril()

OPS: dict[str, tuple[Callable[[str], Function], Function, tuple[int, ...]]] = {
    "gelu": (lambda impl: lambda x: gelu(x, impl=impl), F.gelu, (3, 5)),
    "bias_gelu": (
        lambda impl: lambda x: bias_gelu(x, x.flatten()[:5], impl=impl),
        lambda x: F.gelu(x + x.flatten()[:5]),
        (3, 5),
    ),
    "softmax": (
        lambda impl: lambda x: softmax(x, 0, impl=impl),
        lambda x: torch.softmax(x, 0),
        (3, 5),
    ),
    "attention": (
        lambda impl: lambda x: flash_attention(x, x * 2, x.sin(), causal=True, impl=impl),
        lambda x: F.scaled_dot_product_attention(x, x * 2, x.sin(), is_causal=True),
        (1, 2, 6, 4),
    ),
    "attention with a mask": (
        lambda impl: lambda x: flash_attention(x, x, x, mask=WINDOW.to(x.device), impl=impl),
        lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=WINDOW.to(x.device)),
        (1, 2, 6, 4),
    ),
}
each_op = pytest.mark.parametrize(("ours", "torchs", "shape"), OPS.values(), ids=OPS)


def loss(function: Function) -> Function:
    return lambda x: function(x).square().sum()


def close(ours: Any, torchs: Any) -> None:
    torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-5)


@each_op
@pytest.mark.parametrize("impl", IMPLS)
def test_a_gradient_and_the_gradients_of_each_sample(ours, torchs, shape, impl, device) -> None:
    ours, x = ours(impl), torch.randn(2, *shape, device=device)
    close(grad(loss(ours))(x[0]), grad(loss(torchs))(x[0]))
    close(vmap(grad(loss(ours)))(x), torch.stack([grad(loss(torchs))(each) for each in x]))
    moved = vmap(grad(loss(ours)), in_dims=1)(x.transpose(0, 1))
    close(moved, vmap(grad(loss(ours)))(x))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@each_op
def test_a_vector_product_and_a_jacobian(ours, torchs, shape, device) -> None:
    ours, x = ours("reference"), torch.randn(shape, device=device)
    output, pull = vjp(ours, x)
    right, torchs_pull = vjp(torchs, x)
    close(output, right)
    close(pull(torch.ones_like(output)), torchs_pull(torch.ones_like(right)))
    close(jacrev(ours)(x), jacrev(torchs)(x))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@each_op
@pytest.mark.parametrize("impl", IMPLS)
def test_several_output_gradients_at_once(ours, torchs, shape, impl, device) -> None:
    leaf = torch.randn(shape, device=device).requires_grad_()
    output = ours(impl)(leaf)
    upstream = torch.randn(3, *output.shape, device=device)
    (together,) = torch.autograd.grad(
        output, leaf, upstream, is_grads_batched=True, retain_graph=True
    )
    alone = [torch.autograd.grad(output, leaf, one, retain_graph=True)[0] for one in upstream]
    close(together, torch.stack(alone))


def test_per_sample_gradients_of_a_model(device) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 7), GELU(impl="reference"), torch.nn.Linear(7, 1)
    ).to(device)
    x = torch.randn(4, 5, device=device)
    parameters = dict(model.named_parameters())

    def of_one(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(model, parameters, (x,)).sum()

    together = vmap(grad(of_one), in_dims=(None, 0))(parameters, x)
    for place, row in enumerate(x):
        alone = torch.autograd.grad(model(row).sum(), list(parameters.values()))
        for mine, right in zip(together.values(), alone, strict=True):
            close(mine[place], right)


@each_op
def test_second_and_forward_mode_derivatives_are_refused(ours, torchs, shape, device) -> None:
    function, x = loss(ours("reference")), torch.randn(shape, device=device)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grad(lambda x: grad(function)(x).sum())(x)
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        hessian(function)(x)


@each_op
def test_a_transform_leaves_nothing_behind(ours, torchs, shape, device) -> None:
    function, x = loss(ours("reference")), torch.randn(shape, device=device)
    grad(function)(x)
    leaf = x.clone().requires_grad_()
    (plain,) = torch.autograd.grad(function(leaf), leaf)
    close(plain, grad(loss(torchs))(x))
