"""Traces recorded on an H200: every row is what a plain reading with json and decimals finds."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sample_traces import FOLDER, sample

from trainscope.errors import TraceError
from trainscope.trace.torch_trace import read_torch_trace
from trainscope.trace.window import CopyKind, Memory, OpKind, Window

NAMES = [
    *("data_free", "data_sync", "data_sync_stack", "gpt_free", "gpt_sync", "h2d_free", "h2d_sync"),
    *("mask_free", "mask_sync", "mask_sync_stack", "mid_free", "mid_sync", "mid_sync_stack"),
    *("prep2_free", "prep2_sync"),
]
TABLES = {
    "cpu_op": "ops",
    "user_annotation": "ranges",
    "python_function": "frames",
    "cuda_runtime": "calls",
    "cuda_driver": "calls",
    "kernel": "gpu",
    "gpu_memcpy": "gpu",
    "gpu_memset": "gpu",
    "cuda_sync": "syncs",
}


def plainly_read(name: str) -> list[dict[str, Any]]:
    with gzip.open(FOLDER / f"{name}.json.gz") as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    return [event for event in events if event.get("cat") in TABLES and event["ph"] == "X"]


def rows(window: Window) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for table in set(TABLES.values()):
        columns = getattr(window, table)
        for i in range(len(columns)):
            name = window.names[columns.name_id[i]] if table != "syncs" else ""
            correlation = int(columns.correlation[i]) if hasattr(columns, "correlation") else -1
            stream = int(columns.stream[i]) if hasattr(columns, "stream") else -1
            times = int(columns.start_ns[i]), int(columns.end_ns[i])
            tid = window.threads[columns.thread[i]].tid if hasattr(columns, "thread") else stream
            found[(table, name, *times, correlation, tid)] += 1
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_what_a_plain_reading_finds(name: str) -> None:
    window = sample(name)
    events = plainly_read(name)
    base = min(event["ts"] for event in events) * 1000
    wanted: Counter[tuple[object, ...]] = Counter()
    for event in events:
        table = TABLES[event["cat"]]
        start = int(event["ts"] * 1000 - base)
        end = start + int(event["dur"] * 1000)
        args = event["args"]
        correlation = args.get("correlation", -1) if table in ("calls", "gpu", "syncs") else -1
        tid = args["stream"] if table in ("gpu", "syncs") else event["tid"]
        tid = -1 if tid == 2**32 - 1 else tid
        called = "" if table == "syncs" else event["name"]
        wanted[table, called, start, end, correlation, tid] += 1
    assert rows(window) == wanted
    assert window.devices == ("NVIDIA H200",)
    assert window.has_sync_records


@pytest.mark.parametrize("name", NAMES)
def test_times_are_in_order_and_spans_of_a_thread_nest(name: str) -> None:
    window = sample(name)
    for table in (window.ops, window.ranges, window.frames, window.calls, window.gpu):
        assert (table.start_ns[1:] >= table.start_ns[:-1]).all()
        assert (table.end_ns >= table.start_ns).all()
    for spans in (window.ops, window.ranges):
        for thread in range(len(window.threads)):
            own = spans.take(spans.thread == thread)
            open_ends: list[int] = []
            for start, end in zip(own.start_ns.tolist(), own.end_ns.tolist(), strict=True):
                while open_ends and open_ends[-1] <= start:
                    open_ends.pop()
                assert not open_ends or end <= open_ends[-1]
                open_ends.append(end)


def test_what_is_missing_is_said() -> None:
    assert sample("gpt_sync").problems == ()
    assert sample("mid_sync").problems == (
        "64 of 616 GPU ops have no launch in the trace: it came before the window",
    )


def test_copies_say_what_they_copied() -> None:
    gpu = sample("h2d_sync").gpu
    copies = gpu.take((gpu.kind == OpKind.COPY) & (gpu.copy_kind == CopyKind.H2D))
    assert copies.host_memory.tolist() == [Memory.PAGEABLE] * len(copies)
    assert len(copies) == 4
    gpu = sample("h2d_free").gpu
    copies = gpu.take((gpu.kind == OpKind.COPY) & (gpu.copy_kind == CopyKind.H2D))
    assert set(copies.host_memory.tolist()) == {int(Memory.PINNED)}


@pytest.mark.parametrize("seed", range(60))
def test_a_file_damaged_by_chance_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    """Never another error, and never more rows than there were."""
    whole = sample("prep2_sync")
    with gzip.open(FOLDER / "prep2_sync.json.gz") as file:
        text = bytearray(file.read())
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 3, 30))):
        at = chance.randrange(len(text))
        size = chance.choice((1, 1, 5, 300))
        how = chance.choice(("flip", "cut out", "put in", "copy"))
        if how == "flip":
            text[at] = chance.randrange(256)
        elif how == "cut out":
            del text[at : at + size]
        elif how == "put in":
            text[at:at] = bytes(chance.choice(b'"{}[],:\\\n0x') for _ in range(size))
        else:
            other = chance.randrange(len(text))
            text[at : at + size] = text[other : other + size]
    (tmp_path / "a.json").write_bytes(text)
    try:
        window = read_torch_trace(tmp_path / "a.json")
    except TraceError:
        return
    assert len(window.gpu) <= len(whole.gpu) + 4
    assert len(window.ops) <= len(whole.ops) + 4
    assert all(len(words) > 10 for words in window.problems)
