"""Random programs: a confident count is the true one, whatever the loops, arms and calls."""

from __future__ import annotations

import linecache
import random
import threading
import zlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from trainscope.record.inference import StepInference

PROGRAMS = 400
EVENTS = ("forward", "backward", "optimizer", "evaluation")
FETCHES = ("data", "data", "first data")


class Writer:
    """Writes a program of nested loops, arms and calls that counts its own trained turns."""

    def __init__(self, seed: int, *, fetches: bool = False) -> None:
        self.random = random.Random(seed)
        self.events = (*EVENTS, *FETCHES) if fetches else EVENTS
        self.lines: list[str] = []
        self.functions: list[list[str]] = []
        self.loops = 0

    def source(self) -> str:
        """The whole program, its main function last."""
        main = self.block(2, depth=0, in_loop=False)
        body = ["def main():", *indented(main)]
        functions = [line for function in self.functions for line in function]
        return "\n".join([*functions, *body, "main()"]) + "\n"

    def block(self, size: int, *, depth: int, in_loop: bool) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, size)):
            lines += self.statement(depth, in_loop)
        return lines

    def statement(self, depth: int, in_loop: bool) -> list[str]:
        choice = self.random.random()
        if depth >= 4 or choice < 0.35:
            return [event(self.random.choice(self.events))]
        if choice < 0.6:
            return self.loop(depth)
        if choice < 0.75:
            return self.arms(depth, in_loop)
        if choice < 0.88:
            name = f"f{len(self.functions)}"
            self.functions.append([])
            at = len(self.functions) - 1
            body = self.block(3, depth=depth + 1, in_loop=False)
            self.functions[at] = [f"def {name}():", *indented(body)]
            return [f"{name}()"]
        if in_loop and choice < 0.93:
            return ["if flip(): continue" if self.random.random() < 0.7 else "if flip(): break"]
        return ["train()"]

    def loop(self, depth: int) -> list[str]:
        number = self.loops
        self.loops += 1
        head = f"for _ in range({self.random.randint(1, 4)}):"
        body = self.block(3, depth=depth + 1, in_loop=True)
        return [head, f"    with turn({number}):", *indented(indented(body))]

    def arms(self, depth: int, in_loop: bool) -> list[str]:
        test = self.random.choice(["flip()", "alternate()"])
        lines = [f"if {test}:", *indented(self.block(2, depth=depth + 1, in_loop=in_loop))]
        if self.random.random() < 0.5:
            lines += ["else:", *indented(self.block(2, depth=depth + 1, in_loop=in_loop))]
        return lines


def event(kind: str) -> str:
    """A statement; that of a backward reads as a program's does."""
    return "loss.backward()" if kind == "backward" else f"emit({kind!r})"


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class Turn:
    """Counts a turn of a loop when a backward ran in it."""

    running: list[Turn]

    def __init__(self, truth: Truth, number: int) -> None:
        self.truth, self.number, self.trained = truth, number, False

    def __enter__(self) -> None:
        self.truth.running.append(self)

    def __exit__(self, *_: object) -> None:
        self.truth.running.pop()
        self.truth.trained[self.number] += self.trained


class Truth:
    """What the program itself knows of its turns."""

    def __init__(self) -> None:
        self.running: list[Turn] = []
        self.trained: Counter[int] = Counter()

    def backward(self) -> None:
        for turn in self.running:
            turn.trained = True


def outcome(
    seed: int, source: str, *, fetches: bool = False
) -> tuple[StepInference, Truth, list[str]]:
    """Run a program on a thread; what was inferred, the truth, and the step calls.

    Without ``fetches`` nothing is told of those that it makes.
    """
    file = f"<random program {seed}, {zlib.crc32(source.encode()):08x}>"  # a file is read once
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    truth, log, choice = Truth(), [], random.Random(seed + 1)
    inference = StepInference(
        begin=lambda: log.append("begin"),
        end=lambda: log.append("end"),
        end_last=lambda: log.append("end"),
        drop=lambda: log.append("drop"),
    )
    told = (*EVENTS, *FETCHES) if fetches else EVENTS
    tell = {kind: inference.on_event if kind in told else str for kind in (*EVENTS, *FETCHES)}
    turns = Counter[str]()

    def emit(kind: str) -> None:
        if kind == "backward":
            truth.backward()
        tell[kind](kind)  # by no branch: that would be one on the way to the event

    def train() -> None:
        emit("forward")
        emit("backward")
        emit("optimizer")

    def alternate() -> bool:
        turns["alternate"] += 1
        return turns["alternate"] % 2 == 0

    names: dict[str, Any] = {
        "emit": emit,
        "loss": SimpleNamespace(backward=lambda: emit("backward")),
        "train": train,
        "flip": lambda: choice.random() < 0.5,
        "alternate": alternate,
        "turn": lambda number: Turn(truth, number),
    }
    code = compile(source, file, "exec")
    thread = threading.Thread(target=exec, args=(code, names))
    thread.start()
    thread.join()
    return inference, truth, log


def loop_of_line(source: str, line: int) -> int:
    """The number of the loop whose head stands at a line."""
    return int(source.splitlines()[line].partition("turn(")[2].partition(")")[0])


def loops_of(counted_by: str, source: str) -> list[int]:
    """The numbers of the loops whose turns were counted."""
    places = counted_by.partition(" loop at ")[2].partition(";")[0].split(" and at ")
    return [loop_of_line(source, int(place.rpartition(":")[2])) for place in places]


@pytest.mark.parametrize("part", range(4))
def test_a_confident_count_is_true(part: int) -> None:
    confident = 0
    for seed in range(part, PROGRAMS * 4, 4):
        source = Writer(seed).source()
        inference, truth, log = outcome(seed, source)
        counted_by = inference.counted_by
        inference.finish()
        assert log.count("begin") == log.count("end") + log.count("drop")
        if not counted_by.startswith("trainscope run: turns of the loop at <random"):
            continue
        true = sum(truth.trained[number] for number in loops_of(counted_by, source))
        assert inference.steps == true, f"{counted_by}\n{source}"
        assert log.count("end") == true, f"{counted_by}\n{source}"
        confident += 1
    assert confident > PROGRAMS // 20


@pytest.mark.parametrize("part", range(4))
def test_fetches_of_batches_change_no_count(part: int) -> None:
    confident = 0
    for seed in range(part, PROGRAMS * 4, 4):
        source = Writer(seed, fetches=True).source()
        without, _truth, _log = outcome(seed, source)
        inference, truth, log = outcome(seed, source, fetches=True)
        counted_by = inference.counted_by
        if without.counted_by.startswith("trainscope run: "):
            assert (counted_by, inference.steps) == (without.counted_by, without.steps), source
        inference.finish()
        assert log.count("begin") == log.count("end") + log.count("drop")
        if not counted_by.startswith("trainscope run: turns of the loop at <random"):
            continue
        true = sum(truth.trained[number] for number in loops_of(counted_by, source))
        assert inference.steps == log.count("end") == true, f"{counted_by}\n{source}"
        confident += 1
    assert confident > PROGRAMS // 20
