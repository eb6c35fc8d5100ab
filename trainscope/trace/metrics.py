"""What was logged: records as they lie in ``metrics.jsonl``, and how much of them arrived."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = [
    "NON_FINITE",
    "RESERVED_NAMES",
    "MetricRecord",
    "MetricsState",
    "SinkState",
    "encode",
    "read_metrics",
]

_encode_lines = msgspec.json.Encoder().encode_lines

RESERVED_NAMES = frozenset({"step", "time_unix_ns"})
"""Keys of every line of ``metrics.jsonl``; no metric may take them."""

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How values that JSON has no number for are written."""


class MetricRecord(NamedTuple):
    """The values of one ``log`` call, or of one interval of steps.

    A tuple, for thousands are made while the loop waits for the interpreter.
    """

    step: int
    time_unix_ns: int
    values: Mapping[str, float | int]


@dataclass(frozen=True)
class SinkState:
    """What became of the records handed to one sink."""

    name: str
    written: int = 0
    """Records its ``write`` took."""
    dropped: int = 0
    """Records it never got, because it was too slow, failed, or was still busy at close."""
    disabled: bool = False
    """It failed too often and gets nothing any more."""
    error: str | None = None
    """Its last failure, in words."""
    note: str | None = None
    """What the sink itself has to say, such as which run it writes to."""


@dataclass(frozen=True)
class MetricsState:
    """How much was logged and how much of it arrived, so that a gap is never silent."""

    logged: int = 0
    """``log`` calls taken."""
    written: int = 0
    """Of these, the calls whose values have come from the device."""
    dropped: int = 0
    """Calls whose values were given up: every buffer was busy, or the device failed."""
    nonfinite: tuple[tuple[str, int, float], ...] = ()
    """``(name, step, value)`` of the first NaN and infinite values, in order of arrival."""
    nonfinite_count: int = 0
    """All of them."""
    sinks: tuple[SinkState, ...] = ()


def encode(records: Sequence[MetricRecord]) -> bytes:
    """Lines of ``metrics.jsonl``, one for each record, the last newline included.

    Strict JSON has no NaN: non-finite values are the strings ``"NaN"``, ``"Infinity"`` and
    ``"-Infinity"``, the names that ``float()`` and JavaScript's ``Number()`` understand.
    """
    # a fifth of the time of the careful way, on a thread that shares the loop's interpreter
    try:
        data = _encode_lines(
            [
                {"step": step, "time_unix_ns": time_unix_ns, **values}
                for step, time_unix_ns, values in records
            ]
        )
    except (TypeError, UnicodeEncodeError, OverflowError):  # of what a sink's user made, say
        return b"".join(map(_encode_carefully, records))
    # null is what it writes for NaN and infinity
    return b"".join(map(_encode_carefully, records)) if b"null" in data else data


def _encode_carefully(record: MetricRecord) -> bytes:
    parts = [f'{{"step":{record.step},"time_unix_ns":{record.time_unix_ns}']
    for name, value in record.values.items():
        if isinstance(value, int):
            parts.append(f"{_quoted(name)}:{int(value)}")
        elif math.isfinite(value):
            parts.append(f"{_quoted(name)}:{float(value)!r}")
        else:
            parts.append(f'{_quoted(name)}:"{_spell(value)}"')
    return (",".join(parts) + "}\n").encode("utf-8", "replace")


@lru_cache(maxsize=4096)
def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _spell(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def read_metrics(path: Path) -> tuple[MetricRecord, ...]:
    """The records of a ``metrics.jsonl``; a last line cut off by a kill is left out.

    A missing file gives none. Raises ``ValueError`` naming the line when another line is broken.
    """
    if not path.exists():
        return ()
    records: list[MetricRecord] = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            fields = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number}: not a JSON object: {error}") from error
        step, time_unix_ns = fields.pop("step"), fields.pop("time_unix_ns")
        values = {k: NON_FINITE[v] if isinstance(v, str) else v for k, v in fields.items()}
        records.append(MetricRecord(step, time_unix_ns, values))
    return tuple(records)
