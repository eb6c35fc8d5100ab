"""Calls, GPU work and waits of all processes of an export."""

from __future__ import annotations

import re

import numpy as np

from trainscope.trace.nsys.database import NO_NUMBER, NOTHING, Database
from trainscope.trace.nsys.kinds import Copies, sync_kinds
from trainscope.trace.nsys.rows import LeftOut, Names, known, process_of, usable
from trainscope.trace.window import Column, OpKind

__all__ = ["GRAPH_TABLE", "TABLES", "Part", "joined", "read_calls", "read_gpu", "read_syncs"]

Part = dict[str, Column]
"""Columns of a window's table, with ``process`` and, for what threads did, ``global_tid``."""

_CUPTI = "CUPTI_ACTIVITY_KIND_"
GRAPH_TABLE = f"{_CUPTI}GRAPH_TRACE"
_CALLS = (f"{_CUPTI}RUNTIME", f"{_CUPTI}DRIVER")
_KERNELS, _COPIES, _SETS = f"{_CUPTI}KERNEL", f"{_CUPTI}MEMCPY", f"{_CUPTI}MEMSET"
_SYNCS, _EVENTS = f"{_CUPTI}SYNCHRONIZATION", f"{_CUPTI}CUDA_EVENT"
TABLES = (*_CALLS, _KERNELS, _COPIES, _SETS, GRAPH_TABLE, _SYNCS, _EVENTS)

_VERSION = re.compile(r"(?:_ptsz|_ptds)?_v\d{4,}$")
"""``cudaLaunchKernel_v7000``: the CUDA version that brought the call, of no matter here."""
_ON_HOST = 2**31 - 1
"""The device of a graph whose first node runs on the CPU."""
_PLACE = ("deviceId", "streamId", "correlationId", "globalPid")


def read_calls(database: Database, names: Names, left_out: LeftOut) -> Part:
    """Calls of runtime and driver, named as torch.profiler names them."""
    parts = []
    for table in _CALLS:
        optional = ("globalTid", "correlationId", "nameId")
        rows = usable(database, table, optional, left_out)
        if rows is not None:
            parts.append(
                {
                    "start_ns": rows["start"],
                    "end_ns": rows["end"],
                    "name_id": names.of_ids(rows["nameId"], lambda name: _VERSION.sub("", name)),
                    "correlation": known(rows["correlationId"], least=1),
                    "global_tid": rows["globalTid"],
                    "process": process_of(rows["globalTid"]),
                }
            )
    return joined(parts)


def read_gpu(database: Database, names: Names, left_out: LeftOut) -> Part:
    """Kernels, copies, memsets, and replays of CUDA graphs that were recorded as a whole."""
    parts = []
    rows = _timed(database, _KERNELS, ("demangledName", "shortName", "mangledName"), left_out)
    if rows is not None:
        name = rows["demangledName"]
        for instead in (rows["shortName"], rows["mangledName"]):
            name = np.where(name < 0, instead, name)
        parts.append(_op(rows, OpKind.KERNEL, names.of_ids(name)))
    rows = _timed(database, GRAPH_TABLE, ("graphId",), left_out)
    if rows is not None:
        graphs, inverse = np.unique(rows["graphId"], return_inverse=True)
        places = [names.place(f"CUDA graph {n}" if n >= 0 else "CUDA graph") for n in graphs]
        name_id = np.array(places, dtype=np.int64)[inverse.reshape(-1)]
        parts.append(_op(rows, OpKind.KERNEL, name_id))
    copies = Copies(database)
    rows = _timed(database, _COPIES, ("bytes", "copyKind", "srcKind", "dstKind"), left_out)
    if rows is not None:
        name_id, copy_kind, memory = copies.columns(
            names, rows["copyKind"], rows["srcKind"], rows["dstKind"]
        )
        op = _op(rows, OpKind.COPY, name_id)
        op |= {"bytes": rows["bytes"], "copy_kind": copy_kind, "host_memory": memory}
        parts.append(op)
    rows = _timed(database, _SETS, ("bytes", "memKind"), left_out)
    if rows is not None:
        op = _op(rows, OpKind.SET, copies.memset_name(names, rows["memKind"]))
        parts.append(op | {"bytes": rows["bytes"]})
    return joined(parts)


def read_syncs(database: Database, left_out: LeftOut) -> Part:
    """CUDA's record of waits, with the record of the event that each waited for."""
    optional = (*_PLACE, "syncType", "eventId", "eventSyncId")
    rows = usable(database, _SYNCS, optional, left_out)
    if rows is None:
        return joined([])
    kind = sync_kinds(database, rows["syncType"])
    left_out.odd_syncs += int((kind < 0).sum())
    rows = {name: column[kind >= 0] for name, column in rows.items()}
    part = _placed(rows) | {"kind": kind[kind >= 0], "event_id": known(rows["eventId"])}
    stream, correlation = _recorded(database, part, known(rows["eventSyncId"], least=1))
    return part | {"event_stream": stream, "event_correlation": correlation}


def _timed(
    database: Database, table: str, optional: tuple[str, ...], left_out: LeftOut
) -> Part | None:
    """Usable rows of GPU work; CUPTI writes two zeros where it could not tell the times."""
    rows = usable(database, table, (*_PLACE, *optional), left_out)
    if rows is None:
        return None
    timed = rows["end"] > 0
    left_out.bad_time += int((~timed).sum())
    return {name: column[timed] for name, column in rows.items()}


def _op(rows: Part, kind: OpKind, name_id: Column) -> Part:
    return _placed(rows) | {"kind": np.full_like(name_id, int(kind)), "name_id": name_id}


def _placed(rows: Part) -> Part:
    device = known(rows["deviceId"])
    return {
        "start_ns": rows["start"],
        "end_ns": rows["end"],
        "device": np.where(device == _ON_HOST, -1, device),
        "stream": known(rows["streamId"]),
        "correlation": known(rows["correlationId"], least=1),
        "process": process_of(rows["globalPid"]),
    }


def _recorded(database: Database, syncs: Part, sync_id: Column) -> tuple[Column, Column]:
    """Stream and correlation of the last record of each waited event before the wait.

    nsys numbers the pairs itself where it can; else it is the record with the highest correlation
    below the wait's, which grows from call to call of a process.
    """
    stream, correlation = np.full((2, len(sync_id)), -1, dtype=np.int64)
    wanted = ["streamId", "correlationId", "globalPid", "eventId", "eventSyncId"]
    read = database.numbers(_EVENTS, wanted)
    if not {"streamId", "correlationId", "eventId"} <= set(read):
        return stream, correlation
    whole = ~np.any([column == NO_NUMBER for column in read.values()], axis=0)
    found = {name: np.where(c == NOTHING, -1, c)[whole] for name, c in read.items()}
    absent = np.full(int(whole.sum()), -1, dtype=np.int64)
    process = process_of(found.get("globalPid", absent))
    order = known(found["correlationId"], least=1)
    for mine, theirs in (
        (syncs["event_id"], known(found["eventId"])),
        (sync_id, known(found.get("eventSyncId", absent), least=1)),
    ):
        row = _last_before((syncs["process"], mine, syncs["correlation"]), (process, theirs, order))
        hit = row >= 0
        stream[hit] = known(found["streamId"])[row[hit]]
        correlation[hit] = order[row[hit]]
    return stream, correlation


def _last_before(
    mine: tuple[Column, Column, Column], theirs: tuple[Column, Column, Column]
) -> Column:
    """For each (process, id, order) of mine the row of theirs of that id and the next lower order.

    -1 where there is none, or the id or the order is not known.
    """
    good = np.flatnonzero((theirs[1] >= 0) & (theirs[2] >= 0))
    if not len(good) or not len(mine[0]):
        return np.full(len(mine[0]), -1, dtype=np.int64)
    pairs = np.concatenate([np.stack(theirs[:2], 1)[good], np.stack(mine[:2], 1)])
    key = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    their_key, my_key = key[: len(good)], key[len(good) :]
    # One number for id and order: correlations have 32 bits.
    their_place = their_key * 2**33 + np.minimum(theirs[2][good], 2**32)
    order = np.argsort(their_place, kind="stable")
    my_place = my_key * 2**33 + np.clip(mine[2], 0, 2**32)
    before = np.searchsorted(their_place[order], my_place) - 1
    row = order[np.maximum(before, 0)]
    hit = (before >= 0) & (their_key[row] == my_key) & (mine[1] >= 0) & (mine[2] >= 0)
    return np.where(hit, good[row], -1)


_EMPTY = ("start_ns", "end_ns", "process", "global_tid", "name_id", "correlation")


def joined(parts: list[Part]) -> Part:
    """Parts one after the other; what one of them lacks is -1."""
    names = dict.fromkeys(name for part in parts for name in part)
    if not parts:
        nothing = np.empty(0, dtype=np.int64)
        return dict.fromkeys(_EMPTY, nothing)
    return {
        name: np.concatenate(
            [part.get(name, np.full(len(part["start_ns"]), -1, dtype=np.int64)) for part in parts]
        )
        for name in names
    }
