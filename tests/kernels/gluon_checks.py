"""Checks of the Gluon attention kernels on a GPU, run as ``python gluon_checks.py NAME [JSON]``.

A kernel that waits for a barrier in the wrong phase waits for ever and takes the process with it,
so each check is a process of its own (test_gluon_gpu.py gives it 120 s) that prints what it found.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.nn.functional as F
from attention_rounded import rounded_attention
from attention_truth import attention
from torch import Tensor

from trainscope_kernels.attention import flash_attention, flash_attention_varlen

Qkv = tuple[Tensor, Tensor, Tensor]
NAMES = ("out", "dq", "dk", "dv")


def inputs(shape: tuple[int, int, int, int], dtype: str, key_heads: int | None = None) -> Qkv:
    batch, heads, length, dim = shape
    sizes = (heads, key_heads or heads, key_heads or heads)
    made = [
        torch.randn((batch, each, length, dim), device="cuda").to(getattr(torch, dtype))
        for each in sizes
    ]
    return made[0], made[1], made[2]


def truth(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.mT * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


def error(x: Tensor, right: Tensor, beside: Tensor | None = None) -> float:
    """Relative to the norm of what is right, or of what it is measured beside."""
    size = (right if beside is None else beside).norm().clamp_min(1e-30)
    return float((x.double() - right).norm() / size)


def values(
    dtype: str, dim: int, causal: bool, lengths: list[int], key_heads: int = 3, times: float = 1.0
) -> list[dict[str, Any]]:
    """The errors of each length, ours and torch's own, forward and backward."""
    found = []
    for length in lengths:
        qkv = inputs((2, 3, length, dim), dtype, key_heads)
        qkv = (qkv[0] * times, *qkv[1:])
        grad = torch.randn_like(qkv[0])
        leaves = [x.detach().requires_grad_() for x in qkv]
        exact = [x.detach().double().requires_grad_() for x in qkv]
        plain = [x.detach().clone().requires_grad_() for x in qkv]
        out, lse = flash_attention(
            *leaves, causal=True if causal else None, impl="gluon", return_lse=True
        )
        right, right_lse = truth(exact[0], exact[1], exact[2], causal, dim**-0.5)
        torchs = F.scaled_dot_product_attention(
            plain[0], plain[1], plain[2], is_causal=causal, enable_gqa=key_heads != 3
        )
        each: dict[str, Any] = {
            "length": length,
            "lse": float((lse.double() - right_lse).abs().max()),
            "out": (error(out, right), error(torchs, right)),
        }
        wanted = torch.autograd.grad(right, exact, grad.double())
        ours = torch.autograd.grad(out, leaves, grad)
        theirs = torch.autograd.grad(torchs, plain, grad)
        for name, mine, other, want in zip("qkv", ours, theirs, wanted, strict=True):
            # of one key the gradients of q and k are 0
            beside = grad if length == 1 else None
            each[f"d{name}"] = (error(mine, want, beside), error(other, want, beside))
        found.append(each)
    return found


def gradients(
    dtype: str,
    dim: int,
    lengths: list[tuple[int, int]],
    heads: tuple[int, int] = (4, 2),
    **how: Any,
) -> list[dict[str, Any]]:
    """The errors of output and gradients of these numbers of queries and keys, each beside the
    error of what is computed exactly and rounded where it must be; loss of output and LSE.

    heads: of queries and keys. how: what flash_attention is told.
    """
    window = how.get("window")
    how = {**how, "window": None if window is None else tuple(window)}
    of_truth = {name: how.get(name) for name in ("causal", "window", "softcap")}
    found = []
    for queries, keys in lengths:
        q = inputs((2, heads[0], queries, dim), dtype)[0].requires_grad_()
        k, v = (inputs((2, heads[1], keys, dim), dtype)[0].requires_grad_() for _ in range(2))
        exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
        out, lse = flash_attention(q, k, v, impl="gluon", return_lse=True, **how)
        right, right_lse = attention(exact[0], exact[1], exact[2], **of_truth)
        of_out = torch.randn_like(out)
        # the LSE of a row that sees no key is -inf, and no loss is made of it
        of_lse = torch.where(right_lse.isfinite(), torch.randn_like(lse), 0.0)
        right_lse = torch.where(right_lse.isfinite(), right_lse, 0.0)
        ours = torch.autograd.grad([out, lse], [q, k, v], [of_out, of_lse])
        wanted = torch.autograd.grad([right, right_lse], exact, [of_out.double(), of_lse.double()])
        rounded = rounded_attention(q, k, v, of_out, of_lse, out=out, **of_truth)
        each: dict[str, Any] = {"lengths": (queries, keys)}
        for name, x, floor, want in zip(
            NAMES, (out, *ours), rounded, (right, *wanted), strict=True
        ):
            each[name] = error(x, want.detach()), error(floor, want.detach())
        found.append(each)
    return found


def packed_gradients(
    dim: int, lengths: tuple[list[int], list[int]], heads: tuple[int, int] = (4, 2), **how: Any
) -> dict[str, Any]:
    """The errors of packed sequences as ``gradients`` has them, and how many gradients change
    with NaN in another sequence.

    lengths: of each sequence's queries and keys, so that some row of each sees a key.
    """
    starts = [
        torch.tensor([0, *each], dtype=torch.int32, device="cuda").cumsum(0, dtype=torch.int32)
        for each in lengths
    ]
    totals = [sum(each) for each in lengths]
    sizes = ((totals[0], heads[0]), (totals[1], heads[1]), (totals[1], heads[1]))
    rows = [torch.randn(*size, dim, device="cuda").to(torch.bfloat16) for size in sizes]
    grad = torch.randn_like(rows[0])

    def made_of(given: list[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.clone().requires_grad_() for x in given]
        out = flash_attention_varlen(
            leaves[0], leaves[1], leaves[2], starts[0], starts[1], impl="gluon", **how
        )
        return out.detach(), *torch.autograd.grad(out, leaves, grad)

    ours, *made = made_of(rows, grad)
    wanted_out = torch.zeros_like(ours, dtype=torch.float64)
    rounded = [torch.zeros_like(x, dtype=torch.float64) for x in (ours, *rows)]
    exact = [x.double().requires_grad_() for x in rows]
    loss = torch.zeros((), dtype=torch.float64, device="cuda")
    bounds = [each.tolist() for each in starts]
    parts = list(zip(bounds[0], bounds[0][1:], bounds[1], bounds[1][1:], strict=False))
    for a, b, c, d in parts:
        if b > a and d > c:
            places = (a, b), (c, d), (c, d)
            q, k, v = (as_batch(x, *at) for x, at in zip(exact, places, strict=True))
            out, _ = attention(q, k, v, **how)
            loss = loss + (out * as_batch(grad, a, b)).sum()
            wanted_out[a:b] = out[0].detach().transpose(0, 1)
            q, k, v = (as_batch(x, *at) for x, at in zip(rows, places, strict=True))
            of_each = rounded_attention(
                q, k, v, as_batch(grad, a, b), out=as_batch(ours, a, b), **how
            )
            for x, y, (begin, end) in zip(rounded, of_each, ((a, b), *places), strict=True):
                x[begin:end] = y[0].transpose(0, 1)
    wanted = torch.autograd.grad(loss, exact)
    a, b, c, d = parts[1]
    other = [x.clone() for x in rows]
    other_grad = grad.clone()
    for x, begin, end in zip((*other, other_grad), (a, c, c, a), (b, d, d, b), strict=True):
        x[begin:end] = torch.nan
    leaked = 0
    for x, y, begin, end in zip(
        made_of(other, other_grad)[1:], made, (a, c, c), (b, d, d), strict=True
    ):
        changed = x != y
        changed[begin:end] = False
        leaked += int(changed.sum())
    pairs = zip(NAMES, (ours, *made), rounded, (wanted_out, *wanted), strict=True)
    errors = {name: (error(x, want), error(floor, want)) for name, x, floor, want in pairs}
    return {**errors, "leaked": leaked}


def as_batch(x: Tensor, begin: int, end: int) -> Tensor:
    """The packed rows of one sequence as a batch of one."""
    return x[begin:end].transpose(0, 1)[None]


def repeated(
    dtype: str, dim: int, causal: bool, deterministic: bool = False, runs: int = 50
) -> dict[str, float]:
    """How many runs differ in a bit, and how far dQ moves relative to its largest value."""
    leaves = [x.requires_grad_() for x in inputs((2, 16, 2048, dim), dtype)]
    grad = torch.randn_like(leaves[0])

    def run() -> list[Tensor]:
        out, lse = flash_attention(
            *leaves,
            causal=True if causal else None,
            impl="gluon",
            return_lse=True,
            deterministic=deterministic,
        )
        return [out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, grad)]

    first = run()
    differ = {"out": 0, "lse": 0, "dk": 0, "dv": 0}
    moved = 0.0
    for _ in range(runs):
        out, lse, dq, dk, dv = run()
        for name, x, was in (
            ("out", out, first[0]),
            ("lse", lse, first[1]),
            ("dk", dk, first[3]),
            ("dv", dv, first[4]),
        ):
            differ[name] += not torch.equal(x, was)
        moved = max(moved, float((dq.float() - first[2].float()).abs().max()))
    return {**differ, "dq_moved": moved / float(first[2].float().abs().max())}


def captured(dim: int, causal: bool) -> dict[str, float]:
    """A captured forward and backward on new data, against the same outside the graph."""
    leaves = [x.requires_grad_() for x in inputs((2, 4, 1024, dim), "bfloat16")]
    grad = torch.randn_like(leaves[0])

    def run() -> list[Tensor]:
        out = flash_attention(*leaves, causal=True if causal else None, impl="gluon")
        return [out.detach(), *torch.autograd.grad(out, leaves, grad)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()
    worst = {"out": 0.0, "dq": 0.0, "dk": 0.0, "dv": 0.0}
    for _ in range(3):
        with torch.no_grad():
            for x in leaves:
                x.normal_()
            grad.normal_()
        graph.replay()
        replayed = [x.clone() for x in kept]
        for name, x, right in zip(worst, replayed, run(), strict=True):
            worst[name] = max(worst[name], error(x, right.double()))
    return worst


def new_shape_in_capture(impl: str) -> str:
    """What a causal call says that meets a shape for the first time while a graph is captured.

    Where it says nothing: whose bits the replayed graph computes.
    """
    q, k, v = inputs((1, 2, 256, 64), "bfloat16")
    for each in ("gluon", "triton"):
        flash_attention(q, k, v, causal=True, impl=each)
    other = torch.randn(3, 5, 512, 64, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            out = flash_attention(other, other, other, causal=True, impl=impl)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    graph.replay()
    for each in ("triton", "gluon"):
        if torch.equal(out, flash_attention(other, other, other, causal=True, impl=each)):
            return f"captured {each}"
    return "captured neither"


def layouts(causal: bool) -> dict[str, float]:
    """Differences between views and their contiguous copies; of gradients, dQ apart, too."""
    how: dict[str, Any] = {"causal": True if causal else None, "impl": "gluon"}
    packed = torch.randn(2, 512, 3, 4, 128, device="cuda", dtype=torch.bfloat16)
    views = [x.transpose(1, 2).detach().requires_grad_() for x in packed.unbind(2)]
    plain = [x.detach().contiguous().requires_grad_() for x in views]
    out, right = flash_attention(*views, **how), flash_attention(*plain, **how)
    grad = torch.randn_like(right)
    found = {"out": float((out - right).abs().max())}
    of_view = torch.autograd.grad(out, views, grad, retain_graph=True)
    of_plain = torch.autograd.grad(right, plain, grad, retain_graph=True)
    for name, x, y in zip(("dq", "dk", "dv"), of_view, of_plain, strict=True):
        found[name] = error(x, y.double())
    expanded = torch.autograd.grad(right.sum(), plain, retain_graph=True)
    ones = torch.autograd.grad(right, plain, torch.ones_like(right), retain_graph=True)
    found["expanded gradient"] = max(
        error(x, y.double()) for x, y in zip(expanded, ones, strict=True)
    )
    shifted = torch.randn(2, 4, 512, 136, device="cuda", dtype=torch.bfloat16)[..., 4:132]
    found["odd address"] = float(
        (
            flash_attention(shifted, *plain[1:], **how)
            - flash_attention(shifted.contiguous(), *plain[1:], **how)
        )
        .abs()
        .max()
    )
    return found


def lse_gradient(dim: int, causal: bool) -> list[float]:
    """Errors of the gradients of q and k where the loss is made from output and LSE."""
    qkv = inputs((2, 3, 256, dim), "bfloat16")
    leaves = [x.requires_grad_() for x in qkv]
    exact = [x.detach().double().requires_grad_() for x in qkv]
    out, lse = flash_attention(
        *leaves, causal=True if causal else None, impl="gluon", return_lse=True
    )
    right, right_lse = truth(exact[0], exact[1], exact[2], causal, dim**-0.5)
    of_lse, of_out = torch.randn_like(lse), torch.randn_like(out)
    ours = torch.autograd.grad([out, lse], leaves, [of_out, of_lse])
    wanted = torch.autograd.grad([right, right_lse], exact, [of_out.double(), of_lse.double()])
    return [error(x, y) for x, y in zip(ours, wanted, strict=True)]


def poisoned(dim: int) -> bool:
    """Whether memory left full of NaN reaches a result of a ragged length."""
    q, k, v = inputs((1, 2, 200, dim), "bfloat16")
    for _ in range(5):
        poison = [torch.full((1 << 20,), float("nan"), device="cuda") for _ in range(4)]
        del poison
        for causal in (None, True):
            out, lse = flash_attention(q, k, v, causal=causal, impl="gluon", return_lse=True)
            if not (out.isfinite().all() and lse.isfinite().all()):
                return True
    return False


def other_device() -> dict[str, float]:
    """Differences between a call on cuda:1 and one on cuda:0, while cuda:0 is current."""
    qkv = inputs((2, 4, 512, 128), "bfloat16")
    grad = torch.randn_like(qkv[0])
    results = []
    for device in ("cuda:0", "cuda:1"):
        leaves = [x.detach().to(device).requires_grad_() for x in qkv]
        out = flash_attention(*leaves, causal=True, impl="gluon")
        grads = torch.autograd.grad(out, leaves, grad.to(device))
        results.append([out.detach().cpu(), *(x.cpu() for x in grads)])
    names = ("out", "dq", "dk", "dv")
    pairs = zip(names, *results, strict=True)
    return {name: error(there, here.double()) for name, here, there in pairs}


def compiled(causal: bool) -> dict[str, Any]:
    """torch.compile(fullgraph=True) against the same outside, and the ops in its graph."""
    how: dict[str, Any] = {"causal": True if causal else None, "impl": "gluon"}
    leaves = [x.requires_grad_() for x in inputs((2, 4, 512, 64), "bfloat16")]
    grad = torch.randn_like(leaves[0])

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flash_attention(q * 2, k, v, **how) + 1

    out, right = torch.compile(run, fullgraph=True)(*leaves), run(*leaves)
    pairs = zip(
        torch.autograd.grad(out, leaves, grad),
        torch.autograd.grad(right, leaves, grad),
        strict=True,
    )
    return {
        "out": error(out.detach(), right.detach().double()),
        "grads": max(error(x, y.double()) for x, y in pairs),
    }


CHECKS = {
    each.__name__: each
    for each in (
        values,
        gradients,
        packed_gradients,
        repeated,
        captured,
        new_shape_in_capture,
        layouts,
        lse_gradient,
        poisoned,
        other_device,
        compiled,
    )
}


if __name__ == "__main__":
    torch.manual_seed(0)
    arguments = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    result = CHECKS[sys.argv[1]](**arguments)
    torch.cuda.synchronize()
    print(json.dumps(result), flush=True)
    # torch aborts now and then as the interpreter ends, where a thread of autograd ran Python
    os._exit(0)
