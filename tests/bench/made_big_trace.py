"""A torch.profiler trace of any size: a training step with Python stacks, again and again.

The share of each kind of event is that of a recorded MLP with ``with_stack`` and
``record_shapes``: per step some 5,000 Python functions, 600 operators and 150 launches.
"""

from __future__ import annotations

import re
import sys
from decimal import Decimal
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from made_traces import MadeTrace, kineto_text

STEP_US = 20_000
LAUNCHES = 150
OPS_A_LAUNCH = 4
FRAMES_A_LAUNCH = 33
_MOVES = re.compile(r'"(ts|correlation|id)": ([\d.]+)')


def write_big_trace(path: Path, size_bytes: int) -> None:
    """Write at least ``size_bytes``; the last step is whole."""
    head, tail = MadeTrace().text().split("\n\n")
    first = ",\n".join(map(kineto_text, _step().events))
    written = len(head)
    with path.open("w") as file:
        file.write(head)
        for number in count():
            text = _moved(first, number)
            file.write("\n" + text if number == 0 else ",\n" + text)
            written += len(text)
            if written >= size_bytes:
                break
        file.write("\n" + tail)


def _moved(text: str, number: int) -> str:
    """The step later by ``number`` steps and with correlation ids of its own."""

    def moved(found: re.Match[str]) -> str:
        by = STEP_US if found[1] == "ts" else LAUNCHES + 1
        return f'"{found[1]}": {Decimal(found[2]) + number * by}'

    return _MOVES.sub(moved, text).replace("ProfilerStep#0", f"ProfilerStep#{number}")


def _step() -> MadeTrace:
    made = MadeTrace()
    step_ns = STEP_US * 1000
    made.thread("python3").range("ProfilerStep#0", 0, step_ns - 1000)
    for i in range(LAUNCHES):
        at = 1000 + i * 130_000
        for depth in range(FRAMES_A_LAUNCH):
            name = f"torch/nn/modules/module.py({1700 + depth}): _wrapped_call_impl"
            made.frame(name, at + 10 * depth, at + 120_000 - 10 * depth)
        for depth in range(OPS_A_LAUNCH):
            shapes = [[8192, 1024 + i], [1024, 4096], []]
            first = at + 1000 + 100 * depth
            made.op(f"aten::addmm_{depth}", first, first + 50_000 - 200 * depth, shapes=shapes)
        made.launch(at + 2000, at + 200_000, at + 320_000, i + 1)
    made.call("cudaStreamSynchronize", step_ns - 20_000, step_ns - 2000, LAUNCHES + 1)
    return made
