"""What a captured window leaves behind: the step time after it over that before it.

    python tests/bench/after_window.py [--rounds 3] [--out FOLDER]

torch.profiler attaches CUPTI to the process, and by itself leaves it there, where every launch pays
for it. Each round runs the launch-bound loop of ``overhead_variants`` in a process of its own for
each variant: with trainscope's window, with the same where CUPTI is made to stay, and with plain
torch.profiler. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from outcome import write_result
from overhead_variants import Parts

import trainscope as ts

STAYS = {"TEARDOWN_CUPTI": "0"}
VARIANTS: dict[str, dict[str, str]] = {
    "trainscope": {},
    "trainscope, CUPTI made to stay": STAYS,
    "torch.profiler": {},
}
STEPS, BLOCKS, ACTIVE = 60, 7, 4


def step_ms(parts: Parts) -> float:
    """The median of a few blocks, the GPU drained around each."""
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        began_s = perf_counter()
        for _ in range(STEPS):
            parts.step()
        torch.cuda.synchronize()
        times.append((perf_counter() - began_s) / STEPS * 1e3)
    return statistics.median(times)


def capture_with_trainscope(parts: Parts) -> None:
    """A window, and then no scope any more."""
    with tempfile.TemporaryDirectory() as folder:
        schedule = ts.Schedule(wait=2, warmup=1, active=ACTIVE)
        with ts.Scope(Path(folder) / "run", schedule=schedule) as scope:
            for _ in scope.steps(range(3 + ACTIVE)):
                parts.step()
        assert (Path(folder) / "run" / "rank0" / "trace-000.json.gz").exists()


def capture_with_torch(parts: Parts) -> None:
    """The same number of steps under torch.profiler."""
    with torch.profiler.profile():
        for _ in range(ACTIVE):
            parts.step()


def one(name: str) -> dict[str, float]:
    """Step time before and after, in this process."""
    parts = Parts()
    for _ in range(100):
        parts.step()
    before_ms = step_ms(parts)
    capture = capture_with_torch if name == "torch.profiler" else capture_with_trainscope
    capture(parts)
    for _ in range(20):
        parts.step()
    after_ms = step_ms(parts)
    return {"before_ms": before_ms, "after_ms": after_ms, "ratio": after_ms / before_ms}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(options.one)))
        return
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for _ in range(options.rounds):
        for name, more in VARIANTS.items():
            command = [sys.executable, __file__, "--one", name]
            environment = {k: v for k, v in os.environ.items() if k not in STAYS} | more
            ended = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env=environment
            )
            rows[name].append(json.loads(ended.stdout.splitlines()[-1]))
    for name, found in rows.items():
        ratios = [row["ratio"] for row in found]
        print(
            f"{name:32} x{statistics.median(ratios):.3f}  ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    print(write_result("after_window", {"rounds": options.rounds, "variants": rows}, options.out))


if __name__ == "__main__":
    main()
