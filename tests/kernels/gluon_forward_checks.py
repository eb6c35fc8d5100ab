"""Checks of the Gluon forward on a GPU, run as ``python gluon_forward_checks.py NAME [JSON]``.

Each is a process of its own, for what waits in the wrong phase waits for ever: see gluon_checks.py.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import attention_truth
import torch
import torch.nn.functional as F
from torch import Tensor

from trainscope_kernels.attention import flash_attention, flash_attention_varlen

RECTANGLES = [
    (1, 1), (64, 1), (3, 130), (113, 203), (128, 217), (255, 256), (384, 256), (640, 128),
    (511, 1), (129, 193), (256, 320), (300, 300), (320, 256), (1000, 1000), (700, 900),
]  # fmt: skip
WINDOWS = [
    ((0, 0), None), ((5, 0), None), ((-1, 3), None), ((100, 50), None), ((64, 64), "top-left"),
    ((200, -1), "bottom-right"),
]  # fmt: skip


def draw(heads: int, length: int, dim: int, dtype: str, times: float = 1.0) -> Tensor:
    x = torch.randn(2, heads, length, dim, device="cuda") * times
    return x.to(getattr(torch, dtype))


def error(x: Tensor, right: Tensor) -> float:
    """Relative to the norm of what is right."""
    return float((x.double() - right).norm() / right.norm().clamp_min(1e-30))


def compared(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> dict[str, Any]:
    """Our errors and torch's own, which has no softcap; how far rows that see no key are from 0."""
    out, lse = flash_attention(q, k, v, **how, impl="gluon", return_lse=True)
    right, right_lse = attention_truth.attention(q, k, v, **how)
    seen = right_lse > -math.inf
    unseen = torch.where(seen[..., None], 0, out).abs().max()
    found: dict[str, Any] = {
        "case": f"{tuple(q.shape)} {tuple(k.shape)} {how}",
        "unseen": float(unseen),
        "seen_alike": bool(((lse > -math.inf) == seen).all()),
    }
    if seen.any():
        found["lse"] = float((lse.double() - right_lse)[seen].abs().max())
        found["out"] = error(out[seen], right[seen])
    if seen.any() and how.get("softcap") is None:
        visible = attention_truth.visible(
            q.shape[2], k.shape[2], how.get("causal"), how.get("window")
        )
        torchs = F.scaled_dot_product_attention(
            q, k, v, attn_mask=visible.to(q.device), scale=how.get("scale"), enable_gqa=True
        )
        found["torchs"] = error(torchs[seen], right[seen])
    return found


def rectangles(dim: int, dtype: str) -> list[dict[str, Any]]:
    """Other numbers of keys than queries, each way of aligning them, a head for two or one."""
    return [
        compared(
            draw(4, queries, dim, dtype),
            draw(key_heads, keys, dim, dtype),
            draw(key_heads, keys, dim, dtype),
            causal=causal,
        )
        for key_heads, (queries, keys) in zip([4, 2, 1] * 5, RECTANGLES, strict=False)
        for causal in (None, "top-left", "bottom-right")
    ]


def windows(dim: int, dtype: str) -> list[dict[str, Any]]:
    return [
        compared(
            *(draw(2, length, dim, dtype) for length in (queries, keys, keys)),
            causal=causal,
            window=window,
        )
        for window, causal in WINDOWS
        for queries, keys in ((400, 400), (150, 400), (400, 150))
    ]


def caps(dim: int, dtype: str) -> list[dict[str, Any]]:
    return [
        compared(
            *(draw(2, 300, dim, dtype, times) for times in (6.0, 1.0, 1.0)),
            causal=causal,
            window=window,
            softcap=softcap,
        )
        for softcap in (1.0, 30.0)
        for causal, window in ((None, None), ("top-left", None), (None, (100, 20)))
    ]


def packed(dim: int, dtype: str) -> list[dict[str, Any]]:
    """Packed sequences, every second one and the rows behind the last of NaN and inf."""
    found = []
    of_q = [130, 64, 0, 1, 200, 7, 300, 129]
    of_k = [200, 64, 9, 150, 0, 3, 257, 130]
    behind = 50
    for causal, window, softcap in (
        (None, None, None),
        ("bottom-right", None, None),
        ("top-left", None, 20.0),
        (None, (70, 9), None),
    ):
        heads = {"q": 4, "k": 2, "v": 2}
        lengths = {"q": of_q, "k": of_k, "v": of_k}
        rows = {
            name: torch.randn(sum(lengths[name]) + behind, heads[name], dim, device="cuda").to(
                getattr(torch, dtype)
            )
            for name in heads
        }
        for name, x in rows.items():
            parts = x.split([*lengths[name], behind])
            for part in (*parts[1::2], parts[-1]):
                part.fill_(math.inf if name == "v" else math.nan)
        cu_q, cu_k = (
            torch.tensor([0, *each], device="cuda").cumsum(0).to(torch.int32)
            for each in (of_q, of_k)
        )
        how: dict[str, Any] = {"causal": causal, "window": window, "softcap": softcap}
        out, lse = flash_attention_varlen(
            rows["q"], rows["k"], rows["v"], cu_q, cu_k, **how, impl="gluon", return_lse=True
        )
        outs, lses = out.split([*of_q, behind]), lse.split([*of_q, behind], 1)
        worst = {"out": 0.0, "lse": 0.0, "unseen": float(outs[-1].abs().max())}
        alike = bool((lses[-1] == -math.inf).all())
        for at in range(0, len(of_q), 2):
            q, k, v = (
                x.split([*lengths[name], behind])[at].transpose(0, 1)[None]
                for name, x in rows.items()
            )
            if q.numel() == 0:
                continue
            right, right_lse = attention_truth.attention(q, k, v, **how)
            seen = right_lse > -math.inf
            own, own_lse = outs[at].transpose(0, 1)[None], lses[at][None]
            alike &= bool(((own_lse > -math.inf) == seen).all())
            worst["unseen"] = max(
                worst["unseen"], float(torch.where(seen[..., None], 0, own).abs().max())
            )
            if seen.any():
                worst["out"] = max(worst["out"], error(own[seen], right[seen]))
                apart = float((own_lse.double() - right_lse)[seen].abs().max())
                worst["lse"] = max(worst["lse"], apart)
        found.append({"case": f"packed {how}", "seen_alike": alike, **worst})
    return found


def same_bits(dim: int, causal: bool, window: tuple[int, int] | None) -> int:
    """How many of 200 runs differ in a bit from the first."""
    q = torch.randn(2, 16, 2048, dim, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(2, 4, 2048, dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def run() -> tuple[Tensor, Tensor]:
        return flash_attention(
            q, k, v, causal=True if causal else None, window=window, impl="gluon", return_lse=True
        )

    out, lse = run()
    runs = (run() for _ in range(200))
    return sum(not (torch.equal(out, again) and torch.equal(lse, other)) for again, other in runs)


def replayed(dim: int, causal: bool) -> bool:
    """Whether a captured call gives on new data what a call outside the graph gives."""
    qkv = [torch.randn(2, 4, 600, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3)]

    def run() -> Tensor:
        return flash_attention(*qkv, causal=True if causal else None, impl="gluon")

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()
    alike = True
    for _ in range(3):
        for x in qkv:
            x.normal_()
        graph.replay()
        alike &= torch.equal(kept.clone(), run())
    return alike


CHECKS = {each.__name__: each for each in (rectangles, windows, caps, packed, same_bits, replayed)}


if __name__ == "__main__":
    torch.manual_seed(0)
    arguments = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    result = CHECKS[sys.argv[1]](**arguments)
    torch.cuda.synchronize()
    print(json.dumps(result))
