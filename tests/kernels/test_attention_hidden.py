"""What attention hides has no part in it: by masks, windows, documents, and past the end."""

from __future__ import annotations

from typing import Any

import attention_truth
import pytest
import torch

from trainscope_kernels import flash_attention, flash_attention_varlen
from trainscope_kernels.attention import triton_delta

IMPLS = ("reference", "triton")
each_impl = pytest.mark.parametrize("impl", IMPLS)


def made(
    device: torch.device, n_q: int = 40, n_k: int = 40, heads: tuple[int, int] = (2, 2)
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(1, heads[0], n_q, 8), (1, heads[1], n_k, 8), (1, heads[1], n_k, 8)]
    return [torch.randn(shape, device=device).requires_grad_() for shape in shapes]


def assert_right(qkv: list[torch.Tensor], impl: str, within: float = 1e-4, **how: Any) -> None:
    """Output, LSE and all gradients are those of the definition; the inputs stay as they were."""
    before = [x.detach().clone() for x in qkv]
    out, lse = flash_attention(*qkv, impl=impl, return_lse=True, **how)
    right, right_lse = attention_truth.attention(*qkv, **how)
    torch.testing.assert_close(out.double(), right, rtol=within, atol=within)
    torch.testing.assert_close(lse.double(), right_lse, rtol=within, atol=within)
    grad = torch.randn_like(out)
    given = grad.clone()
    grads = torch.autograd.grad(out, qkv, grad)
    for ours, expected in zip(grads, torch.autograd.grad(right, qkv, grad.double()), strict=True):
        most = within * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(ours, expected.to(ours), rtol=within, atol=most)
    assert torch.equal(grad, given)
    assert all(torch.equal(a, b) for a, b in zip(qkv, before, strict=True))


@each_impl
@pytest.mark.parametrize(
    "how",
    [
        {"window": (-1, 3)},
        {"window": (0, 0)},
        {"window": (500, 500)},
        {"window": (0, 5), "causal": "bottom-right"},
        {"scale": 40.0},
        {"scale": 40.0, "softcap": 3.0, "window": (4, 4), "causal": "top-left"},
    ],
    ids=str,
)
def test_windows_and_scales_at_their_ends(device: torch.device, impl: str, how: Any) -> None:
    # scores in the hundreds are rounded to some 1e-5, and their exponentials by as much relatively
    assert_right(made(device, 34, 37, (1, 1)), impl, within=1e-3 if "scale" in how else 1e-4, **how)


@each_impl
@pytest.mark.parametrize("ratio", [(14, 2), (16, 1)])
def test_many_query_heads_to_a_key_head(
    device: torch.device, impl: str, ratio: tuple[int, int]
) -> None:
    assert_right(made(device, 9, 10, ratio), impl, causal="bottom-right")


@each_impl
def test_rows_that_a_mask_or_a_window_hides_altogether_are_zero(
    device: torch.device, impl: str
) -> None:
    mask = torch.rand(33, 20, device=device) > 0.5
    mask[5] = mask[16:33] = False
    added = torch.zeros(33, 20, device=device).masked_fill(~mask, -torch.inf)
    for blind, how in (
        (slice(16, 33), {"mask": mask, "softcap": 2.0}),
        (slice(16, 33), {"mask": added}),
        (slice(0, 13), {"window": (3, -1), "causal": "bottom-right"}),
    ):
        qkv = made(device, 33, 20, (1, 1))
        assert_right(qkv, impl, **how)
        out, lse = flash_attention(*qkv, impl=impl, return_lse=True, **how)
        grads = torch.autograd.grad(out.sum(), qkv)
        assert torch.equal(out[:, :, blind], torch.zeros_like(out[:, :, blind]))
        assert bool((lse[:, :, blind] == -torch.inf).all())
        assert torch.equal(grads[0][:, :, blind], torch.zeros_like(out[:, :, blind]))
        assert all(bool(torch.isfinite(each).all()) for each in grads)


@each_impl
def test_a_mask_of_whole_blocks(device: torch.device, impl: str) -> None:
    # tiles are 32 queries by 16 keys here: hidden, seen and mixed ones
    mask = torch.zeros(64, 64, dtype=torch.bool, device=device)
    mask[:32, 16:48] = mask[32:64, :24] = True
    assert_right(made(device, 64, 64, (1, 1)), impl, mask=mask, softcap=1.5)


@each_impl
@pytest.mark.parametrize("low", [-1e4, -1e9, -3.3e15, -1e20, torch.finfo(torch.float32).min])
def test_numbers_that_models_add_for_minus_infinity(
    device: torch.device, impl: str, low: float
) -> None:
    qkv = made(device, 24, 24, (2, 1))
    mask = torch.zeros(24, 24, device=device)
    mask[:, 20:] = low
    mask[5:9] = low  # here they hide nothing, for all keys have it
    out = flash_attention(*qkv, mask=mask, impl=impl)
    right, _ = attention_truth.attention(*qkv, mask=mask)
    kept = torch.ones(24, device=device)
    kept[5:9] = 0.0
    if abs(low) < 1e8 or abs(low) > 1e17:  # between, some digits of the scores are left
        torch.testing.assert_close(out.double(), right, rtol=3e-3, atol=3e-3)
    grad = torch.randn_like(out) * kept[:, None]
    grads = torch.autograd.grad(out, qkv, grad, retain_graph=True)
    for ours, expected in zip(grads, torch.autograd.grad(right, qkv, grad.double()), strict=True):
        torch.testing.assert_close(ours, expected.to(ours), rtol=2e-5, atol=1e-4)
    grads = torch.autograd.grad(out, qkv, torch.randn_like(out))
    assert all(bool(each.isfinite().all()) for each in grads)


@each_impl
def test_a_document_mask_is_packed_sequences(device: torch.device, impl: str) -> None:
    lengths = [7, 1, 20, 5]
    document = torch.repeat_interleave(
        torch.arange(4, device=device), torch.tensor(lengths, device=device)
    )
    q, k, v = made(device, 33, 33)
    masked = flash_attention(
        q, k, v, mask=document[:, None] == document[None, :], causal=True, impl=impl
    )
    ends = torch.tensor([0, *lengths], device=device).cumsum(0)
    rows = [x[0].transpose(0, 1) for x in (q, k, v)]
    packed = flash_attention_varlen(*rows, ends, ends, causal=True, impl=impl)
    torch.testing.assert_close(packed.transpose(0, 1)[None], masked)
    grad = torch.randn_like(masked)
    for ours, right in zip(
        torch.autograd.grad(packed, (q, k, v), grad[0].transpose(0, 1)),
        torch.autograd.grad(masked, (q, k, v), grad),
        strict=True,
    ):
        torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-5)


@each_impl
def test_one_packed_sequence_is_a_plain_call(device: torch.device, impl: str) -> None:
    q, k, v = (x.detach() for x in made(device, 33, 21))
    rows = [x[0].transpose(0, 1) for x in (q, k, v)]
    cu_q, cu_k = (torch.tensor([0, n], device=device, dtype=torch.int32) for n in (33, 21))
    packed = flash_attention_varlen(*rows, cu_q, cu_k, causal="bottom-right", impl=impl)
    plain = flash_attention(q, k, v, causal="bottom-right", impl=impl)
    torch.testing.assert_close(packed.transpose(0, 1)[None], plain)


@each_impl
@pytest.mark.parametrize("n", [1, 17, 33])
def test_nan_past_the_end_and_beside_the_heads_is_not_read(
    device: torch.device, impl: str, n: int
) -> None:
    roomy = torch.full((3, 1, 4, n + 40, 16), torch.nan, device=device)
    inside = roomy[:, :, 1:3, 8 : 8 + n, 2:10]
    inside.copy_(torch.randn_like(inside))
    views = [x.requires_grad_() for x in inside.detach().unbind(0)]
    copies = [x.detach().clone().requires_grad_() for x in views]
    grad = torch.randn(1, 2, n, 8, device=device)
    for how in ({}, {"window": (3, 2)}):
        ours = flash_attention(*views, impl=impl, **how)
        right = flash_attention(*copies, impl="reference", **how)
        torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-5)
        for a, b in zip(
            torch.autograd.grad(ours, views, grad),
            torch.autograd.grad(right, copies, grad),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@each_impl
def test_nan_after_the_last_packed_sequence_is_not_read(device: torch.device, impl: str) -> None:
    rows = [x[0].transpose(0, 1) for x in made(device)]
    ends = torch.tensor([0, 9, 30], device=device, dtype=torch.int32)
    right = flash_attention_varlen(*rows, ends, ends, impl=impl)
    spoilt = [x.detach().clone() for x in rows]
    for x in spoilt:
        x[30:] = torch.nan
    assert torch.equal(flash_attention_varlen(*spoilt, ends, ends, impl=impl), right)


@each_impl
@pytest.mark.parametrize("n", [1, 2, 17])
def test_inputs_five_times_as_large_overflow_nowhere(
    device: torch.device, impl: str, n: int
) -> None:
    qkv = [(x.detach() * 5).requires_grad_() for x in made(device, n, n, (1, 1))]
    assert_right(qkv, impl, within=1e-3, causal="top-left")


@each_impl
def test_keys_that_all_heads_share_by_expansion(device: torch.device, impl: str) -> None:
    q, k, v = made(device, 20, 24, (4, 1))
    shared = flash_attention(q, k.expand(1, 4, 24, 8), v.expand(1, 4, 24, 8), impl=impl)
    grouped = flash_attention(q, k, v, impl=impl)
    torch.testing.assert_close(shared, grouped)
    grad = torch.randn_like(shared)
    for a, b in zip(
        torch.autograd.grad(shared, (q, k, v), grad),
        torch.autograd.grad(grouped, (q, k, v), grad),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_delta_is_summed_in_float32_from_the_output_as_it_was_rounded(
    device: torch.device,
) -> None:
    torch.manual_seed(0)
    out, grad = (torch.randn(1, 2, 40, 24, device=device).half() for _ in range(2))
    lse, grad_lse = (torch.randn(1, 2, 40, device=device) for _ in range(2))
    terms = triton_delta.row_terms(out, grad, grad_lse, lse)
    delta = (out.double() * grad.double()).sum(-1) - grad_lse.double()
    assert terms.dtype == torch.float32
    torch.testing.assert_close(-terms[..., 2].double(), delta, rtol=1e-6, atol=1e-5)
