"""Times the Gluon attention kernels and cuDNN's in turn, FlashAttention 2 and our Triton beside.

    python kernels/bench/gluon_vs_cudnn.py [--seconds 300] [--rounds 20] [-o FILE]

Needs a Hopper GPU. In each round every contestant is timed once, in an order that changes, so that
a card that throttles or warms up does so for all of them. A ratio is the median over the rounds of
cuDNN's time by ours: above 1 we are faster. The backward's time has all of its launches in it, with
the zeroing of workspaces. Shapes are batch x heads x length x head_dim; the published table's come
first, and what does not fit in the seconds is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainscope_kernels.attention import flash_attention

SHAPES = [
    (8, 32, 2048, 128),
    (4, 32, 4096, 128),
    (2, 32, 8192, 128),
    (1, 32, 16384, 128),
    (4, 32, 4096, 64),
    (32, 32, 512, 128),
    (16, 32, 1024, 128),
    (32, 32, 512, 64),
    (16, 32, 1024, 64),
    (8, 32, 2048, 64),
    (2, 32, 8192, 64),
    (1, 32, 16384, 64),
]
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
NAMES = ("gluon", "cudnn", "fa2", "triton")
BESIDE_ROUNDS = 5
"""Of those that only stand beside: each is half as fast, and would take most of the time."""
GROUP_MS = 6.0
"""Calls are timed in groups at least so long, so that the gaps between launches do not count."""
WARM_UP_SECONDS = 4.0
RESULTS = Path(__file__).parent / "results" / "gluon_vs_cudnn.json"


def main() -> None:
    """Print a line a cell and write them all."""
    parser = argparse.ArgumentParser(description="Gluon and cuDNN in turn")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    torch.manual_seed(0)
    warm_up()
    rows: list[dict[str, Any]] = []
    left_out = 0
    print("TFLOP/s            " + "".join(f"{name:>9}" for name in NAMES) + "   cudnn/gluon")
    for shape in SHAPES:
        for causal in (False, True):
            if time.monotonic() > end:
                left_out += 2
                continue
            for row in cells(shape, causal, options.rounds):
                rows.append(row)
                print(line(row), flush=True)
    if left_out:
        print(f"{left_out} cells left out: more --seconds for them")
    summary = over_all(rows)
    print(summary)
    record = {**environment(), "rounds": options.rounds, "summary": summary, "cells": rows}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")


def warm_up() -> None:
    """Matrix products until the clock and the temperature are those of sustained work."""
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < end:
        for _ in range(20):
            torch.mm(x, x)
        torch.cuda.synchronize()


def cells(shape: tuple[int, int, int, int], causal: bool, rounds: int) -> Iterator[dict[str, Any]]:
    """The forward and then the backward of one shape."""
    batch, heads, length, dim = shape
    flops = 4 * batch * heads * length * length * dim / (2 if causal else 1)
    qkv = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    grad = torch.randn_like(qkv[0])
    forwards = {name: forward_of(name, qkv, causal) for name in NAMES}
    leaves = {name: [x.detach().requires_grad_() for x in qkv] for name in NAMES}
    outs = {name: attention(name, leaves[name], causal) for name in NAMES}
    backwards = {
        name: lambda name=name: torch.autograd.grad(
            outs[name], leaves[name], grad, retain_graph=True
        )
        for name in NAMES
    }
    differ = {
        "forward": apart([outs["gluon"]], [outs["cudnn"]]),
        "backward": apart(backwards["gluon"](), backwards["cudnn"]()),
    }
    for what, calls, work in (
        ("forward", forwards, flops),
        ("backward", backwards, 2.5 * flops),
    ):
        times = in_turn(calls, rounds)
        ratios = [
            theirs / ours for theirs, ours in zip(times["cudnn"], times["gluon"], strict=True)
        ]
        yield {
            "shape": "x".join(map(str, shape)),
            "causal": causal,
            "pass": what,
            "tflops": {
                name: round(work / statistics.median(times[name]) / 1e9, 1) for name in NAMES
            },
            "ratio": round(statistics.median(ratios), 4),
            "ratio_min": round(min(ratios), 4),
            "ratio_max": round(max(ratios), 4),
            "relative_difference": differ[what],
        }


def backend_of(name: str) -> contextlib.AbstractContextManager[Any]:
    """In which torch's attention is the contestant's own."""
    return sdpa_kernel(BACKENDS[name]) if name in BACKENDS else contextlib.nullcontext()


def attention(name: str, qkv: list[Tensor], causal: bool) -> Tensor:
    """The output of one contestant."""
    with backend_of(name):
        return forward_of(name, qkv, causal)()


def forward_of(name: str, qkv: list[Tensor], causal: bool) -> Callable[[], Any]:
    """A call for the clock: torch's backend is chosen outside of it."""
    if name in BACKENDS:
        return lambda: F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=causal)
    return lambda: flash_attention(*qkv, causal=True if causal else None, impl=name)


def in_turn(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds a call of each contestant in each round."""
    repeats = {name: repeats_of(name, call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        names = [name for name in calls if name in ("gluon", "cudnn") or turn < BESIDE_ROUNDS]
        names = names[turn % len(names) :] + names[: turn % len(names)]
        for name in names if turn % 4 < 2 else reversed(names):
            times[name].append(timed(name, calls[name], repeats[name]))
    return times


def repeats_of(name: str, call: Callable[[], Any]) -> int:
    """Calls that take GROUP_MS together; the first ones also compile and warm up."""
    timed(name, call, 3)
    return max(2, round(GROUP_MS / timed(name, call, 3) + 0.5))


def timed(name: str, call: Callable[[], Any], repeats: int) -> float:
    """Milliseconds a call, over a group of calls that start on an idle GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with backend_of(name):
        torch.cuda.synchronize()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


def apart(ours: Any, theirs: Any) -> float:
    """The largest relative difference, in the norm: what is timed must be the same thing."""
    return max(
        float((x.detach().float() - y.detach().float()).norm() / y.detach().float().norm())
        for x, y in zip(ours, theirs, strict=True)
    )


def line(row: dict[str, Any]) -> str:
    """A row of the table that is printed."""
    mask = "causal" if row["causal"] else "full"
    speeds = "".join(f"{row['tflops'][name]:9.0f}" for name in NAMES)
    spread = f"[{row['ratio_min']:.3f} {row['ratio_max']:.3f}]"
    what = f"{row['shape']:<15}{mask:<7}{row['pass']:<9}"
    return f"{what}{speeds}   {row['ratio']:.3f} {spread}  differ {row['relative_difference']:.1e}"


def over_all(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What the table promises: the mean of the ratios, and the least of them."""
    ratios = [row["ratio"] for row in rows]
    if not ratios:
        return {}
    return {"mean_ratio": round(statistics.mean(ratios), 4), "least_ratio": min(ratios)}


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "date": datetime.date.today().isoformat(),
    }


if __name__ == "__main__":
    main()
