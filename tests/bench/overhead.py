"""What trainscope costs a launch-bound loop, beside what else one could leave switched on.

    python tests/bench/overhead.py [--pairs 20] [--steps 200] [--only NAME …] [--out FOLDER]

Every variant runs in pairs with the bare loop, in turn and in changing order, in one process; the
figure is the median of the paired ratios of time per step, with a bootstrap 95 % upper bound.
``bare`` against ``bare`` is the floor: what the method itself cannot tell from nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns

import torch
from outcome import write_result
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import trainscope as ts

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Loop = Callable[[int], None]


def make_step() -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], torch.Tensor]]:
    """A step of a 16-layer MLP of width 256: many small launches, the GPU is never the limit."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(16):
        layers += [nn.Linear(256, 256), nn.ReLU()]
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(64, 256, device=DEVICE)

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return model, optimizer, step


@contextlib.contextmanager
def bare() -> Iterator[Loop]:
    _, _, step = make_step()

    def loop(steps: int) -> None:
        for _ in range(steps):
            step()

    yield loop


@contextlib.contextmanager
def with_trainscope() -> Iterator[Loop]:
    """Everything on: ranges, hooks, armed detector, four metrics, a schedule not yet active."""
    model, optimizer, step = make_step()
    schedule = ts.Schedule(wait=10_000_000, warmup=1, active=1)
    with (
        tempfile.TemporaryDirectory() as folder,
        ts.Scope(Path(folder) / "run", schedule=schedule) as scope,
    ):
        scope.wrap(model, optimizer)

        def loop(steps: int) -> None:
            for _ in scope.steps(range(steps)):
                loss = step()
                scope.log(loss=loss, again=loss, lr=1e-3, batch=64)

        yield loop


@contextlib.contextmanager
def with_profiler() -> Iterator[Loop]:
    _, _, step = make_step()

    def loop(steps: int) -> None:
        with torch.profiler.profile():
            for _ in range(steps):
                step()

    yield loop


class _Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def with_dispatch_mode() -> Iterator[Loop]:
    _, _, step = make_step()

    def loop(steps: int) -> None:
        with _Nothing():
            for _ in range(steps):
                step()

    yield loop


@contextlib.contextmanager
def with_lightning_profiler() -> Iterator[Loop]:
    """Lightning's SimpleProfiler around the same four parts, as its Trainer calls it."""
    from lightning.pytorch.profilers import SimpleProfiler

    model, optimizer, _ = make_step()
    x = torch.randn(64, 256, device=DEVICE)
    profiler = SimpleProfiler()

    def loop(steps: int) -> None:
        for _ in range(steps):
            with profiler.profile("run_training_batch"):
                with profiler.profile("forward"):
                    loss = model(x).square().mean()
                with profiler.profile("backward"):
                    loss.backward()
                with profiler.profile("optimizer_step"):
                    optimizer.step()
                with profiler.profile("zero_grad"):
                    optimizer.zero_grad(set_to_none=True)

    yield loop


@contextlib.contextmanager
def with_traceml() -> Iterator[Loop]:
    """TraceML's step context around the same step, automatic mode, its aggregator running."""
    import traceml_ai as traceml

    with tempfile.TemporaryDirectory() as folder:
        command = "import sys; from traceml_ai.launcher.cli import main; sys.exit(main())"
        arguments = [sys.executable, "-c", command, "serve", "--logs-dir", folder]
        quiet = subprocess.DEVNULL
        aggregator = subprocess.Popen(arguments, stdout=quiet, stderr=quiet)
        try:
            time.sleep(5)
            traceml.init(mode="auto", on_missing_aggregator="raise")
            model, _, step = make_step()

            def loop(steps: int) -> None:
                for _ in range(steps):
                    with traceml.trace_step(model):
                        step()

            yield loop
        finally:
            aggregator.kill()
            aggregator.wait()


VARIANTS = {
    "bare": bare,
    "trainscope": with_trainscope,
    "no-op TorchDispatchMode": with_dispatch_mode,
    "Lightning SimpleProfiler": with_lightning_profiler,
    "torch.profiler always on": with_profiler,
    "traceml-ai": with_traceml,
}


def step_us(loop: Loop, steps: int) -> float:
    """Time per step in µs, the GPU drained before and after."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    began_ns = perf_counter_ns()
    loop(steps)
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return (perf_counter_ns() - began_ns) / steps / 1e3


def upper_bound(ratios: list[float], draws: int = 10_000) -> float:
    """Bootstrap 95 % upper bound of the median."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(0.95 * draws)]


def measure(name: str, pairs: int, steps: int) -> dict[str, object]:
    """Paired times of one variant and the bare loop; each is set up alone, then warmed up."""
    ratios, alone_us, watched_us = [], [], []
    for pair in range(pairs):
        times = {}
        order = [("alone", "bare"), ("watched", name)]
        for slot, variant in order if pair % 2 else reversed(order):
            with VARIANTS[variant]() as loop:
                loop(steps)  # long enough for the first flush, and what is made only then
                times[slot] = step_us(loop, steps)
        ratios.append(times["watched"] / times["alone"])
        alone_us.append(times["alone"])
        watched_us.append(times["watched"])
    return {
        "bare_us": statistics.median(alone_us),
        "with_us": statistics.median(watched_us),
        "ratio": statistics.median(ratios),
        "ratio_upper_95": upper_bound(ratios),
        "ratios": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: dict[str, object] = {}
    for name in options.only:
        pairs = options.pairs if name in ("bare", "trainscope") else max(options.pairs // 4, 3)
        try:
            rows[name] = row = measure(name, pairs, options.steps)
        except (ImportError, RuntimeError) as missing:
            rows[name] = {"not_measured": str(missing)}
            print(f"{name:28} not here: {missing}")
            continue
        print(
            f"{name:28} {row['bare_us']:9.1f} {row['with_us']:9.1f} µs/step  "
            f"x{row['ratio']:.4f}  (95 % bound x{row['ratio_upper_95']:.4f}, {pairs} pairs)",
            flush=True,
        )
    figures = {"pairs": options.pairs, "steps": options.steps, "variants": rows}
    print(write_result("overhead", figures, options.out))


if __name__ == "__main__":
    main()
