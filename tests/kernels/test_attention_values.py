"""flash_attention: output, LSE and gradients equal the definition, for all it may be asked."""

from __future__ import annotations

from typing import Any

import attention_truth
import pytest
import torch

from trainscope_kernels import ArgumentError, flash_attention

IMPLS = ("reference", "triton")
Sizes = tuple[int, int, int, int, int, int]


def made(
    device: torch.device, sizes: Sizes = (1, 1, 34, 37, 8, 8), dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """q, k, v for (query heads, key heads, queries, keys, head dim, value dim)."""
    torch.manual_seed(0)
    heads, key_heads, n_q, n_k, dim, value_dim = sizes
    shapes = [(1, heads, n_q, dim), (1, key_heads, n_k, dim), (1, key_heads, n_k, value_dim)]
    return [torch.randn(s, device=device, dtype=dtype).requires_grad_() for s in shapes]


def assert_right(qkv: list[torch.Tensor], impl: str, tolerance: float = 2e-5, **how: Any) -> None:
    """Values and all gradients, with gradients on both the output and the LSE."""
    out, lse = flash_attention(*qkv, impl=impl, return_lse=True, **how)
    right_out, right_lse = attention_truth.attention(*qkv, **how)
    torch.testing.assert_close(out.double(), right_out, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.double(), right_lse, rtol=tolerance, atol=tolerance)
    grad_out, grad_lse = torch.randn_like(out), torch.randn_like(lse)
    seen = torch.isfinite(lse)
    grads = torch.autograd.grad((out, lse), qkv, (grad_out, grad_lse))
    right = torch.autograd.grad(
        (right_out, right_lse[seen]), qkv, (grad_out.double(), grad_lse[seen].double())
    )
    for grad, expected in zip(grads, right, strict=True):
        torch.testing.assert_close(grad, expected.to(grad), rtol=tolerance, atol=5 * tolerance)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"causal": "top-left"},
        {"causal": "bottom-right"},
        {"window": (7, -1)},
        {"window": (20, 3)},
        {"window": (0, 0), "causal": "top-left"},
        {"window": (9, 100), "causal": "bottom-right", "softcap": 1.5},
        {"softcap": 0.7},
        {"softcap": 1e6},  # far above every score, which it must leave as it is
        {"window": (2**31 - 1, 3)},  # wider than 32 bits can add to
        {"window": (0, 2**31 - 1)},
        {"scale": -0.4, "causal": "top-left"},
        {"scale": 0.0},
    ],
    ids=str,
)
def test_equals_the_definition(device: torch.device, impl: str, how: dict[str, Any]) -> None:
    assert_right(made(device), impl, **how)


@pytest.mark.parametrize(
    "sizes",
    [
        (3, 1, 1, 1, 8, 8),
        (1, 1, 3, 3, 16, 16),
        (2, 2, 64, 1, 8, 8),
        (4, 2, 33, 17, 5, 3),
        (3, 1, 5, 40, 40, 24),
        (1, 1, 64, 32, 96, 33),
    ],
    ids=str,
)
@pytest.mark.parametrize("causal", ["top-left", "bottom-right"])
def test_grouped_heads_odd_dims_and_lengths(
    device: torch.device, sizes: Sizes, causal: str
) -> None:
    assert_right(made(device, sizes), "triton", causal=causal)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("shape", [(1, 2, 34, 37), (2, 1, 37), (34, 1)], ids=str)
def test_masks_broadcast_hide_and_add(
    device: torch.device, impl: str, shape: tuple[int, ...]
) -> None:
    qkv = made(device, (2, 1, 34, 37, 8, 8))
    hide = torch.rand(shape, device=device) > 0.4
    assert_right(qkv, impl, mask=hide)
    bias = torch.randn(shape, device=device).masked_fill(~hide, -torch.inf)
    assert_right(qkv, impl, mask=bias, causal="bottom-right")


@pytest.mark.parametrize("impl", IMPLS)
def test_a_query_that_sees_nothing_gives_zero_and_no_gradient(
    device: torch.device, impl: str
) -> None:
    qkv = made(device, (1, 1, 40, 20, 8, 8))
    out, lse = flash_attention(*qkv, causal="bottom-right", impl=impl, return_lse=True)
    assert torch.equal(out[:, :, :20], torch.zeros_like(out[:, :, :20]))
    assert bool((lse[:, :, :20] == -torch.inf).all())
    assert bool(torch.isfinite(lse[:, :, 20:]).all())
    (out.sum() + lse[:, :, 20:].sum()).backward()
    assert torch.equal(qkv[0].grad[:, :, :20], torch.zeros_like(qkv[0][:, :, :20]))  # type: ignore[index]
    assert all(bool(torch.isfinite(x.grad).all()) for x in qkv)  # type: ignore[arg-type]


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("queries", [64, 192 % 128])
def test_hidden_scores_far_above_the_lse_leave_no_nan(
    device: torch.device, impl: str, queries: int
) -> None:
    # exp(hidden score - LSE) overflows here where the LSE is below -88.7
    torch.manual_seed(0)
    q = torch.full((1, 1, queries, 16), 5.0, device=device).requires_grad_()
    k = torch.full((1, 1, 48, 16), 5.0, device=device)
    k[:, :, ::2] = -5.0
    k.requires_grad_()
    v = torch.randn(1, 1, 48, 16, device=device).requires_grad_()
    mask = torch.zeros(1, 1, queries, 48, dtype=torch.bool, device=device)
    mask[..., ::2] = True
    out, lse = flash_attention(q, k, v, mask=mask, impl=impl, return_lse=True)
    assert lse.max().item() < -88.7
    out.square().sum().backward()
    assert_right([q, k, v], impl, mask=mask, tolerance=1e-4)
    assert all(bool(torch.isfinite(x.grad).all()) for x in (q, k, v))  # type: ignore[arg-type]


@pytest.mark.parametrize("impl", IMPLS)
def test_any_strides_of_inputs_and_gradients(device: torch.device, impl: str) -> None:
    torch.manual_seed(0)
    packed = torch.randn(1, 33, 3, 2, 8, device=device)
    q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
    expanded = v[:, :, :, :1].expand_as(v)
    by_dim = k.mT.contiguous().mT
    for inputs in ((q, k, v), (q, by_dim, expanded)):
        leaves = [x.detach().requires_grad_() for x in inputs]
        dense = [x.contiguous().requires_grad_() for x in inputs]
        out = flash_attention(*leaves, causal=True, impl=impl)
        right = flash_attention(*dense, causal=True, impl="reference")
        torch.testing.assert_close(out, right)
        grad = torch.randn(1, 1, 1, 1, device=device).expand_as(out)
        for a, b in zip(
            torch.autograd.grad(out, leaves, grad),
            torch.autograd.grad(right, dense, grad.contiguous()),
            strict=True,
        ):
            torch.testing.assert_close(a, b)
    # heads inside the sequence in, heads inside the sequence out: merging them copies nothing
    merged = flash_attention(q, k, v, impl=impl).transpose(1, 2)
    assert merged.is_contiguous()


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("sizes", [(2, 2, 0, 5, 8, 8), (2, 1, 5, 0, 8, 4)], ids=str)
def test_empty_inputs(device: torch.device, impl: str, sizes: Sizes) -> None:
    qkv = made(device, sizes)
    out, lse = flash_attention(*qkv, impl=impl, return_lse=True)
    assert torch.equal(out, torch.zeros(1, sizes[0], sizes[2], sizes[5], device=device))
    assert torch.equal(lse, torch.full((1, sizes[0], sizes[2]), -torch.inf, device=device))
    grads = torch.autograd.grad(out.sum(), qkv)
    assert all(torch.equal(g, torch.zeros_like(x)) for g, x in zip(grads, qkv, strict=True))
    none = flash_attention(*(x[:0] for x in qkv), impl=impl)
    assert none.shape == (0, sizes[0], sizes[2], sizes[5])


@pytest.mark.parametrize("impl", IMPLS)
def test_half_precision_errs_at_most_twice_as_much_as_torch(
    device: torch.device, impl: str
) -> None:
    qkv = made(device, (2, 1, 48, 48, 16, 16), torch.float16)
    right, _ = attention_truth.attention(*qkv)
    ours = (flash_attention(*qkv, impl=impl).double() - right).abs().max()
    torchs = torch.nn.functional.scaled_dot_product_attention(*qkv, enable_gqa=True)
    assert ours <= 2 * (torchs.double() - right).abs().max() + 1e-5


def test_runs_are_bitwise_equal_and_inputs_stay_as_they_were(device: torch.device) -> None:
    qkv = made(device, (2, 1, 34, 34, 8, 8))
    before = [x.detach().clone() for x in qkv]
    results = []
    for _ in range(2):
        out = flash_attention(*qkv, causal=True, impl="triton", deterministic=True)
        results.append([out, *torch.autograd.grad(out.square().sum(), qkv)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, qkv, strict=True))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"dropout_p": 0.1}, "attention dropout is not offered"),
        ({"is_causal": True}, "causal='top-left'"),
        ({"causal": True}, "'top-left' .* or causal='bottom-right'"),
        ({"causal": "left"}, "got 'left'"),
        ({"window": 3}, "pair"),
        ({"window": (3, -2)}, "at least -1"),
        ({"window": (True, 0)}, "two integers"),
        ({"softcap": 0}, "greater than 0"),
        ({"softcap": float("inf")}, "softcap must be finite, or None"),
        ({"scale": float("nan")}, "scale must be finite, or None"),
        ({"scale": torch.ones(())}, "Python number"),
        ({"impl": "cuda"}, "auto, reference, triton"),
        ({"mask": torch.zeros(3, 37)}, "broadcast"),
        ({"mask": torch.zeros(37, dtype=torch.int32)}, "boolean"),
        ({"mask": torch.zeros(37, requires_grad=True)}, "mask.detach"),
        ({"mask": torch.zeros(34, 37).to_sparse()}, "mask.to_dense"),
    ],
    ids=str,
)
def test_a_bad_argument_is_named(device: torch.device, how: dict[str, Any], said: str) -> None:
    qkv = made(device)
    how = {name: v.to(device) if isinstance(v, torch.Tensor) else v for name, v in how.items()}
    with pytest.raises(ArgumentError, match=said):
        flash_attention(*qkv, **how)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda q, k, v: (q[0], k, v), "flash_attention_varlen"),
        (lambda q, k, v: (q, k, v[:, :, 1:]), "one length"),
        (
            lambda q, k, v: (q.expand(1, 3, 34, 8), k.expand(1, 2, 37, 8), v.expand(1, 2, 37, 8)),
            "multiple of the key heads",
        ),
        (lambda q, k, v: (q, k.half(), v), "one dtype"),
        (lambda q, k, v: (q.int(), k.int(), v.int()), "dtype"),
        (lambda q, k, v: (q, k, v[..., :1].expand(1, 1, 37, 257)), "1 to 256"),
        (lambda q, k, v: (q, k.to("meta"), v), "one device"),
        (lambda q, k, v: (q, None, v), "k must be a tensor, got NoneType"),
        (lambda q, k, v: (q, k, v.detach().to_sparse()), "v.to_dense"),
        (lambda q, k, v: (torch.nested.nested_tensor([q[0]]), k, v), "q is a nested tensor"),
    ],
)
def test_tensors_that_do_not_go_together_are_named(
    device: torch.device, change: Any, said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        flash_attention(*change(*made(device)))
