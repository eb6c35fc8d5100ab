"""bias + GELU: values, both gradients, mixed dtypes and layouts, against float64."""

from __future__ import annotations

import pytest
import torch
from gelu_truth import FORMS, IMPLS, gelu64, slope64

from trainscope_kernels.gelu import bias_gelu

SHAPES = [(5, 7), (64,), (3, 4, 16), (33, 24), (2, 1032), (131, 8), (70, 1), (1, 1)]


def made(
    shape: tuple[int, ...], dtype: torch.dtype, bias: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = (torch.randn(shape, generator=generator) * 2.0).to(dtype).to(device)
    b = torch.randn(shape[-1:], generator=generator).to(bias).to(device)
    g = torch.randn(shape, generator=generator).to(dtype).to(device)
    return x.requires_grad_(), b.requires_grad_(), g


def check(x: torch.Tensor, b: torch.Tensor, g: torch.Tensor, approximate: str, impl: str) -> None:
    y = bias_gelu(x, b, approximate, impl=impl)
    dx, db = torch.autograd.grad(y, (x, b), g)
    z = x.detach().double() + b.detach().double()
    dz = g.double() * slope64(z, approximate)
    # twice the rounding to the dtype: the interpreter cuts bfloat16 off
    near = {"rtol": 2.0 * torch.finfo(x.dtype).eps + 5e-6, "atol": 3e-6}
    torch.testing.assert_close(y.detach().double(), gelu64(z, approximate), **near)
    torch.testing.assert_close(dx.double(), dz, **near)
    total = dz.reshape(-1, b.numel()).sum(0)
    size = g.double().abs().reshape(-1, b.numel()).sum(0)
    assert db.dtype == b.dtype
    assert db.shape == b.shape
    off = (db.double() - total).abs()
    assert (off <= torch.finfo(b.dtype).eps * total.abs() + 2e-6 * size).all()
    assert y.stride() == torch.empty_like(x).stride()


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(
    shape: tuple[int, ...], approximate: str, impl: str, device: torch.device
) -> None:
    check(*made(shape, torch.float32, torch.float32, device), approximate, impl)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize(
    ("dtype", "bias"),
    [
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float16),
        (torch.float16, torch.float32),
    ],
)
def test_half_types_with_their_own_and_a_float32_bias(
    dtype: torch.dtype, bias: torch.dtype, impl: str, device: torch.device
) -> None:
    check(*made((50, 40), dtype, bias, device), "none", impl)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("view", ["transposed", "chunk", "unaligned", "expanded bias", "ones"])
def test_views(view: str, impl: str, device: torch.device) -> None:
    x, b, g = (t.detach() for t in made((6, 10, 32), torch.float32, torch.float32, device))
    if view == "transposed":
        x = x.transpose(0, 1).detach()
        g = g.transpose(0, 1)
    elif view == "chunk":
        x, b, g = x.chunk(2, -1)[1], b[:16], g.chunk(2, -1)[0]
    elif view == "unaligned":
        x = x.reshape(-1)[1:1601].view(50, 32)
        b, g = torch.cat([b, b])[1:33], g.reshape(-1)[2:1602].view(50, 32)
    elif view == "expanded bias":
        b = b[:1].expand(32)
    else:
        g = torch.ones((), device=device).expand(x.shape)
    check(x.requires_grad_(), b.detach().requires_grad_(), g, "tanh", impl)


@pytest.mark.parametrize("impl", IMPLS)
def test_empty(impl: str, device: torch.device) -> None:
    x, b, g = made((0, 16), torch.float32, torch.float32, device)
    y = bias_gelu(x, b, impl=impl)
    dx, db = torch.autograd.grad(y, (x, b), g)
    assert dx.shape == (0, 16)
    assert torch.equal(db, torch.zeros_like(b))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("wanted", ["x", "bias", "none"])
def test_only_what_asks_for_a_gradient_gets_one(
    wanted: str, impl: str, device: torch.device
) -> None:
    x, b, g = made((9, 16), torch.float32, torch.float32, device)
    x.requires_grad_(wanted == "x")
    b.requires_grad_(wanted == "bias")
    y = bias_gelu(x, b, impl=impl)
    assert y.requires_grad == (wanted != "none")
    if wanted != "none":
        y.backward(g)
    assert (x.grad is not None) == (wanted == "x")
    assert (b.grad is not None) == (wanted == "bias")


@pytest.mark.parametrize("impl", IMPLS)
def test_nan_in_one_feature_stays_in_it(impl: str, device: torch.device) -> None:
    x, b, g = made((37, 24), torch.float32, torch.float32, device)
    with torch.no_grad():
        b[5] = float("nan")
    y = bias_gelu(x, b, impl=impl)
    dx, db = torch.autograd.grad(y, (x, b), g)
    for found in (y.isnan().all(0), y.isnan().any(0), dx.isnan().all(0), db.isnan()):
        assert found.nonzero().flatten().tolist() == [5]


@pytest.mark.gpu
@pytest.mark.parametrize("impl", ["triton", "cuda"])
def test_many_rows_give_the_same_bits_each_time(impl: str, device: torch.device) -> None:
    x, b, g = made((70_001, 264), torch.bfloat16, torch.float32, device)
    y = bias_gelu(x, b, impl=impl)
    runs = [torch.autograd.grad(y, (x, b), g, retain_graph=True) for _ in range(20)]
    assert all(torch.equal(dx, runs[0][0]) and torch.equal(db, runs[0][1]) for dx, db in runs)
    total = (g.double() * slope64(x.detach().double() + b.detach().double(), "none")).sum(0)
    assert (runs[0][1].double() - total).abs().max().item() < 2e-2
