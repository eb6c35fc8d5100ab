"""flash_attention_varlen: each packed sequence is attended by itself, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainscope_kernels import ArgumentError, flash_attention, flash_attention_varlen

IMPLS = ("reference", "triton")
Q_LENGTHS = [0, 33, 1, 0, 20, 0]
K_LENGTHS = [5, 17, 1, 0, 40, 3]


def offsets(lengths: list[int], device: torch.device) -> torch.Tensor:
    ends = torch.tensor([0, *lengths], device=device).cumsum(0)
    return ends.to(torch.int32)


def packed(device: torch.device, spare: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(0)
    rows, keys = sum(Q_LENGTHS) + spare, sum(K_LENGTHS) + spare
    shapes = [(rows, 2, 8), (keys, 1, 8), (keys, 1, 5)]
    return [torch.randn(s, device=device).requires_grad_() for s in shapes]


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize(
    "how",
    [{}, {"causal": "top-left"}, {"causal": "bottom-right", "window": (6, -1), "softcap": 2.0}],
    ids=str,
)
def test_equals_one_call_a_sequence(device: torch.device, impl: str, how: dict[str, Any]) -> None:
    q, k, v = packed(device)
    cu_q, cu_k = offsets(Q_LENGTHS, device), offsets(K_LENGTHS, device)
    out, lse = flash_attention_varlen(
        q, k, v, cu_q, cu_k, 33, 40, impl=impl, return_lse=True, **how
    )
    grad_out, grad_lse = torch.randn_like(out), torch.randn_like(lse)
    grads = torch.autograd.grad((out, lse), (q, k, v), (grad_out, grad_lse))
    alone: list[tuple[torch.Tensor, torch.Tensor]] = []
    for rows, keys in zip(
        q.split(Q_LENGTHS), zip(k.split(K_LENGTHS), v.split(K_LENGTHS), strict=True), strict=True
    ):
        four = [x.transpose(0, 1)[None] for x in (rows, *keys)]
        one, one_lse = flash_attention(*four, impl="reference", return_lse=True, **how)
        alone.append((one[0].transpose(0, 1), one_lse[0]))
    right = torch.cat([a for a, _ in alone]), torch.cat([b for _, b in alone], dim=1)
    torch.testing.assert_close(out, right[0])
    torch.testing.assert_close(lse, right[1])
    right_grads = torch.autograd.grad(right, (q, k, v), (grad_out, grad_lse))
    for grad, expected in zip(grads, right_grads, strict=True):
        torch.testing.assert_close(grad, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("impl", IMPLS)
def test_nan_in_one_sequence_stays_there(device: torch.device, impl: str) -> None:
    q, k, v = (x.detach() for x in packed(device))
    cu_q, cu_k = offsets(Q_LENGTHS, device), offsets(K_LENGTHS, device)
    right = flash_attention_varlen(q, k, v, cu_q, cu_k, impl=impl)
    first, last = int(cu_k[1]), int(cu_k[2])
    k[first:last] = torch.nan
    v[first:last] = torch.nan
    out = flash_attention_varlen(q, k, v, cu_q, cu_k, impl=impl)
    assert bool(torch.isnan(out[:33]).all())
    assert torch.equal(out[33:], right[33:])


@pytest.mark.parametrize("impl", IMPLS)
def test_rows_of_no_sequence_are_zero(device: torch.device, impl: str) -> None:
    q, k, v = packed(device, spare=7)
    cu_q, cu_k = offsets(Q_LENGTHS, device), offsets(K_LENGTHS, device)
    out, lse = flash_attention_varlen(q, k, v, cu_q, cu_k, impl=impl, return_lse=True)
    assert torch.equal(out[-7:], torch.zeros(7, 2, 5, device=device))
    assert bool((lse[:, -7:] == -torch.inf).all())
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(torch.equal(g[-7:], torch.zeros_like(g[-7:])) for g in grads)


@pytest.mark.parametrize("impl", IMPLS)
def test_the_first_sequence_may_begin_far_behind_the_first_row(
    device: torch.device, impl: str
) -> None:
    q, k, v = packed(device)
    cu_q, cu_k = (torch.tensor(cu, device=device) for cu in ([34, 36, 39], [3, 25, 25]))
    out = flash_attention_varlen(q, k, v, cu_q, cu_k, impl=impl)
    alone = flash_attention_varlen(
        q[34:36], k[3:25], v[3:25], cu_q[:2] - 34, cu_k[:2] - 3, impl="reference"
    )
    torch.testing.assert_close(out[34:36], alone, rtol=1e-4, atol=1e-4)
    assert not out[:34].any()
    assert not out[36:].any()
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    torch.testing.assert_close(
        grads[2][3:25].sum(0), out.new_full((1, 5), 2.0 * 2), rtol=1e-4, atol=0
    )
    assert not grads[0][:34].any()
    assert not any(g[each].any() for g in grads[1:] for each in (slice(3), slice(25, None)))


@pytest.mark.parametrize(
    "cu", [[-5, 12], [0, 2**40], [20, 3, 2**33], [-(2**40), 9], [2**62, 5], [0]]
)
def test_offsets_that_are_none_reach_no_other_memory(device: torch.device, cu: list[int]) -> None:
    """What comes out is theirs; it is there, and so is the heap of the interpreter."""
    q, k, v = packed(device)
    offsets = torch.tensor(cu, device=device)
    out = flash_attention_varlen(q, k, v, offsets, offsets, impl="triton")
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    assert all(bool(x.isfinite().all()) for x in (out, *grads))
    if cu == [0]:
        assert not out.any()


def test_a_longest_length_that_is_too_small_does_no_harm(device: torch.device) -> None:
    q, k, v = packed(device)
    cu_q, cu_k = offsets(Q_LENGTHS, device), offsets(K_LENGTHS, device)
    right = flash_attention_varlen(q, k, v, cu_q, cu_k, 33, 40, impl="triton")
    assert torch.equal(flash_attention_varlen(q, k, v, cu_q, cu_k, 1, 1, impl="triton"), right)


def test_many_short_sequences(device: torch.device) -> None:
    torch.manual_seed(0)
    count = 20
    q, k, v = (torch.randn(count, 1, 4, device=device) for _ in range(3))
    cu = torch.arange(count + 1, device=device, dtype=torch.int32)
    # one key a sequence: each query's output is that key's value
    out = flash_attention_varlen(q, k, v, cu, cu, 1, 1, causal=True, impl="triton")
    torch.testing.assert_close(out, v)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda q, k, v, a, b: (q[None], k, v, a, b), "flash_attention"),
        (lambda q, k, v, a, b: (q, k, v[1:], a, b), "one number of rows"),
        (lambda q, k, v, a, b: (q, k, v, a.float(), b), "cu_seqlens_q must be"),
        (lambda q, k, v, a, b: (q, k, v, a, b[:-1]), "equally many sequences"),
    ],
)
def test_a_bad_argument_is_named(device: torch.device, change: Any, said: str) -> None:
    cu_q, cu_k = offsets(Q_LENGTHS, device), offsets(K_LENGTHS, device)
    with pytest.raises(ArgumentError, match=said):
        flash_attention_varlen(*change(*packed(device), cu_q, cu_k))


def test_causal_true_is_taken_where_both_sides_have_the_same_offsets(device: torch.device) -> None:
    q, k, v = packed(device)
    cu_q, cu_k = offsets(Q_LENGTHS, device), offsets(K_LENGTHS, device)
    taken = flash_attention_varlen(q, q, q, cu_q, cu_q, causal=True, impl="reference")
    named = flash_attention_varlen(q, q, q, cu_q, cu_q, causal="top-left", impl="reference")
    assert torch.equal(taken, named)
    with pytest.raises(ArgumentError, match="'top-left'"):
        flash_attention_varlen(q, k, v, cu_q, cu_k, causal=True)
