"""A tape of hook events for programs that tests write as plain loops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from trainscope.record.inference import StepInference

__all__ = ["Tape", "played", "seen"]

AnyTape = TypeVar("AnyTape")


class Tape:
    """Stands for the hooks: emits events, and keeps which steps were begun, ended and dropped."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.inference = StepInference(
            begin=lambda: self.log.append("begin"),
            end=lambda: self.log.append("end"),
            end_last=lambda: self.log.append("end"),
            drop=lambda: self.log.append("drop"),
        )

    @property
    def begun(self) -> int:
        return self.log.count("begin")

    @property
    def ended(self) -> int:
        return self.log.count("end")

    @property
    def dropped(self) -> int:
        return self.log.count("drop")

    def fetch(self, kind: str = "data") -> None:
        self.inference.on_event(kind)

    def forward(self) -> None:
        self.inference.on_event("forward")

    def evaluate(self) -> None:
        self.inference.on_event("evaluation")

    def grad(self) -> None:
        self.inference.on_event("grad")

    def backward(self) -> None:
        self.inference.on_event("backward")

    def optimize(self, closure: Callable[[], None] | None = None) -> None:
        self.inference.on_event("optimizer")
        if closure is not None:
            emit = self.inference.on_event
            self.inference.on_event = functools.partial(emit, within_optimizer=True)  # type: ignore[method-assign]
            closure()
            closure()
            self.inference.on_event = emit  # type: ignore[method-assign]

    def train(self) -> None:
        self.forward()
        self.backward()
        self.optimize()


def seen(program: Callable[[Tape], None]) -> Tape:
    """What was made of a program."""
    return played(program, Tape())


def played(program: Callable[[AnyTape], None], tape: AnyTape) -> AnyTape:
    """Run a program on a thread, so that no loop of pytest is around it; return its tape."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(program, tape).result()
    return tape
