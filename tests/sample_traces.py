"""The sample traces of small loops recorded on an H200, where they are beside the repository."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest

from trainscope.trace.torch_trace import read_torch_trace
from trainscope.trace.window import Window

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"

DDP = Path(__file__).with_name("analysis") / "replay" / "ddp"
"""Traces of rank 0 of loops on two GPUs, which are in the repository."""


@lru_cache
def sample(name: str) -> Window:
    """The window of a sample; skips the test where the samples are missing."""
    file = FOLDER / f"{name}.json.gz"
    if not file.is_file():
        pytest.skip(f"the sample trace {name} is not here")
    return read_torch_trace(file)


def truth(name: str) -> dict[str, float]:
    """Step times of a loop with and without its syncs, in ms, no profiler on."""
    file = FOLDER / "truth.json"
    if not file.is_file():
        pytest.skip("the measured step times are not here")
    return json.loads(file.read_text())[name]
