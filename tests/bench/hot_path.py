"""CPU time of the pieces that run inside the user's loop, one by one.

    python tests/bench/hot_path.py [--out FOLDER]

A step's cost is taken with nothing else in it: begin, five ranges, the armed detector's check,
one ``log`` of four values, end.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

import torch
from outcome import write_result

import trainscope as ts

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LOADED_S = 1.2
"""By then the worker has loaded the kernel that a log call launches."""


def per_call_us(call: Callable[[], None], calls: int, rounds: int = 15) -> dict[str, float]:
    """Median, p10 and p90 over rounds of the mean time of one call, in µs."""
    call()
    means = []
    for _ in range(rounds):
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        began_ns = perf_counter_ns()
        for _ in range(calls):
            call()
        means.append((perf_counter_ns() - began_ns) / calls / 1e3)
    cuts = statistics.quantiles(means, n=10, method="inclusive")
    return {"median_us": statistics.median(means), "p10_us": cuts[0], "p90_us": cuts[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    loss = torch.ones((), device=DEVICE)
    with tempfile.TemporaryDirectory() as folder, ts.Scope(Path(folder) / "run") as scope:

        def one_range() -> None:
            with scope.range("tokenize"):
                pass

        def step_with_numbers() -> None:
            with scope.step():
                for name in ("data", "h2d", "forward", "backward", "optimizer"):
                    with scope.phase(name):
                        pass
                scope.log(loss=1.0, norm=2.0, lr=1e-3, batch=64)

        def step_with_tensors() -> None:
            with scope.step():
                for name in ("data", "h2d", "forward", "backward", "optimizer"):
                    with scope.phase(name):
                        pass
                scope.log(loss=loss, norm=loss, lr=1e-3, batch=64)

        one_dtype = {f"m{i}": torch.full((), float(i), device=DEVICE) for i in range(4)}
        mixed = {
            "x0": loss,
            "x1": loss.bfloat16(),
            "x2": loss.long(),
            "x3": loss.double(),
        }
        slots, sources = list(torch.zeros(4, device=DEVICE).unbind()), list(one_dtype.values())

        def log_one_dtype() -> None:
            scope.log(one_dtype)

        def log_mixed() -> None:
            scope.log(mixed)

        def copy_alone() -> None:
            torch._foreach_copy_(slots, sources)

        def item() -> None:
            loss.item()

        with scope.step():
            log_one_dtype()
            time.sleep(LOADED_S)
            for _ in range(6000):  # the views into the rows are made once
                log_one_dtype()
                log_mixed()
        rows = {
            "a range, no tool attached": per_call_us(one_range, 2000),
            "a step: five ranges, detector, four numbers": per_call_us(step_with_numbers, 200),
            "the same, two of them GPU tensors": per_call_us(step_with_tensors, 200),
            "log of four GPU tensors, one dtype": per_call_us(log_one_dtype, 200),
            "log of four GPU tensors, four dtypes": per_call_us(log_mixed, 200),
            "torch's own fused copy of four tensors": per_call_us(copy_alone, 200),
            "a recorded .item(), GPU idle": per_call_us(item, 200),
        }
    rows["a bare .item(), GPU idle"] = per_call_us(item, 200)
    with ts.Scope(enabled=False) as off:

        def disabled() -> None:
            with off.step(), off.range("tokenize"):
                off.log(loss=loss)

        rows["a disabled scope: step, range and log"] = per_call_us(disabled, 2000)
    for name, row in rows.items():
        print(f"{name:46} {row['median_us']:8.2f} µs  ({row['p10_us']:.2f} to {row['p90_us']:.2f})")
    print(write_result("hot_path", {"rows": rows}, options.out))


if __name__ == "__main__":
    main()
