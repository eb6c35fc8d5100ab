"""Attention on a GPU: what the interpreter cannot tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainscope_kernels import flash_attention, flash_attention_varlen

pytestmark = pytest.mark.gpu

LENGTHS = [
    (1, 1), (3, 3), (64, 32), (64, 1), (239, 1), (799, 3), (113, 203), (113, 128), (128, 217),
    (113, 211), (108, 256), (255, 256), (384, 256), (640, 128), (512, 256), (1023, 1024),
    (1024, 1023), (511, 1), (3, 513), (4224, 4224),
]  # fmt: skip


def made(
    n_q: int,
    n_k: int,
    dims: tuple[int, int] = (64, 64),
    heads: tuple[int, int] = (2, 2),
    dtype: torch.dtype = torch.bfloat16,
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(1, heads[0], n_q, dims[0]), (1, heads[1], n_k, dims[0]), (1, heads[1], n_k, dims[1])]
    return [torch.randn(s, device="cuda", dtype=dtype).requires_grad_() for s in shapes]


def results(qkv: list[torch.Tensor], grad: torch.Tensor, **how: Any) -> list[torch.Tensor]:
    out = flash_attention(*qkv, **how)
    return [out, *torch.autograd.grad(out, qkv, grad.to(out.dtype))]


def assert_as_good_as_torch(qkv: list[torch.Tensor], **how: Any) -> None:
    """Errors against float64 at most twice those of the same formula in the inputs' own dtype.

    The 5e-3 is FlashAttention's own allowance where torch's error happens to be next to nothing.
    """
    grad = torch.randn(*qkv[0].shape[:3], qkv[2].shape[3], device="cuda")
    exact = [x.detach().double().requires_grad_() for x in qkv]
    right = results(exact, grad, impl="reference", **how)
    eager = in_own_dtype(qkv, grad, **how)
    for ours, truth, torchs in zip(
        results(qkv, grad, impl="triton", **how), right, eager, strict=True
    ):
        assert bool(torch.isfinite(ours).all())
        error = (ours.double() - truth).abs().max()
        assert error <= 2 * (torchs.double() - truth).abs().max() + 5e-3 * truth.abs().max() + 1e-5


def in_own_dtype(qkv: list[torch.Tensor], grad: torch.Tensor, **how: Any) -> list[torch.Tensor]:
    """The formula in eager torch, each step rounded to the inputs' dtype."""
    from trainscope_kernels.attention.masking import band_of, visible_keys

    q, k, v = qkv
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ keys.mT * how.get("scale", q.shape[-1] ** -0.5)
    if "softcap" in how:
        scores = torch.tanh(scores / how["softcap"]) * how["softcap"]
    band = band_of(how.get("causal"), how.get("window"), q.shape[2] == k.shape[2])
    seen = visible_keys(q.shape[2], k.shape[2], band, q.device)
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    # rows that see nothing are NaN here: 0, as ours
    weights = torch.nan_to_num(torch.softmax(scores, -1), nan=0.0)
    out = weights @ values
    return [out, *(torch.nan_to_num(g) for g in torch.autograd.grad(out, qkv, grad.to(out.dtype)))]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
def test_lengths(lengths: tuple[int, int], causal: str | None) -> None:
    assert_as_good_as_torch(made(*lengths), causal=causal)


@pytest.mark.parametrize("dim", [8, 16, 32, 40, 64, 72, 80, 96, 112, 128, 160, 192, 256, 33])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_head_dims(dim: int, dtype: torch.dtype) -> None:
    assert_as_good_as_torch(made(200, 200, (dim, dim), (2, 1), dtype), causal=True)


@pytest.mark.parametrize(
    "how",
    [
        {"window": (100, 0)},
        {"window": (64, 64), "causal": "top-left"},
        {"softcap": 5.0, "causal": "bottom-right"},
        {"scale": -0.3},
        {"scale": 0.0},
    ],
    ids=str,
)
def test_options(how: dict[str, Any]) -> None:
    assert_as_good_as_torch(made(300, 333, (128, 128), (6, 2)), **how)
    assert_as_good_as_torch(made(300, 333, (192, 128), (7, 1)), **how)


def test_cudnns_nan_case_is_right_here() -> None:
    # boolean mask, length % 128 == 64, LSE < -88.7
    torch.manual_seed(0)
    q = torch.randn(1, 2, 192, 64, device="cuda", dtype=torch.bfloat16)
    k = -q * 20
    mask = torch.eye(192, device="cuda", dtype=torch.bool)
    qkv = [x.requires_grad_() for x in (q, k, torch.randn_like(q))]
    out, lse = flash_attention(*qkv, mask=mask, impl="triton", return_lse=True)
    assert lse.min().item() < -88.7
    # each query sees one key, whose value is its output
    torch.testing.assert_close(out, qkv[2])
    grads = torch.autograd.grad(out, qkv, torch.randn_like(out))
    assert all(bool(torch.isfinite(g).all()) for g in grads)


def test_masks_of_every_kind() -> None:
    qkv = made(192, 160, (64, 64), (4, 2))
    hide = torch.rand(1, 1, 192, 160, device="cuda") > 0.3
    bias = torch.randn(4, 1, 160, device="cuda", dtype=torch.bfloat16)
    for mask in (hide, bias, bias.float()):
        right = flash_attention(*(x.double() for x in qkv), mask=mask, impl="reference")
        ours = flash_attention(*qkv, mask=mask, impl="triton")
        torch.testing.assert_close(ours.double(), right, rtol=2e-2, atol=2e-2)


def test_packed_sequences_beyond_65535() -> None:
    count = 70_000
    v = torch.randn(count, 1, 16, device="cuda", dtype=torch.bfloat16)
    q = torch.randn_like(v)
    cu = torch.arange(count + 1, device="cuda", dtype=torch.int32)
    assert torch.equal(flash_attention_varlen(q, q, v, cu, cu, 1, 1), v)


def test_offsets_beyond_two_to_the_31() -> None:
    # 40,000 rows of 65,536 elements: the last row starts past 2^31
    wide = torch.zeros(1, 40_000, 65_536, device="cuda", dtype=torch.bfloat16)
    q = wide[:, :, :64].unsqueeze(1)
    q.copy_(torch.randn_like(q))
    window = {"window": (64, 0)}
    out = flash_attention(q, q, q, impl="triton", **window)
    same = q.contiguous()
    torch.testing.assert_close(out, flash_attention(same, same, same, impl="triton", **window))


def test_two_hundred_runs_under_load_are_bitwise_equal() -> None:
    qkv = made(1024, 1024, (128, 128), (8, 2))
    grad = torch.randn(1, 8, 1024, 128, device="cuda")
    side = torch.cuda.Stream()
    load = torch.randn(2048, 2048, device="cuda")
    first = results(qkv, grad, causal=True, impl="triton", deterministic=True)
    for _ in range(200):
        with torch.cuda.stream(side):
            load @ load
        again = results(qkv, grad, causal=True, impl="triton", deterministic=True)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_memory_grows_with_the_length_and_not_with_its_square() -> None:
    shape = (1, 32, 16384, 128)

    def peak(attend: Any) -> int:
        qkv = [torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_()
               for _ in range(3)]  # fmt: skip
        torch.cuda.reset_peak_memory_stats()
        out = attend(*qkv)
        torch.autograd.grad(out, qkv, torch.ones_like(out))
        return torch.cuda.max_memory_allocated()

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        torchs = peak(torch.nn.functional.scaled_dot_product_attention)
    assert peak(lambda *qkv: flash_attention(*qkv, impl="triton")) < 1.2 * torchs


def test_a_cuda_graph_replays_on_new_data() -> None:
    qkv = [x.detach() for x in made(256, 256)]
    flash_attention(*qkv, causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = flash_attention(*qkv, causal=True)
    for x in qkv:
        x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(out, flash_attention(*qkv, causal=True))


def test_compiled_whole_forward_and_backward() -> None:
    qkv = made(256, 256)
    grad = torch.randn(1, 2, 256, 64, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(lambda *x: flash_attention(*x, causal=True), fullgraph=True)
    ours = torch.autograd.grad(compiled(*qkv), qkv, grad)
    right = torch.autograd.grad(flash_attention(*qkv, causal=True), qkv, grad)
    assert all(torch.equal(a, b) for a, b in zip(ours, right, strict=True))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_tensor_on_another_gpu_than_the_current_one() -> None:
    qkv = [x.detach().to("cuda:1").requires_grad_() for x in made(128, 128)]
    grad = torch.randn(1, 2, 128, 64, device="cuda:1")
    ours = results(qkv, grad, impl="triton")
    right = results([x.detach().to("cuda:0").requires_grad_() for x in qkv], grad.to("cuda:0"))
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(ours, right, strict=True))


def test_poisoned_memory_leaves_no_trace() -> None:
    for n in (1, 63, 130):
        qkv = made(n, n)
        grad = torch.randn(1, 2, n, 64, device="cuda")
        poison = [torch.full((2**k,), torch.nan, device="cuda") for k in range(4, 22)]
        del poison
        assert all(bool(torch.isfinite(x).all()) for x in results(qkv, grad, causal=True))
