"""What GELU computes: every half value, tails, infinities, against float64."""

from __future__ import annotations

import pytest
import torch
from gelu_truth import FORMS, HALVES, IMPLS, every_half, gelu64, slope64, slope_floor, ulps_off

from trainscope_kernels.errors import ImplUnavailableError
from trainscope_kernels.gelu import gelu


def half_allowance(dtype: torch.dtype, device: torch.device, impl: str) -> float:
    """In ulps. Triton's interpreter cuts bfloat16 off where a GPU rounds to nearest."""
    interpreted = impl == "triton" and device.type == "cpu"
    return 1.05 if interpreted and dtype == torch.bfloat16 else 0.65


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_value_is_within_rounding_of_float64(
    dtype: torch.dtype, approximate: str, impl: str, device: torch.device
) -> None:
    x = every_half(dtype, device)
    finite = x.isfinite()
    allowed = half_allowance(dtype, device, impl)

    leaf = x.clone().requires_grad_()
    y = gelu(leaf, approximate, impl=impl)
    y.backward(torch.ones_like(y))
    assert leaf.grad is not None

    assert ulps_off(y.detach(), gelu64(x, approximate))[finite].max().item() <= allowed
    slopes = ulps_off(leaf.grad, slope64(x, approximate), slope_floor(x))
    assert slopes[finite].max().item() <= allowed
    assert torch.equal(y.isnan(), x.isnan())
    assert torch.equal(leaf.grad.isnan(), x.isnan())


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
def test_infinities_zeros_and_nan(
    dtype: torch.dtype, approximate: str, impl: str, device: torch.device
) -> None:
    if impl == "cuda" and dtype == torch.float64:
        with pytest.raises(ImplUnavailableError, match=r"float32, bfloat16 and float16"):
            gelu(torch.ones(1, dtype=dtype, device=device), approximate, impl=impl)
        return
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, -inf, nan, 0.0, -0.0, 60000.0, -60000.0], dtype=dtype, device=device)
    x.requires_grad_()
    y = gelu(x, approximate, impl=impl)
    y.backward(torch.ones_like(y))
    wanted = torch.tensor([inf, 0.0, nan, 0.0, 0.0, 60000.0, 0.0], dtype=dtype, device=device)
    slopes = torch.tensor([1.0, 0.0, nan, 0.5, 0.5, 1.0, 0.0], dtype=dtype, device=device)
    torch.testing.assert_close(y.detach(), wanted, rtol=0, atol=0, equal_nan=True)
    assert y[3:5].signbit().tolist() == [False, True]
    torch.testing.assert_close(x.grad, slopes, rtol=0, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("approximate", FORMS)
def test_float32_keeps_its_relative_error_far_into_the_tail(
    approximate: str, impl: str, device: torch.device
) -> None:
    x = torch.linspace(-9.5, 9.5, 20001, device=device)
    exact = gelu64(x, approximate)
    relative = (gelu(x, approximate, impl=impl).double() - exact).abs() / exact.abs().clamp(1e-30)
    # the exponent's own rounding is |exponent| * 2**-24, up to 8e-6 at -9.5
    assert relative[x < -6.0].max().item() < 2e-5
    assert relative[x >= -6.0].max().item() < 4e-6
    assert relative[x >= -1.0].max().item() < 6e-7


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("approximate", FORMS)
def test_float32_is_no_further_off_than_twice_torch(
    approximate: str, impl: str, device: torch.device
) -> None:
    x = torch.linspace(-12.0, 12.0, 20001, device=device)
    grad = torch.linspace(-2.0, 3.0, 20001, device=device)

    def errors(f: object) -> tuple[float, float]:
        leaf = x.clone().requires_grad_()
        y = f(leaf)  # type: ignore[operator]
        y.backward(grad)
        assert leaf.grad is not None
        slopes = grad.double() * slope64(x, approximate)
        off = (y.detach().double() - gelu64(x, approximate)).abs().max().item()
        return off, (leaf.grad.double() - slopes).abs().max().item()

    ours = errors(lambda t: gelu(t, approximate, impl=impl))
    torchs = errors(lambda t: torch.nn.functional.gelu(t, approximate=approximate))
    assert ours[0] <= 2.0 * torchs[0] + 1e-7
    assert ours[1] <= 2.0 * torchs[1] + 1e-7


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_left_of_its_minimum_it_never_rises(
    dtype: torch.dtype, approximate: str, impl: str, device: torch.device
) -> None:
    x = every_half(torch.float16, device).float()
    x = x[x.isfinite() & (x < -0.8)].sort().values
    y = gelu(x.to(dtype), approximate, impl=impl)
    assert (y[1:] - y[:-1]).max().item() <= 0.0


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("approximate", FORMS)
def test_denormals_come_out_halved(approximate: str, impl: str, device: torch.device) -> None:
    x = torch.tensor([1, -1, 512, 1023], dtype=torch.float16, device=device) * 2.0**-24
    y = gelu(x, approximate, impl=impl)
    torch.testing.assert_close(y, x * 0.5, rtol=0, atol=2.0**-24)
    assert y[2].item() == 256 * 2.0**-24
