"""Files as torch.profiler writes them, from a few words a test: each event, its place, its times.

Times are ns from the first moment of the trace and are written as Kineto writes them, in µs with
three decimals on a clock far from 0, so that reading them is exact or noticed.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

__all__ = ["BASE_NS", "UNIX_NS", "MadeTrace", "kineto_text"]

BASE_NS = 5_140_085_957_092_144
"""Where the clock of the file stands at 0 ns."""
UNIX_NS = 1_790_857_026_000_000_000
"""Unix time at 0 on the file's clock."""

Entry = dict[str, object]
PID = 415


class MadeTrace:
    """Collects events; each method returns the trace, so that calls can be chained."""

    def __init__(self) -> None:
        self.events: list[Entry] = []
        self.head: Entry = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "warpSize": 32}],
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": UNIX_NS,
        }

    def event(self, name: str, start: int, end: int, **more: object) -> MadeTrace:
        """Any event of a duration; ``more`` overrides and adds fields."""
        entry: Entry = {"ph": "X", "cat": "cpu_op", "name": name, "pid": PID, "tid": PID}
        self.events.append(entry | {"ts": start, "dur": end - start} | more)
        return self

    def op(
        self, name: str, start: int, end: int, *, tid: int = PID, shapes: object = None
    ) -> MadeTrace:
        args: Entry = {"External id": len(self.events), "Record function id": 0}
        if shapes is not None:
            args |= {"Concrete Inputs": [""], "Input Strides": [[]], "Input Dims": shapes}
        return self.event(name, start, end, tid=tid, args=args | {"Ev Idx": 0})

    def range(self, name: str, start: int, end: int, *, tid: int = PID) -> MadeTrace:
        return self.event(name, start, end, cat="user_annotation", tid=tid, args={"Ev Idx": 0})

    def frame(self, name: str, start: int, end: int, *, tid: int = PID) -> MadeTrace:
        args = {"Python parent id": None, "Python id": len(self.events), "Ev Idx": 0}
        return self.event(name, start, end, cat="python_function", tid=tid, args=args)

    def call(
        self, name: str, start: int, end: int, correlation: int, *, tid: int = PID
    ) -> MadeTrace:
        category = "cuda_driver" if name.startswith("cu") and name[2].isupper() else "cuda_runtime"
        args = {"External id": 1, "cbid": 211, "correlation": correlation}
        return self.event(name, start, end, cat=category, tid=tid, args=args)

    def gpu(
        self,
        name: str,
        start: int,
        end: int,
        correlation: int,
        *,
        cat: str = "kernel",
        stream: int = 7,
        device: int = 0,
        **args: object,
    ) -> MadeTrace:
        """A kernel; with ``cat`` and ``bytes`` a copy or memset."""
        placed: Entry = {"device": device, "context": 1, "stream": stream}
        all_args = placed | {"correlation": correlation} | args
        return self.event(name, start, end, cat=cat, pid=device, tid=stream, args=all_args)

    def launch(self, at: int, start: int, end: int, correlation: int) -> MadeTrace:
        """A kernel with the call of 5 ns that enqueued it, and the arrow between them."""
        self.call("cudaLaunchKernel", at, at + 5, correlation)
        self.gpu("gemm<float>(float*)", start, end, correlation)
        flow: Entry = {"id": correlation, "cat": "ac2g", "name": "ac2g"}
        self.events.append({"ph": "s", "pid": PID, "tid": PID, "ts": at} | flow)
        self.events.append({"ph": "f", "pid": 0, "tid": 7, "ts": start, "bp": "e"} | flow)
        return self

    def sync(
        self, kind: str, start: int, end: int, correlation: int, *, stream: int = 7, **args: object
    ) -> MadeTrace:
        """CUDA's own record of a wait."""
        placed: Entry = {"cuda_sync_kind": kind, "stream": stream, "correlation": correlation}
        placed |= {"device": 0, "context": 1}
        return self.event(kind, start, end, cat="cuda_sync", pid=0, tid=stream, args=placed | args)

    def thread(self, name: str, tid: int = PID) -> MadeTrace:
        """The event that names a thread."""
        entry: Entry = {"name": "thread_name", "ph": "M", "ts": 0, "pid": PID, "tid": tid}
        self.events.append(entry | {"args": {"name": name}})
        return self

    def text(self) -> str:
        """As Kineto lays it out: an event begins and ends on lines of its own."""
        head = json.dumps(self.head, indent=2).removesuffix("\n}")
        events = ",\n".join(map(kineto_text, self.events))
        return f'{head},\n  "traceEvents": [\n{events}\n  ],\n  "traceName": "made.json"\n}}\n'

    def plain(self) -> dict[str, Any]:
        """As ``json.load`` gives it, to be changed or written in another layout."""
        return json.loads(self.text())

    def write(self, path: Path) -> Path:
        """The file, packed where the name ends in ``.gz``."""
        text = self.text().encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path


def kineto_text(event: Entry) -> str:
    """One event in Kineto's layout; its times, where they are int, are ns from ``BASE_NS``."""
    lines = [_fields({key: event[key] for key in event if key not in ("ts", "dur", "args")})]
    times = {key: event[key] for key in ("ts", "dur") if key in event}
    if times:
        lines.append(", ".join(f'"{key}": {_written(key, ns)}' for key, ns in times.items()))
    args = event.get("args")
    if isinstance(args, dict):
        lines.append(f'"args": {{\n      {_fields(args)}\n    }}')
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"


def _fields(values: Entry) -> str:
    return json.dumps(values, ensure_ascii=False)[1:-1]


def _written(key: str, value: object) -> str:
    if isinstance(value, int):
        ns = value + BASE_NS if key == "ts" else value
        return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"
    return str(value)  # "NaN", "1e300": what a test wants to see there
