"""Small exports of nsys, built row by row: tables and columns as nsys 2023.4 has them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

__all__ = ["PID", "gid", "write"]

PID = 500
CUPTI = "CUPTI_ACTIVITY_KIND_"
_PLACE = "start, end, deviceId, contextId, streamId, correlationId, globalPid"

COLUMNS = {
    "StringIds": "id, value",
    "RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
    "KERNEL": f"{_PLACE}, demangledName, shortName, graphNodeId",
    "MEMCPY": f"{_PLACE}, bytes, copyKind, srcKind, dstKind",
    "MEMSET": f"{_PLACE}, value, bytes, memKind",
    "GRAPH_TRACE": f"{_PLACE}, graphId, graphExecId",
    "SYNCHRONIZATION": f"{_PLACE}, syncType, eventId",
    "CUDA_EVENT": "deviceId, contextId, streamId, correlationId, globalPid, eventId",
    "NVTX_EVENTS": "start, end, eventType, text, globalTid, endGlobalTid, textId, domainId",
    "ThreadNames": "nameId, priority, globalTid",
    "PROCESSES": "globalPid, pid, name",
    "TARGET_INFO_GPU": "vmId, id, name, cuDevice",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs, utcTime",
    "META_DATA_EXPORT": "name, value",
    "ENUM_CUPTI_SYNC_TYPE": "id, name, label",
    "ENUM_CUDA_MEMCPY_OPER": "id, name, label",
    "ENUM_CUDA_MEM_KIND": "id, name, label",
}
SYNC_TYPES = ("UNKNOWN", "EVENT_SYNCHRONIZE", "STREAM_WAIT_EVENT")
SYNC_TYPES += ("STREAM_SYNCHRONIZE", "CONTEXT_SYNCHRONIZE")
COPIES = ("UNKNOWN", "HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA", "DTOD", "HTOH")
COPIES += ("PTOP", "UVM_HTOD", "UVM_DTOH", "UVM_DTOD")
MEMORIES = ("PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED")

Row = Mapping[str, object]


def gid(tid: int = 0, pid: int = PID) -> int:
    """A global id of nsys: the machine's number, 24 bits of process, 24 of thread."""
    return 1 << 48 | pid << 24 | tid


def write(
    path: Path,
    tables: Mapping[str, Sequence[Row]],
    *,
    strings: Sequence[str] = (),
    lists_of_kinds: bool = True,
) -> Path:
    """Write the rows; what a row does not name is NULL. String 1 is the first of ``strings``."""
    rows = {"StringIds": [{"id": i, "value": text} for i, text in enumerate(strings, 1)], **tables}
    if lists_of_kinds:
        rows |= {
            "ENUM_CUPTI_SYNC_TYPE": _kinds("CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_", SYNC_TYPES),
            "ENUM_CUDA_MEMCPY_OPER": _kinds("CUDA_MEMCPY_KIND_", COPIES),
            "ENUM_CUDA_MEM_KIND": _kinds("CUDA_MEMOPR_MEMORY_KIND_", MEMORIES),
        }
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, content in rows.items():
            own = dict.fromkeys(name for row in content for name in row)
            columns = COLUMNS.get(table, "")
            if not own.keys() <= set(columns.split(", ")):
                columns = ", ".join(own)
            name = CUPTI + table if table.isupper() and table in _OF_CUPTI else table
            connection.execute(f"create table {name} ({columns})")
            for row in content:
                marks = ", ".join("?" * len(row))
                into = f"insert into {name} ({', '.join(row)}) values ({marks})"
                connection.execute(into, tuple(row.values()))
    return path


_OF_CUPTI = {"RUNTIME", "KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "SYNCHRONIZATION"}
_OF_CUPTI |= {"CUDA_EVENT"}


def _kinds(prefix: str, names: Sequence[str]) -> list[Row]:
    return [{"id": i, "name": prefix + name, "label": name} for i, name in enumerate(names)]
