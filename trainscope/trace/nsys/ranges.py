"""NVTX ranges of an export: ranges, and the operators that torch marks under ``emit_nvtx``."""

from __future__ import annotations

import itertools
import re

import numpy as np
from numpy.typing import NDArray

from trainscope.trace.nsys.database import NO_NUMBER, NOTHING, Database
from trainscope.trace.nsys.rows import LeftOut, Names, process_of
from trainscope.trace.nsys.tables import Part, joined
from trainscope.trace.window import Column

__all__ = ["NVTX", "read_ranges"]

NVTX = "NVTX_EVENTS"
_PUSH_POP = (59, 70)
_START_END = (60, 71)
"""Types of event: by the program itself, and by a text file that was imported."""
_LIMIT_NS = 2**62

_OPERATOR = re.compile(
    r"(?P<name>[^,]+)(?:, (?:seq|op_id) = -?\d+)+"
    r"(?:, sizes = (?P<sizes>\[.*?\])(?:, \w+ = .*)?)?$"
)
_ATEN = re.compile(r"aten::\w+$")


def read_ranges(
    database: Database, names: Names, shapes: Names, left_out: LeftOut
) -> tuple[Part, Part]:
    """Ranges that have ended, and operators. On each thread they nest: what crosses is left out."""
    columns = ("start", "end", "eventType", "textId", "globalTid")
    read = database.numbers(NVTX, columns)
    if not read or ("start" in read and not len(read["start"])):
        return joined([]), joined([])
    if not {"start", "end", "eventType"} <= set(read):
        left_out.no_times.append(NVTX)
        return joined([]), joined([])
    is_range = np.isin(read["eventType"], (*_PUSH_POP, *_START_END))
    rows = np.flatnonzero(is_range & _possible(read, is_range, left_out))
    absent = np.full(len(read["start"]), -1, dtype=np.int64)
    tid = read.get("globalTid", absent)[rows]
    found: Part = {
        "start_ns": read["start"][rows],
        "end_ns": read["end"][rows],
        "global_tid": np.where(tid == NOTHING, -1, tid),
        "loose": np.isin(read["eventType"][rows], _START_END).astype(np.int64),
    }
    found["process"] = process_of(found["global_tid"])
    registered = names.of_ids(read.get("textId", absent)[rows])
    inline = _inline(database, names, len(read["start"]))[rows]
    found["name_id"] = np.where(inline >= 0, inline, registered)
    kept = ~_crossing(found)
    left_out.crossing += int((~kept).sum())
    found = {name: column[kept] for name, column in found.items()}
    return _parted(found, names, shapes)


def _possible(read: Part, is_range: NDArray[np.bool_], left_out: LeftOut) -> NDArray[np.bool_]:
    """Rows with possible times; what is wrong with the others is counted."""
    start, end = read["start"], read["end"]
    no_number = np.any([column == NO_NUMBER for column in read.values()], axis=0)
    malformed = no_number | (is_range & (start == NOTHING))
    unended = is_range & ~malformed & (end == NOTHING)
    bad_time = is_range & ~malformed & ~unended
    bad_time &= (start < 0) | (end < start) | (end >= _LIMIT_NS)
    left_out.malformed += int(malformed.sum())
    left_out.unended += int(unended.sum())
    left_out.bad_time += int(bad_time.sum())
    return ~malformed & ~unended & ~bad_time


def _inline(database: Database, names: Names, count: int) -> Column:
    """Places of the names that stand in the rows themselves; -1 where none does."""
    if "text" not in database.columns(NVTX):
        return np.full(count, -1, dtype=np.int64)
    places = (-1 if text is None else names.place(text) for text in database.texts(NVTX, "text"))
    return np.fromiter(places, dtype=np.int64)


def _crossing(found: Part) -> NDArray[np.bool_]:
    """Ranges that begin in another one of their thread and end after it, as few as will do.

    Those of start and end calls, which need not nest, before those of push and pop.
    """
    bad = np.zeros(len(found["start_ns"]), dtype=bool)
    order = np.lexsort((-found["end_ns"], found["start_ns"], found["global_tid"]))
    thread = found["global_tid"][order]
    start, end = found["start_ns"][order], found["end_ns"][order]
    loose = found["loose"][order].tolist()
    for low, high in _stretches(thread):
        if _nested(start[low:high], end[low:high]):
            continue
        begins, ends = start[low:high].tolist(), end[low:high].tolist()
        open_: list[int] = []
        for place, (begin, finish) in enumerate(zip(begins, ends, strict=True)):
            while open_ and ends[open_[-1]] <= begin:
                open_.pop()
            while open_ and ends[open_[-1]] < finish:
                if loose[low + place] or not loose[low + open_[-1]]:
                    bad[order[low + place]] = True
                    break
                bad[order[low + open_.pop()]] = True
            else:
                open_.append(place)
    return bad


def _nested(start: Column, end: Column) -> bool:
    """Whether no span begins in another one and ends after it.

    Read as brackets, each closing one closes the last that is open; where spans nest, that is their
    own.
    """
    real = end > start
    time = np.concatenate([start[real], end[real]])
    step = np.repeat([1, -1], int(real.sum()))
    order = np.lexsort((step, time))
    time, step = time[order], step[order]
    level = np.cumsum(step) + (step < 0)
    pairs = np.argsort(level, kind="stable").reshape(-1, 2)
    own_end = np.concatenate([end[real], end[real]])[order]
    return bool(np.all(own_end[pairs[:, 0]] == time[pairs[:, 1]]))


def _stretches(thread: Column) -> list[tuple[int, int]]:
    cuts = [0, *(np.flatnonzero(np.diff(thread)) + 1).tolist(), len(thread)]
    return [(low, high) for low, high in itertools.pairwise(cuts) if high > low]


def _parted(found: Part, names: Names, shapes: Names) -> tuple[Part, Part]:
    """Ranges, and what torch's own marks say of operators and the shapes of their inputs."""
    unique, inverse = np.unique(found["name_id"], return_inverse=True)
    texts = names.all()
    table = [_operator(texts[place], names, shapes) for place in unique.tolist()]
    operator = np.array(table, dtype=np.int64).reshape(-1, 2)[inverse.reshape(-1)]
    is_operator = operator[:, 0] >= 0
    ranges = {name: column[~is_operator] for name, column in found.items() if name != "loose"}
    ops = {name: column[is_operator] for name, column in found.items() if name != "loose"}
    ops["name_id"], ops["shape_id"] = operator[is_operator].T
    return ranges, ops


def _operator(text: str, names: Names, shapes: Names) -> tuple[int, int]:
    """Places of an operator's name and shapes; -1 where the range is no operator or has none."""
    if _ATEN.match(text):
        return names.place(text), -1
    found = _OPERATOR.match(text)
    if found is None:
        return -1, -1
    sizes = found["sizes"]
    return names.place(found["name"]), shapes.place(sizes) if sizes else -1
