"""GELU of every shape, stride and alignment equals GELU of the same values laid out plainly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gelu_truth import IMPLS, gelu64, slope64

from trainscope_kernels.gelu import gelu

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "0-d": lambda x: x[0, 0, 0, 0],
    "one element": lambda x: x[:1, :1, :1, :1],
    "transposed": lambda x: x.transpose(1, 3),
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "chunk of the last dim": lambda x: x.chunk(2, -1)[1],
    "every second": lambda x: x[..., ::2],
    "unaligned": lambda x: x.reshape(-1)[1:],
    "unaligned and short": lambda x: x.reshape(-1)[3:9],
    "expanded": lambda x: x[:1].expand(5, *x.shape[1:]),
    "expanded scalar": lambda x: x[0, 0, 0, :1].expand(7, 33),
    "overlapping": lambda x: x.reshape(-1).unfold(0, 8, 3),
    "empty": lambda x: x[:0],
    "empty in the middle": lambda x: x[:, :, :0],
}

GRADS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "like the output": lambda y: torch.randn_like(y),
    "all ones, stride 0": lambda y: torch.ones((), dtype=y.dtype, device=y.device).expand(y.shape),
    "in reverse memory order": lambda y: torch.randn(
        y.shape[::-1], dtype=y.dtype, device=y.device
    ).permute(tuple(reversed(range(y.ndim)))),
    "unaligned": lambda y: torch.randn(
        y.numel() + 1, dtype=y.dtype, device=y.device
    )[1:].view(y.shape),
}  # fmt: skip


def made(device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return (torch.randn(4, 6, 10, 14, generator=generator) * 3.0).to(device)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("view", VIEWS)
def test_values_and_strides_of_every_view(view: str, impl: str, device: torch.device) -> None:
    x = VIEWS[view](made(device))
    kept = x.clone()
    y = gelu(x, impl=impl)
    torchs = torch.nn.functional.gelu(x)
    torch.testing.assert_close(y, gelu64(x, "none").float(), rtol=1e-5, atol=1e-6)
    assert torch.equal(x, kept)
    assert y.shape == torchs.shape
    assert y.stride() == torch.empty_like(x).stride()
    if x.numel() and torch.empty_like(x).stride() == x.stride():
        # torch normalises the strides of dimensions of size 1, which nothing can tell apart
        long = [dim for dim in range(x.ndim) if x.shape[dim] > 1]
        assert [y.stride(dim) for dim in long] == [torchs.stride(dim) for dim in long]


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("grad", GRADS)
@pytest.mark.parametrize("view", VIEWS)
def test_gradients_of_every_view(view: str, grad: str, impl: str, device: torch.device) -> None:
    x = VIEWS[view](made(device)).detach().requires_grad_()
    y = gelu(x, "tanh", impl=impl)
    g = GRADS[grad](y.detach())
    kept = g.clone()
    (dx,) = torch.autograd.grad(y, x, g)
    wanted = g.double() * slope64(x.detach(), "tanh")
    torch.testing.assert_close(dx, wanted.float(), rtol=1e-5, atol=2e-6)
    assert torch.equal(g, kept)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 1023, 1025, 2048, 4096 + 3])
def test_no_element_outside_is_touched(
    n: int, dtype: torch.dtype, impl: str, device: torch.device
) -> None:
    room = torch.full((n + 64,), 7.0, dtype=dtype, device=device)
    x = room[32 : 32 + n].copy_(torch.linspace(-4, 4, n))
    y = gelu(x, impl=impl)
    assert (room[:32] == 7.0).all()
    assert (room[32 + n :] == 7.0).all()
    # one bfloat16 step more than the values' tests: the interpreter cuts off
    torch.testing.assert_close(y.float(), gelu64(x, "none").float(), rtol=2**-7, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("impl", ["triton", "cuda"])
def test_more_than_two_to_the_31_elements(impl: str) -> None:
    n = 2**31 + 4097
    x = torch.zeros(n, dtype=torch.bfloat16, device="cuda")
    x[-5000:] = 1.0
    leaf = x.requires_grad_()
    y = gelu(leaf, impl=impl)
    wanted = gelu64(torch.ones(1), "none").to(torch.bfloat16).item()
    assert y[-5000:].float().unique().tolist() == [wanted]
    assert y[:-5000].count_nonzero().item() == 0
    (dx,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
    slope = slope64(torch.ones(1), "none").to(torch.bfloat16).item()
    assert dx[-5000:].float().unique().tolist() == [slope]
    assert dx[0].item() == 0.5
