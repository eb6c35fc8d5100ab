"""Random calls of Gluon attention against float64: ``python gluon_random_checks.py calls JSON``.

Each call follows from its seed, kind and head_dim alone, so that one that fails is made again by
that seed. It is written to stderr before it runs: what hangs is the last that was written.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any, NamedTuple

import torch
from attention_rounded import rounded_attention
from attention_truth import attention
from torch import Tensor

from trainscope_kernels.attention import flash_attention

ODD_LENGTHS = (1, 2, 3, 17, 63, 64, 65, 127, 128, 129, 191, 256, 257, 384, 509, 640, 1021)
WINDOWS = ((0, 0), (5, -1), (64, 3), (100, 128), (500, 0), (-1, 3))
KINDS = ("full", "causal", "window", "softcap")
LIMITS = {"out": 2.0, "dq": 1.25, "dk": 1.25, "dv": 1.25}
"""Times the error of what is rounded where it must be, see attention_rounded."""
OF_SUMS = 2**-16
"""What sums in float32 and approximate exponentials may add, of the norm."""


class Drawn(NamedTuple):
    """A call: sizes, how it is laid out and scaled, and what flash_attention is told."""

    seed: int
    dtype: str
    sizes: tuple[int, int, int, int, int]
    dim: int
    heads_inside: bool
    times: float
    causal: str | None
    window: tuple[int, int] | None
    softcap: float | None
    deterministic: bool


def drawn(kind: str, dim: int, seed: int) -> Drawn:
    """The call of a seed; sizes: batch, query heads, key heads, queries, keys."""
    # compiling takes most of the time: a process has one dtype, one way of summing dQ, and grouped
    # heads or not
    process = KINDS.index(kind) + dim // 32
    dtype = ("bfloat16", "float16")[process % 2]
    draw = random.Random(f"{kind} {dim} {seed}")
    key_heads = draw.randint(1, 3)
    group = draw.choice((2, 3, 4)) if (KINDS.index(kind) + dim // 64) % 3 else 1
    queries, keys = (length(draw) for _ in range(2))
    if draw.random() < 0.4:
        keys = queries
    causal = window = softcap = None
    if kind in ("causal", "softcap"):
        causal = draw.choice(("top-left", "bottom-right"))
    if kind == "window":
        causal = draw.choice((None, "top-left", "bottom-right"))
        window = draw.choice(WINDOWS)
    if kind == "softcap":
        softcap = draw.choice((1.0, 5.0, 30.0))
    return Drawn(
        seed,
        dtype,
        (draw.randint(1, 3), key_heads * group, key_heads, queries, keys),
        dim,
        draw.random() < 0.4,
        8.0 if draw.random() < 0.25 else 1.0,
        causal,
        window,
        softcap,
        process % 4 > 1,
    )


def length(draw: random.Random) -> int:
    if draw.random() < 0.5:
        return draw.choice(ODD_LENGTHS)
    return int(2 ** draw.uniform(0, 11))


def tensor(call: Drawn, heads: int, rows: int, device: str, times: float = 1.0) -> Tensor:
    """Random values, (batch, heads, rows, dim); heads_inside: of a (batch, rows, heads, dim)."""
    batch = call.sizes[0]
    size = (batch, rows, heads) if call.heads_inside else (batch, heads, rows)
    x = (torch.randn(*size, call.dim, device=device) * times).to(getattr(torch, call.dtype))
    return x.transpose(1, 2) if call.heads_inside else x


def wrong(call: Drawn, device: str, impl: str) -> list[str]:
    """What of the call is not as near to float64 as its roundings allow, in words."""
    torch.manual_seed(call.seed)
    _, heads, key_heads, queries, keys = call.sizes
    q = tensor(call, heads, queries, device, call.times).requires_grad_()
    k, v = (tensor(call, key_heads, keys, device).requires_grad_() for _ in range(2))
    how: dict[str, Any] = {each: getattr(call, each) for each in ("causal", "window", "softcap")}
    out, lse = flash_attention(
        q, k, v, **how, impl=impl, deterministic=call.deterministic, return_lse=True
    )
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    right, right_lse = attention(exact[0], exact[1], exact[2], **how)
    of_out = tensor(call, heads, queries, device)
    seen = right_lse.isfinite()
    of_lse = torch.where(seen, torch.randn(lse.shape, device=device), 0.0)
    found = []
    if not torch.equal(lse.isfinite(), seen) or bool((out[~seen] != 0).any()):
        found.append("a row that sees no key")
    far = (lse.detach().double() - right_lse.detach()).abs()[seen]
    if far.numel() and not float(far.max()) < 2e-4:
        found.append(f"lse {float(far.max()):.2g}")
    ours = torch.autograd.grad([out, lse], [q, k, v], [of_out, of_lse])
    wanted = torch.autograd.grad(
        [right, torch.where(seen, right_lse, 0.0)], exact, [of_out.double(), of_lse.double()]
    )
    least = rounded_attention(q, k, v, of_out, of_lse, out=out, **how)
    quads = zip(LIMITS, (out, *ours), least, (right, *wanted), strict=True)
    for name, mine, rounded, want in quads:
        norm = want.detach().norm()
        error, floor = ((x.detach().double() - want.detach()).norm() for x in (mine, rounded))
        if not error <= LIMITS[name] * floor + OF_SUMS * norm:
            found.append(f"{name} {float(error / norm):.2g}, rounded {float(floor / norm):.2g}")
    return found


def calls(
    kind: str, dim: int, seeds: list[int], device: str = "cuda", impl: str = "gluon"
) -> list[Any]:
    """The calls of these seeds that are wrong, each with what is."""
    found = []
    for seed in seeds:
        call = drawn(kind, dim, seed)
        print(call, file=sys.stderr, flush=True)
        if device == "cuda":
            # memory that is allocated next and not written is NaN
            torch.full((1 << 24,), torch.nan, device=device)
        try:
            words = wrong(call, device, impl)
        except Exception as error:
            words = [f"{type(error).__name__}: {error}"[:500]]
        if words:
            found.append([str(call), words])
    return found


if __name__ == "__main__":
    result = calls(**json.loads(sys.argv[2]))
    torch.cuda.synchronize()
    print(json.dumps(result), flush=True)
    # torch aborts now and then as the interpreter ends, where a thread of autograd ran Python
    os._exit(0)
