"""What trainscope costs a launch-bound loop, beside what else one could leave switched on.

    python tests/bench/overhead.py [--pairs 20] [--steps 200] [--only NAME …] [--out FOLDER]

One loop, its model and optimizer made once, runs in blocks: bare, watched, bare, and so on. A pair
is ``--steps`` watched steps and as many bare ones before them and behind them, cut into short
blocks in turn, because the host drifts by more within a second than what is looked for; the ratio
of a pair is its watched time over the mean of the two bare ones, so that a steady drift falls out.
``bare`` in the table is the bare steps behind over those before, of the same pairs: what the method
cannot tell from nothing. Figures are the median over the pairs and a bootstrap 95 % upper bound.

trainscope's worker does its work each half second. The blocks begin at times spread evenly over
that, so that it falls into them as often as into a long run.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from time import perf_counter_ns

import torch
from bootstrap import bounds_of_median
from outcome import write_result
from overhead_variants import DEVICE, VARIANTS, Loop, Parts, Variant, bare

HOW = (
    "half of the bare ones before and half behind, each warmed up; trainscope and what costs as "
    "little in short blocks in turn, the worker's flushes spread over them"
)
WARM_S = 0.05
"""Each block begins warm; longer than what is made at the first steps of a scope takes."""


def timed_ns(loop: Loop, steps: int) -> int:
    """Time of so many steps, the GPU drained before and after."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    began_ns = perf_counter_ns()
    loop(steps)
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter_ns() - began_ns


def warmed_ns(loop: Loop, steps: int, warm_s: float) -> int:
    """The same after warming up for so long."""
    until_s = time.monotonic() + warm_s
    while time.monotonic() < until_s:
        loop(5)
    return timed_ns(loop, steps)


def pair_us(variant: Variant, parts: Parts, steps: int, chance: random.Random) -> list[float]:
    """Time per step of one pair in µs: bare before, watched, bare behind."""
    total_ns = [0, 0, 0]
    block = steps // variant.rounds
    turns = list(range(variant.rounds))
    chance.shuffle(turns)
    for turn in turns:
        with bare(parts) as loop:
            total_ns[0] += warmed_ns(loop, block, WARM_S)
        with variant.switched_on(parts) as loop:
            part = (turn + chance.random()) / variant.rounds
            total_ns[1] += warmed_ns(loop, block, WARM_S + part * variant.every_s)
        with bare(parts) as loop:
            total_ns[2] += warmed_ns(loop, block, WARM_S)
    return [ns / (block * variant.rounds) / 1e3 for ns in total_ns]


def row(bare_us: list[float], with_us: list[float]) -> dict[str, object]:
    """The figures of one line of the table."""
    ratios = [watched / alone for watched, alone in zip(with_us, bare_us, strict=True)]
    return {
        "bare_us": statistics.median(bare_us),
        "with_us": statistics.median(with_us),
        "ratio": statistics.median(ratios),
        "ratio_upper_95": bounds_of_median(ratios, 0.95)[0],
        "ratios": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    parts, chance = Parts(), random.Random(0)
    rows: dict[str, object] = {}

    def show(name: str, found: dict[str, object], pairs: int) -> None:
        rows[name] = found
        print(
            f"{name:32} {found['bare_us']:9.1f} {found['with_us']:9.1f} µs/step  "
            f"x{found['ratio']:.4f}  (95 % bound x{found['ratio_upper_95']:.4f}, {pairs} pairs)",
            flush=True,
        )

    for name in options.only:
        small = VARIANTS[name].rounds > 1
        pairs = options.pairs if small else max(options.pairs // 4, 3)
        try:
            times = [pair_us(VARIANTS[name], parts, options.steps, chance) for _ in range(pairs)]
        except (ImportError, RuntimeError) as missing:
            rows[name] = {"not_measured": str(missing)}
            print(f"{name:32} not here: {missing}")
            continue
        before, watched, behind = map(list, zip(*times, strict=True))
        if name == "trainscope":
            show("bare", row(before, behind), pairs)
        around = [(one + other) / 2 for one, other in zip(before, behind, strict=True)]
        show(name, row(around, watched), pairs)
        figures = {"pairs": options.pairs, "steps": options.steps, "how": HOW, "variants": rows}
        print(write_result("overhead", figures, options.out), flush=True)


if __name__ == "__main__":
    main()
