"""What ``overhead.py`` compares: one training loop, bare or with something switched on.

Each is a context manager of the parts of the loop, made once, and gives what runs so many steps.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import trainscope as ts

__all__ = ["DEVICE", "FLUSH_S", "VARIANTS", "Loop", "Parts"]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FLUSH_S = 0.5
"""How often trainscope's worker brings values to the files: time that a block may or may not hold.
"""
Loop = Callable[[int], None]


class Parts:
    """A 16-layer MLP of width 256: many small launches, the GPU is never the limit."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for _ in range(16):
            layers += [nn.Linear(256, 256), nn.ReLU()]
        self.model = nn.Sequential(*layers).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.x = torch.randn(64, 256, device=DEVICE)

    def step(self) -> torch.Tensor:
        """One training step."""
        loss = self.model(self.x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss


@contextlib.contextmanager
def bare(parts: Parts) -> Iterator[Loop]:
    """Nothing."""

    def loop(steps: int) -> None:
        for _ in range(steps):
            parts.step()

    yield loop


@contextlib.contextmanager
def with_trainscope(parts: Parts, every: int = 1) -> Iterator[Loop]:
    """Everything on: ranges, hooks, armed detector, four metrics every so many steps, a schedule
    not yet active.
    """
    schedule = ts.Schedule(wait=10_000_000, warmup=1, active=1)
    with (
        tempfile.TemporaryDirectory() as folder,
        ts.Scope(Path(folder) / "run", schedule=schedule) as scope,
    ):
        scope.wrap(parts.model, parts.optimizer)

        def loop(steps: int) -> None:
            for number in scope.steps(range(steps)):
                loss = parts.step()
                if number % every:
                    continue
                scope.log(loss=loss, again=loss, lr=1e-3, batch=64)

        yield loop


@contextlib.contextmanager
def with_run(parts: Parts) -> Iterator[Loop]:
    """What ``trainscope run`` does to a program: nothing is wrapped by name, steps are inferred."""
    from trainscope.cli.recording import Recording

    with tempfile.TemporaryDirectory() as folder:
        window = (10_000_000, 1, 1)  # not yet active
        run_dir = Path(folder) / "run"
        recording = Recording(run_dir, window=window, sync="record", stacks=False, dry_run=False)
        recording._speaks = False  # no report among the figures

        def loop(steps: int) -> None:
            for _ in range(steps):
                parts.step()

        try:
            yield loop
        finally:
            recording.finish()


@contextlib.contextmanager
def with_sums(parts: Parts) -> Iterator[Loop]:
    """Two losses added up on the GPU by hand: the least that one can log without a wait."""
    totals = [torch.zeros((), device=DEVICE) for _ in range(2)]

    def loop(steps: int) -> None:
        for _ in range(steps):
            loss = parts.step().detach()
            for total in totals:
                total += loss

    yield loop


@contextlib.contextmanager
def with_item(parts: Parts) -> Iterator[Loop]:
    """One loss read in every step."""

    def loop(steps: int) -> None:
        for _ in range(steps):
            parts.step().item()

    yield loop


@contextlib.contextmanager
def with_profiler(parts: Parts) -> Iterator[Loop]:
    """torch.profiler, never stopped within the block."""

    def loop(steps: int) -> None:
        with torch.profiler.profile():
            for _ in range(steps):
                parts.step()

    yield loop


class _Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def with_dispatch_mode(parts: Parts) -> Iterator[Loop]:
    """A dispatch mode that does nothing."""

    def loop(steps: int) -> None:
        with _Nothing():
            for _ in range(steps):
                parts.step()

    yield loop


@contextlib.contextmanager
def with_lightning_profiler(parts: Parts) -> Iterator[Loop]:
    """Lightning's SimpleProfiler around the same four parts, as its Trainer calls it."""
    from lightning.pytorch.profilers import SimpleProfiler

    profiler = SimpleProfiler()

    def loop(steps: int) -> None:
        for _ in range(steps):
            with profiler.profile("run_training_batch"):
                with profiler.profile("forward"):
                    loss = parts.model(parts.x).square().mean()
                with profiler.profile("backward"):
                    loss.backward()
                with profiler.profile("optimizer_step"):
                    parts.optimizer.step()
                with profiler.profile("zero_grad"):
                    parts.optimizer.zero_grad(set_to_none=True)

    yield loop


@contextlib.contextmanager
def with_traceml(parts: Parts) -> Iterator[Loop]:
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

            def loop(steps: int) -> None:
                for _ in range(steps):
                    with traceml.trace_step(parts.model):
                        parts.step()

            yield loop
        finally:
            aggregator.kill()
            aggregator.wait()


@dataclass(frozen=True)
class Variant:
    """One way to run the loop, and how it is measured."""

    switched_on: Callable[[Parts], AbstractContextManager[Loop]]
    rounds: int = 1
    """Into how many blocks the steps of a pair are cut; each sets it up anew."""
    every_s: float = 0.0
    """How often it does work that not every block would hold; its blocks begin all over that."""


VARIANTS = {
    "trainscope": Variant(with_trainscope, rounds=10, every_s=FLUSH_S),
    "trainscope, log every 10th step": Variant(
        functools.partial(with_trainscope, every=10), rounds=10, every_s=FLUSH_S
    ),
    "trainscope run, no log": Variant(with_run, rounds=10, every_s=FLUSH_S),
    "two losses summed with torch": Variant(with_sums, rounds=10),
    "loss.item()": Variant(with_item, rounds=10),
    "no-op TorchDispatchMode": Variant(with_dispatch_mode),
    "Lightning SimpleProfiler": Variant(with_lightning_profiler),
    "torch.profiler always on": Variant(with_profiler),
    "traceml-ai": Variant(with_traceml),  # last: what it patches stays patched
}
