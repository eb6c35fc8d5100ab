"""CPU time of trainscope's pieces where they run: between the calls of a training step.

    python tests/bench/in_the_loop.py [--rounds N] [--seconds S] [--out FOLDER]

``hot_path.py`` calls each piece again and again, with its code and data in the nearest cache. In
a loop they come once a step, after some milliseconds of torch, and have to be fetched from far
away: that is what they cost there. Each is timed once after a bare step, in random order, less
what a function that does nothing takes. Then the loop runs with everything on: what it costs in
each step, and how much CPU time trainscope's own threads take beside it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter_ns

import torch
from bootstrap import bounds_of_median
from outcome import write_result
from overhead_variants import DEVICE, Parts
from torch import nn

import trainscope as ts

LOADED_S = 1.2
"""By then the worker has loaded what a log call launches."""


class Nothing(nn.Module):
    """A model that costs nothing but its call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class NoSteps(torch.optim.Optimizer):
    """An optimizer that costs nothing but the call of its step."""

    def __init__(self, params: list[torch.Tensor]) -> None:
        super().__init__(params, {})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Do nothing."""


def timed_us(
    calls: Mapping[str, Callable[[], object]], step: Callable[[], object], rounds: int
) -> dict[str, float]:
    """Median time of each call after a step, in µs; ``nothing``, one of them, is taken off."""
    times_us: dict[str, list[float]] = {name: [] for name in calls}
    chance, order = random.Random(0), list(calls)
    for _ in range(rounds):
        chance.shuffle(order)
        for name in order:
            step()
            began_ns = perf_counter_ns()
            calls[name]()
            times_us[name].append((perf_counter_ns() - began_ns) / 1e3)
    medians = {name: statistics.median(found) for name, found in times_us.items()}
    return {name: found - medians["nothing"] for name, found in medians.items()}


def own_threads_ns() -> int:
    """CPU time that trainscope's threads have taken so far."""
    return sum(
        time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.name.startswith("trainscope") and thread.ident is not None
    )


def in_turn(
    bare: Callable[[], None], watched: Callable[[], None], seconds: float
) -> dict[str, float]:
    """How much longer a watched step is than the bare ones before and behind it, in µs."""
    extra_us: list[float] = []
    bare_us: list[float] = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        times_us = []
        for step in (bare, watched, bare):
            began_ns = perf_counter_ns()
            step()
            times_us.append((perf_counter_ns() - began_ns) / 1e3)
        extra_us.append(times_us[1] - (times_us[0] + times_us[2]) / 2)
        bare_us += times_us[::2]
    low, high = bounds_of_median(extra_us, 0.05, 0.95)
    return {
        "bare_us": statistics.median(bare_us),
        "extra_us": statistics.median(extra_us),
        "extra_us_lower_95": low,
        "extra_us_upper_95": high,
        "steps": len(extra_us),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    parts, bare = Parts(), Parts()
    loss = torch.ones((), requires_grad=True, device=DEVICE)
    model, optimizer = Nothing(), NoSteps([loss])
    hooked = {
        "nothing": lambda: None,
        "forward": lambda: model(loss),
        "optimizer": lambda: optimizer.step(),
    }
    unhooked_us = timed_us(hooked, bare.step, options.rounds)
    with tempfile.TemporaryDirectory() as folder, ts.Scope(Path(folder) / "run") as scope:
        turns = iter(scope.steps(iter(int, 1)))
        next(turns)
        scope.log(loss=loss, again=loss, lr=1e-3, batch=64)
        time.sleep(LOADED_S)

        def one_range() -> None:
            with scope.range("tokenize"):
                pass

        rows = timed_us(
            {
                "nothing": lambda: None,
                "a turn of scope.steps": lambda: next(turns),
                "a range": one_range,
                "log of two tensors and two numbers": lambda: scope.log(
                    loss=loss, again=loss, lr=1e-3, batch=64
                ),
                "log of four numbers": lambda: scope.log(a=1.0, b=2.0, c=3.0, d=4.0),
            },
            bare.step,
            options.rounds,
        )
        scope.wrap(model, optimizer)
        for name, found_us in timed_us(hooked, bare.step, options.rounds).items():
            rows[f"the hooks of {name}"] = found_us - unhooked_us[name]
        del rows["nothing"], rows["the hooks of nothing"]
        scope.wrap(parts.model, parts.optimizer)

        def watched() -> None:
            next(turns)
            made = parts.step()
            scope.log(loss=made, again=made, lr=1e-3, batch=64)

        hooks = scope._session.hooks.lulls  # type: ignore[union-attr]

        def unwatched() -> None:
            hooks.active = False  # a backward is seen whatever it is of
            bare.step()
            hooks.active = True

        steps, threads_ns = 0, own_threads_ns()
        until_s = time.monotonic() + options.seconds
        while time.monotonic() < until_s:
            watched()
            steps += 1
        rows["own threads, CPU time a step"] = (own_threads_ns() - threads_ns) / steps / 1e3
        alternate = in_turn(unwatched, watched, options.seconds)
        turns.close()  # type: ignore[attr-defined]
    for name, found_us in rows.items():
        print(f"{name:40} {found_us:8.1f} µs")
    print(f"steps in turn: {alternate}")
    figures = {"rounds": options.rounds, "rows": rows, "steps_in_turn": alternate}
    print(write_result("in_the_loop", figures, options.out))


if __name__ == "__main__":
    main()
