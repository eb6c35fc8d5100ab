"""Times the Gluon attention kernels and cuDNN's in turn; beside them what else there is.

    python kernels/bench/gluon_vs_cudnn.py [--runs 3] [--seconds 300] [--rounds 20] [-o FILE]
        [--only SHAPE …] [--beside fa2 flex triton]

Beside stand FlashAttention 2 through SDPA, FlexAttention compiled (at one length, its block mask
made before the clock starts; blank where it does not compile) and our Triton kernels, timed in the
first of the runs and in fewer rounds. Needs a Hopper GPU. In each round every contestant is timed
once, in an order that changes, so that a card that throttles or warms up does so for all of them. A
ratio is the median over the rounds of cuDNN's time by ours: above 1 we are faster; of several runs
through the table it is their median. The backward's time has all of its launches in it, with the
zeroing of workspaces. A group of calls is launched while the GPU works on something else, so that
no CPU time is in it. Shapes are batch x heads (/ key heads) x length x head_dim; the published
table's come first, and what does not fit in the seconds is left out.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from attention_contestants import backend_of, backwards, forwards, once
from torch import Tensor


class Shape(NamedTuple):
    """Of q; k and v have key_heads. passes: what is timed."""

    batch: int
    heads: int
    length: int
    dim: int
    key_heads: int = 0
    passes: tuple[str, ...] = ("forward", "backward")

    def __str__(self) -> str:
        heads = f"{self.heads}/{self.key_heads}" if self.key_heads else str(self.heads)
        return f"{self.batch}x{heads}x{self.length}x{self.dim}"


SHAPES = [
    Shape(8, 32, 2048, 128),
    Shape(4, 32, 4096, 128),
    Shape(2, 32, 8192, 128),
    Shape(1, 32, 16384, 128),
    Shape(8, 32, 2048, 64),
    Shape(4, 32, 4096, 64),
    Shape(2, 32, 8192, 64),
    Shape(1, 32, 16384, 64),
    Shape(2, 64, 4096, 128, key_heads=8),
    Shape(4, 16, 4096, 256, passes=("forward",)),
    Shape(32, 32, 512, 128),
    Shape(16, 32, 1024, 128),
    Shape(32, 32, 512, 64),
    Shape(16, 32, 1024, 64),
]
COMPARED = ("gluon", "cudnn")
BESIDE = ("fa2", "flex", "triton")
NAMES = COMPARED + BESIDE
BESIDE_ROUNDS = 5
"""Each is half as fast, and would take most of the time."""
FLEX_LENGTH = 4096
"""Each shape and pass is compiled anew, which takes many times as long as to time it."""
GROUP_MS = 6.0
"""Calls are timed in groups at least so long, so that the gaps between launches do not count."""
WARM_UP_SECONDS = 4.0
RESULTS = Path(__file__).parent / "results" / "gluon_vs_cudnn.json"


def main() -> None:
    """Print a line a cell and write them all."""
    parser = argparse.ArgumentParser(description="Gluon and cuDNN in turn")
    parser.add_argument("--runs", type=int, default=3, help="times through the whole table")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[], help="shapes, as the table writes them")
    parser.add_argument("--beside", nargs="*", default=list(BESIDE), choices=BESIDE)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    torch.manual_seed(0)
    warm_up()
    found: dict[tuple[str, bool, str], list[dict[str, Any]]] = {}
    left_out = 0
    print("TFLOP/s             " + "".join(f"{name:>9}" for name in NAMES) + "   cudnn/gluon")
    for run in range(options.runs):
        names = (*COMPARED, *options.beside) if run == 0 else COMPARED
        for shape in [each for each in SHAPES if not options.only or str(each) in options.only]:
            for causal in (False, True):
                if time.monotonic() > end:
                    left_out += len(shape.passes)
                    continue
                for row in cells(shape, causal, options.rounds, names_for(shape, names)):
                    found.setdefault((row["shape"], causal, row["pass"]), []).append(row)
                    print(line(row), flush=True)
                write(options.output, options.rounds, found)
    if left_out:
        print(f"{left_out} cells left out: more --seconds for them")
    print(over_all([of_runs(each) for each in found.values()]))


def names_for(shape: Shape, names: tuple[str, ...]) -> tuple[str, ...]:
    """Who is timed at this shape."""
    return tuple(each for each in names if each != "flex" or shape.length == FLEX_LENGTH)


def write(output: Path, rounds: int, found: dict[tuple[str, bool, str], list[Any]]) -> None:
    """The file, written anew after every shape: what is done when time runs out is kept."""
    rows = [of_runs(each) for each in found.values()]
    record = {**environment(), "rounds": rounds, "summary": over_all(rows), "cells": rows}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")


def of_runs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One cell from those of several runs: medians, the range over all, and each run's ratio."""
    ratios = [row["ratio"] for row in rows]
    found = {name: [row["tflops"][name] for row in rows if name in row["tflops"]] for name in NAMES}
    speeds = {name: statistics.median(each) for name, each in found.items() if each}
    return {
        **rows[0],
        "tflops": speeds,
        "ratio": round(statistics.median(ratios), 4),
        "ratio_min": min(row["ratio_min"] for row in rows),
        "ratio_max": max(row["ratio_max"] for row in rows),
        "ratio_of_each_run": ratios,
        "relative_difference": max(row["relative_difference"] for row in rows),
    }


def warm_up() -> None:
    """Matrix products until the clock and the temperature are those of sustained work."""
    end = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < end:
        for _ in range(20):
            torch.mm(cover(), cover())
        torch.cuda.synchronize()


def cells(
    shape: Shape, causal: bool, rounds: int, names: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """The passes of one shape."""
    batch, heads, length, dim = shape[:4]
    key_heads = shape.key_heads or heads
    flops = 4 * batch * heads * length * length * dim / (2 if causal else 1)
    sizes = [(batch, each, length, dim) for each in (heads, key_heads, key_heads)]
    qkv = [torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in sizes]
    jobs = {"forward": (lambda: forwards(names, qkv, causal), flops)}
    jobs["backward"] = (lambda: backwards(names, qkv, causal), 2.5 * flops)
    for what in shape.passes:
        make, work = jobs[what]
        calls = make()
        differ = apart(*(as_tensors(once(name, calls[name])) for name in COMPARED))
        times = in_turn(calls, rounds)
        ratios = [
            theirs / ours for theirs, ours in zip(times["cudnn"], times["gluon"], strict=True)
        ]
        yield {
            "shape": str(shape),
            "length": shape.length,
            "causal": causal,
            "pass": what,
            "tflops": {
                name: round(work / statistics.median(each) / 1e9, 1) for name, each in times.items()
            },
            "ratio": round(statistics.median(ratios), 4),
            "ratio_min": round(min(ratios), 4),
            "ratio_max": round(max(ratios), 4),
            "relative_difference": differ,
        }


def as_tensors(result: Any) -> list[Tensor]:
    """An output, or three gradients."""
    return [result] if isinstance(result, Tensor) else list(result)


def in_turn(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds a call of each contestant in each round."""
    repeats = {name: repeats_of(name, call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        names = [name for name in calls if name in COMPARED or turn < BESIDE_ROUNDS]
        names = names[turn % len(names) :] + names[: turn % len(names)]
        for name in names if turn % 4 < 2 else reversed(names):
            times[name].append(timed(name, calls[name], repeats[name]))
    return times


def repeats_of(name: str, call: Callable[[], Any]) -> int:
    """Calls that take GROUP_MS together; the first ones also compile and warm up."""
    timed(name, call, 3)
    return max(2, round(GROUP_MS / timed(name, call, 3) + 0.5))


def timed(name: str, call: Callable[[], Any], repeats: int) -> float:
    """Milliseconds a call, over a group of calls that the GPU does not have to wait for."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with backend_of(name):
        torch.cuda.synchronize()
        torch.mm(cover(), cover())
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


@functools.cache
def cover() -> Tensor:
    """What a product of takes about 1.4 ms: longer than it takes to launch a call."""
    return torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)


def apart(ours: Any, theirs: Any) -> float:
    """The largest relative difference, in the norm: what is timed must be the same thing."""
    return max(
        float((x.detach().float() - y.detach().float()).norm() / y.detach().float().norm())
        for x, y in zip(ours, theirs, strict=True)
    )


def line(row: dict[str, Any]) -> str:
    """A row of the table that is printed."""
    mask = "causal" if row["causal"] else "full"
    found = row["tflops"]
    speeds = "".join(f"{found[name]:9.0f}" if name in found else " " * 9 for name in NAMES)
    spread = f"[{row['ratio_min']:.3f} {row['ratio_max']:.3f}]"
    what = f"{row['shape']:<16}{mask:<7}{row['pass']:<9}"
    return f"{what}{speeds}   {row['ratio']:.3f} {spread}  differ {row['relative_difference']:.1e}"


def over_all(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What the table promises: the mean of the ratios, and the least of them."""
    if not rows:
        return {}
    ratios = [row["ratio"] for row in rows]
    long = [row["ratio"] for row in rows if row["length"] >= 2048]
    return {
        "mean_ratio": round(statistics.mean(ratios), 4),
        "least_ratio": min(ratios),
        **({"least_ratio_from_2048": min(long)} if long else {}),
    }


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
