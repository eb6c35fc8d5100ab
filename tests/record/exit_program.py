"""Run a small recording program to its end and read what it left."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path

import pytest
from warm import warm_script

from trainscope.trace.metrics import read_metrics

needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and fork")

PRELUDE = """
import faulthandler, os, signal, sys, threading, time
from pathlib import Path
import torch
from trainscope.metrics.logger import MetricsLogger
from trainscope.metrics.sinks import Jsonl, SinkContext
from trainscope.metrics.worker import Worker
from trainscope.record.exit import at_end

folder = Path(sys.argv[1])

def record(sinks=()):
    worker = Worker()
    logger = MetricsLogger(
        [Jsonl(), *sinks], context=SinkContext(folder, folder, 0, 1, "run"), worker=worker
    )
    worker.start()
    def close():
        logger.close(timeout_s=5)
        worker.close(timeout_s=5)
    return logger, at_end(close, flush=logger.flush)

def train(logger, first=0, last=5):
    for step in range(first, last):
        logger.log(step, {"loss": torch.tensor(step / 4)})

def wait_for_signal():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
"""

FIVE = [(step, {"loss": step / 4}) for step in range(5)]


def logged(folder: Path) -> list[tuple[int, dict[str, float | int]]]:
    return [(r.step, dict(r.values)) for r in read_metrics(folder / "metrics.jsonl")]


def run(place: Path, program: str, *signals: signal.Signals) -> tuple[int, str]:
    """Run the program, send the signals once it says "ready"; its exit status and stderr."""
    running = warm_script(place, PRELUDE + textwrap.dedent(program), str(place))
    if signals:
        assert running.first_line() == "ready"
    for number in signals:
        running.send_signal(number)
    ended = running.end()
    return ended.status, ended.err
